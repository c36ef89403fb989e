# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding (MTP and its kin): whether drafts pay, and how many tokens a draft should have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana_foundation_sdk.models import dashboard as models

from boards import server
from boards.kit import engines, palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.engines import cell
from boards.kit.legends import ENGINE
from boards.kit.links import runbooks
from boards.kit.panels import (
    RATIO,
    REQUESTS,
    SECONDS,
    STATE_COLORS,
    TIMES,
    TOKENS_PER_SECOND,
    Column,
    Key,
    Panel,
    Query,
    Steps,
    figure,
    grid,
    lines,
    timeline,
    value_mapping,
)
from boards.kit.promql import Quotient, by_drafts
from boards.kit.texts import Texts
from boards.kit.thresholds import number, thresholds
from vllm_watch.daemon.catalog.states import EngineState


UID = "vllm-watch-spec-decode"

_PAYS = number("drafts_pay_ratio")
_PAYS_WELL = 0.8
"""From here on a further drafted token is likely to be accepted, too."""

_ROWS = 8
"""Positions on a page, those of two servers: of twenty the names would lie over each other."""

_ANSWERING_NOBODY: Final[Mapping[EngineState, str]] = {"stalled": "-2", "down": "-3"}
"""States that are told in place of what the drafts do, and the numbers that stand for them."""

_TOKENS = "suffix: tok"
_ACCEPTANCE: Steps = [(_PAYS, palette.PLAIN), (_PAYS_WELL, palette.GOOD)]
_IN_VAIN: Steps = [(1, palette.WARNING)]
"""Drafted tokens in vain for each generated one: with more than one, fewer than half of the drafted are accepted."""

_DRAFTED = promql.of_engine("spec_decode_drafted_tokens_per_second")
_ACCEPTED = promql.of_engine("spec_decode_accepted_tokens_per_second")
_LENGTH = promql.of_engine("spec_decode_mean_acceptance_length")
_RATIO = promql.of_engine("spec_decode_acceptance_ratio")
_POSITION = promql.of_engine("spec_decode_position_acceptance_ratio")
_POSITION_BY_DRAFTS = by_drafts(_POSITION)
_PER_DRAFT = promql.of_engine("num_speculative_tokens")


def _of_drafting(part: str, whole: str) -> Quotient:
    """Return a quotient of servers that speculate: the others would be lines that say nothing here."""
    return Quotient(_drafting(promql.per_server(part)), promql.per_server(whole))


def _drafting(expr: str) -> str:
    """Return what is of servers that speculate: the others would be lines that say nothing here."""
    return f"{expr} and {promql.per_server(promql.of_engine('spec_decode_draft_tokens_total'))}"


def _rate(counter: str) -> str:
    return promql.rate(promql.of_engine(counter))


_ITL_SECONDS, _OUTPUTS = (_rate(f"inter_token_latency_seconds_{part}") for part in ("sum", "count"))
_LATER_TOKENS = f"{_rate('generation_tokens_total')} - {_rate('time_to_first_token_seconds_count')}"
"""Generated tokens per second but for the first of each request, which comes with the prompt."""

_TIME_PER_TOKEN = _of_drafting(_ITL_SECONDS, _LATER_TOKENS)
_TIME_PER_OUTPUT = _of_drafting(_ITL_SECONDS, _OUTPUTS)
_TOKENS_PER_OUTPUT = _of_drafting(_LATER_TOKENS, _OUTPUTS)


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "spec_decode")
    return board(
        t,
        UID,
        variables.usual(t),
        [
            Row(t.row("verdict"), [_advice(t), *_figures(t)]),
            Row(t.row("acceptance"), [_length(t), _positions(t), _by_position(t)]),
            Row(t.row("cost"), [_flow(t), _tpot(t), _load(t)]),
        ],
    )


def _advice(t: Texts) -> Panel:
    """Return a row for every engine, those that do not speculate included."""
    advice = value_mapping(
        {
            "3": (t.name("take_more"), palette.GREEN),
            "2": (t.name("right"), palette.SKY),
            "1": (t.name("too_many"), palette.ORANGE),
            "0": (t.name("none_pays"), palette.VERMILLION),
        }
    )
    use = value_mapping(
        {
            "2": (t.name("drafting"), palette.GREEN),
            "1": (t.name("pausing"), palette.SKY),
            "0": (t.name("none_seen"), palette.GREY),
            "-1": (t.name("not_known"), palette.BLUE),
            **{number: (t.state(state), STATE_COLORS[state]) for state, number in _ANSWERING_NOBODY.items()},
        }
    )
    return grid(
        t.panel("advice"),
        engines.keys(t, server.UID),
        [
            Column(cell(_judged()), t.name("advice"), mappings=[advice], width=215),
            Column(cell(_use()), t.name("use"), mappings=[use], width=110),
            Column(cell(f"{_PER_DRAFT} or {_positions_in_range('count')}"), t.name("per_draft")),
            Column(cell(_paying()), t.name("paying")),
            _share(cell(_in_range(_RATIO)), t.name("ratio")),
            _share(cell(_positions_in_range("min")), t.name("last_pays"), width=108),
            Column(cell(_one_more()), t.name("next_pays"), RATIO, decimals=0, width=125),
            Column(cell(_in_range(_LENGTH)), t.name("length"), decimals=2),
        ],
        sort_by=[(t.name("server"), False)],
        height=6,
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _share(expr: str, name: str, *, gauge: bool = False, width: int | None = None) -> Column:
    return Column(
        expr, name, RATIO, steps=_ACCEPTANCE, below=palette.WARNING, decimals=0, gauge=gauge, most=1, width=width
    )


def _use() -> str:
    """
    Return 2 while drafts are made, 1 between them, 0 if there is no sign of any, -1 if nothing is known.

    An engine that answers nobody has its state: that it has no drafts says nothing of them.
    """
    in_state = {state: promql.of_engine("engine_state", f'state="{state}"') for state in _ANSWERING_NOBODY}
    nobody = [(f"max without (state) ({in_state[state]}) == 1", number) for state, number in _ANSWERING_NOBODY.items()]
    engine = f"max without (state) ({promql.of_engine('engine_state')})"
    away = promql.of_engine("engine_state", 'state=~"unknown|starting"')
    unreached = f"max without (state) ({away}) == 1"
    configured = f"{_PER_DRAFT} or {promql.of_engine('spec_decode_draft_tokens_total')}"
    return " or ignoring (model_name) ".join(
        f"({expr}) * 0 + {value}"
        for expr, value in (*nobody, (f"{_DRAFTED} > 0", 2), (configured, 1), (unreached, -1), (engine, 0))
    )


def _in_range(ratio: str) -> str:
    """Return what a ratio was in the time range by engine, every draft counted alike: not every moment."""
    drafted = f"* ignoring (position) group_left () {_DRAFTED}"
    both = f"{ratio} * 0 + ignoring (position) group_left () {_DRAFTED}"
    return (
        f"sum_over_time(({ratio} {drafted})[$__range:$__interval])"
        f" / (sum_over_time(({both})[$__range:$__interval]) > 0)"
    )


def _positions_in_range(how: str) -> str:
    """
    Return one value out of an engine's acceptance by position.

    A token counts only if all before it were accepted, so the least is that of the last position.
    """
    return f"{how} without (position) ({_in_range(_POSITION)})"


def _one_more() -> str:
    """Return what a further position would be accepted in, as often after the last as each after the one before it."""
    return f"{_positions_in_range('min')} ^ (1 + 1 / {_positions_in_range('count')})"


def _paying() -> str:
    return f"sum without (position) ({_in_range(_POSITION)} >= bool {_PAYS})"


def _judged() -> str:
    """Return 3 where the last position pays well, 2 where it pays, 1 where the first does, 0 where none does."""
    first, last = _positions_in_range("max"), _positions_in_range("min")
    return f"({last} >= bool {_PAYS_WELL}) + ({last} >= bool {_PAYS}) + ({first} >= bool {_PAYS})"


def _figures(t: Texts) -> list[Panel]:
    return [*_acceptance_figures(t), *_time_figures(t)]


def _acceptance_figures(t: Texts) -> list[Panel]:
    wasteful = runbooks(t, "VllmAcceptanceCollapsed")
    wasted = _of_drafting(f"{_DRAFTED} - {_ACCEPTED}", promql.of_engine("generation_tokens_per_second"))
    return [
        figure(
            t.panel("length_now"),
            _TOKENS,
            *_of_worst(t, "bottomk", by_drafts(_LENGTH)),
            width=5,
            decimals=2,
            one_at_a_time=True,
            runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
        ),
        figure(
            t.panel("ratio_now"),
            RATIO,
            *_of_worst(t, "bottomk", by_drafts(_RATIO)),
            width=5,
            steps=_ACCEPTANCE,
            below=palette.WARNING,
            decimals=0,
            one_at_a_time=True,
            runbooks=wasteful,
        ),
        figure(
            t.panel("wasted_now"),
            TIMES,
            *_of_worst(t, "topk", wasted),
            width=5,
            steps=_IN_VAIN,
            decimals=1,
            one_at_a_time=True,
            runbooks=wasteful,
        ),
    ]


def _time_figures(t: Texts) -> list[Panel]:
    return [
        figure(t.panel("tpot_now"), SECONDS, *_of_worst(t, "topk", _TIME_PER_TOKEN), width=4, one_at_a_time=True),
        figure(
            t.panel("gain_now"),
            TIMES,
            *_of_worst(t, "bottomk", _TOKENS_PER_OUTPUT),
            width=5,
            decimals=2,
            one_at_a_time=True,
        ),
    ]


def _of_worst(t: Texts, how: str, quotient: Quotient) -> tuple[Query, Query]:
    """
    Return what is of the server that is worst off, by its name: no number is of two servers.

    While none of the chosen servers drafts it is that of the whole time range, and says so.
    """
    which = t.name("lowest" if how == "bottomk" else "highest")
    return (
        Query(f"{how}(1, {quotient.now})", f"{which}, {t.name('present')}"),
        Query(f"{how}(1, {quotient.in_range}) unless on () ({quotient.now})", f"{which}, {t.name('of_range')}"),
    )


def _length(t: Texts) -> Panel:
    """Return the length by the drafts and as measured, with its most, and the bound of the alert on a collapse."""
    drafted = f"{_LENGTH} and {_DRAFTED} > 0"  # The daemon keeps the last one.
    memory = f"{_LENGTH}[{thresholds()['baseline_window']}] offset {thresholds()['baseline_before']}"
    most = promql.per_server(f"({_PER_DRAFT} or count without (position) ({_POSITION})) + 1", "max")
    bound = f"(1 + {number('collapse_gain_ratio'):g} * (quantile_over_time(0.5, {memory}) - 1)) and {_DRAFTED}"
    return lines(
        t.panel("length"),
        _TOKENS,
        [
            Query(_TOKENS_PER_OUTPUT.now, t.of_server("measured"), palette.SKY),
            Query(drafted, f"{{{{server}}}} {t.name('by_drafts')}${{{ENGINE}}}", palette.GREEN, several=True),
            Query(most, t.of_server("most"), palette.SKY, limit=True),
            Query(promql.per_server(bound, "max"), t.of_server("collapse"), palette.LIMIT, limit=True),
        ],
        bounds=[(1, palette.GREY)],
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _positions(t: Texts) -> Panel:
    """Return a line of colours for each position: as curves most of them would lie on each other."""
    pays = value_mapping(
        {
            "2": (t.name("pays_well"), palette.GOOD),
            "1": (t.name("pays"), palette.PLAIN),
            "0": (t.name("pays_not"), palette.WARNING),
        }
    )
    judged = f"({_POSITION_BY_DRAFTS.now} >= bool {_PAYS_WELL}) + ({_POSITION_BY_DRAFTS.now} >= bool {_PAYS})"
    return timeline(
        t.panel("positions"),
        Query(promql.in_order(judged, "server", "position"), f"{{{{server}}}} {t.name('position')} {{{{position}}}}"),
        [pays],
        width=8,
        height=8,
        rows_per_page=_ROWS,
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _by_position(t: Texts) -> Panel:
    position, server_name = t.name("at_position"), t.name("server")
    share = promql.only(_POSITION_BY_DRAFTS.in_range, "instance", "server", "position")
    return grid(
        t.panel("by_position"),
        [
            Key("server", server_name, width=100),
            Key("instance", t.name("daemon"), width=115),
            Key("position", position, width=75),
        ],
        [_share(share, t.name("ratio"), gauge=True)],
        sort_by=[(server_name, False), (position, False)],
        width=8,
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _flow(t: Texts) -> Panel:
    return lines(
        t.panel("flow"),
        TOKENS_PER_SECOND,
        [
            Query(promql.per_server(_DRAFTED), t.of_server("drafted"), palette.SKY),
            Query(promql.per_server(_ACCEPTED), t.of_server("accepted"), palette.GREEN),
            Query(promql.per_server(f"{_DRAFTED} - {_ACCEPTED}"), t.of_server("wasted"), palette.ORANGE),
        ],
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _tpot(t: Texts) -> Panel:
    return lines(
        t.panel("tpot"),
        SECONDS,
        [
            Query(_TIME_PER_TOKEN.now, t.of_server("tpot"), palette.GREEN),
            Query(_TIME_PER_OUTPUT.now, t.of_server("one_per_step"), palette.ORANGE, limit=True),
        ],
    )


def _load(t: Texts) -> Panel:
    running = promql.per_server(promql.of_engine("requests_running"))
    return lines(
        t.panel("load"),
        REQUESTS,
        [Query(_drafting(running), "{{server}}", palette.SKY, several=True)],
        stepped=True,
    )
