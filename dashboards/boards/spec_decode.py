# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding (MTP and its kin): whether drafts pay, and how many tokens a draft should have."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from boards import server
from boards.kit import engines, palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.engines import cell
from boards.kit.links import runbooks
from boards.kit.panels import (
    RATIO,
    REQUESTS,
    SECONDS,
    TOKENS_PER_SECOND,
    Column,
    Panel,
    Query,
    Steps,
    figure,
    grid,
    lines,
    value_mapping,
)
from boards.kit.texts import Texts
from boards.kit.thresholds import number, thresholds


UID = "vllm-watch-spec-decode"

_PAYS = number("drafts_pay_ratio")
_PAYS_WELL = 0.8
"""From here on a further drafted token is likely to be accepted, too."""

_TOKENS = "suffix: tok"
_MARKS: Steps = [(_PAYS, palette.WARNING), (_PAYS_WELL, palette.GOOD)]
_ACCEPTANCE: Steps = [(_PAYS, palette.PLAIN), (_PAYS_WELL, palette.GOOD)]

_POSITIONS = {
    str(position): color
    for position, color in enumerate(
        [palette.SKY, palette.ORANGE, palette.GREEN, palette.PURPLE, palette.BLUE, palette.VERMILLION]
    )
}

_DRAFTED = promql.of_engine("spec_decode_drafted_tokens_per_second")
_ACCEPTED = promql.of_engine("spec_decode_accepted_tokens_per_second")
_LENGTH = promql.of_engine("spec_decode_mean_acceptance_length")
_RATIO = promql.of_engine("spec_decode_acceptance_ratio")
_POSITION = promql.of_engine("spec_decode_position_acceptance_ratio")
_LENGTH_NOW = promql.by_drafts(_LENGTH)
_RATIO_NOW = promql.by_drafts(_RATIO)
_POSITION_NOW = promql.by_drafts(_POSITION)
_PER_DRAFT = promql.of_engine("num_speculative_tokens")


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "spec_decode")
    return board(
        t,
        UID,
        variables.usual(t),
        [
            Row(t.row("verdict"), [_advice(t), *_figures(t)]),
            Row(t.row("acceptance"), [_length(t), _positions(t), _ratio(t)]),
            Row(t.row("tokens"), [_flow(t), _from_drafts(t)]),
            Row(t.row("effect"), [_tpot(t), _tokens_per_output(t), _load(t)]),
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
        }
    )
    return grid(
        t.panel("advice"),
        engines.keys(t, server.UID),
        [
            Column(cell(_use()), t.name("use"), mappings=[use], width=110),
            Column(cell(f"{_PER_DRAFT} or {_positions_in_range('count')}"), t.name("per_draft"), width=100),
            Column(cell(_in_range(_LENGTH)), t.name("length"), decimals=2, width=105),
            _share(_in_range(_RATIO), t.name("ratio")),
            _share(_positions_in_range("min"), t.name("last_pays")),
            Column(cell(_one_more()), t.name("next_pays"), RATIO, decimals=0, width=120),
            Column(cell(_paying()), t.name("paying"), width=90),
            Column(cell(_judged()), t.name("advice"), mappings=[advice], width=165),
        ],
        sort_by=[(t.name("server"), False)],
        height=6,
        runbooks=runbooks(t, "VllmDraftsDoNotPay"),
    )


def _share(expr: str, name: str) -> Column:
    return Column(cell(expr), name, RATIO, steps=_ACCEPTANCE, below=palette.WARNING, decimals=0, width=100)


def _use() -> str:
    """Return 2 while drafts are made, 1 between them, 0 if there is no sign of any, -1 if nothing is known."""
    engine = f"max without (state) ({promql.of_engine('engine_state')})"
    away = promql.of_engine("engine_state", 'state=~"unknown|down|starting"')
    unreached = f"max without (state) ({away}) == 1"
    configured = f"{_PER_DRAFT} or {promql.of_engine('spec_decode_draft_tokens_total')}"
    return " or ignoring (model_name) ".join(
        f"({expr}) * 0 + {value}"
        for expr, value in ((f"{_DRAFTED} > 0", 2), (configured, 1), (unreached, -1), (engine, 0))
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
    thrown_away = promql.per_server(f"{_DRAFTED} - {_ACCEPTED}")
    collapsed = runbooks(t, "VllmAcceptanceCollapsed")
    wasteful = runbooks(t, "VllmDraftsDoNotPay")
    return [
        figure(
            t.panel("length_now"),
            _TOKENS,
            _worst("bottomk", _LENGTH_NOW),
            width=4,
            decimals=2,
            runbooks=collapsed,
        ),
        figure(
            t.panel("ratio_now"),
            RATIO,
            _worst("bottomk", _RATIO_NOW),
            width=4,
            steps=_ACCEPTANCE,
            below=palette.WARNING,
            decimals=0,
            runbooks=wasteful,
        ),
        figure(
            t.panel("wasted_now"),
            TOKENS_PER_SECOND,
            _worst("topk", thrown_away),
            width=4,
            decimals=0,
            runbooks=wasteful,
        ),
        figure(t.panel("share_now"), RATIO, _worst("bottomk", _share_from_drafts()), width=4, decimals=0),
        figure(t.panel("tpot_now"), SECONDS, _worst("topk", _drafting(_time_per_token())), width=4),
        figure(t.panel("step_now"), SECONDS, _worst("topk", _drafting(_time_per_output())), width=4),
    ]


def _worst(how: str, expr: str) -> Query:
    """Return the one server that is worst off, by its name: no number is of two servers."""
    return Query(f"{how}(1, {expr})", "{{server}}", several=True)


def _length(t: Texts) -> Panel:
    """Return the length with its most, and the bound under which the alert on a collapse fires."""
    memory = f"{_LENGTH}[{thresholds()['baseline_window']}] offset {thresholds()['baseline_before']}"
    most = promql.per_server(f"({_PER_DRAFT} or count without (position) ({_POSITION})) + 1", "max")
    bound = f"(1 + {number('collapse_gain_ratio'):g} * (quantile_over_time(0.5, {memory}) - 1)) and {_DRAFTED}"
    return lines(
        t.panel("length"),
        _TOKENS,
        [
            Query(_LENGTH, "{{server}} {{engine}}", palette.GREEN, several=True),
            Query(most, f"{{{{server}}}} {t.name('most')}", palette.SKY, limit=True),
            Query(promql.per_server(bound, "max"), f"{{{{server}}}} {t.name('collapse')}", palette.LIMIT, limit=True),
        ],
        bounds=[(1, palette.GREY)],
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _positions(t: Texts) -> Panel:
    return lines(
        t.panel("positions"),
        RATIO,
        [
            Query(
                _POSITION_NOW,
                f"{{{{server}}}} {t.name('position')} {{{{position}}}}",
                palette.GREY,
                several=True,
            )
        ],
        most=1,
        bounds=_MARKS,
        colors=_POSITIONS,
        runbooks=runbooks(t, "VllmDraftsDoNotPay"),
    )


def _ratio(t: Texts) -> Panel:
    return lines(
        t.panel("ratio"),
        RATIO,
        [Query(_RATIO, "{{server}} {{engine}}", palette.GREEN, several=True)],
        most=1,
        bounds=_MARKS,
        runbooks=runbooks(t, "VllmDraftsDoNotPay"),
    )


def _flow(t: Texts) -> Panel:
    return lines(
        t.panel("flow"),
        TOKENS_PER_SECOND,
        [
            Query(promql.per_server(_DRAFTED), f"{{{{server}}}} {t.name('drafted')}", palette.SKY),
            Query(promql.per_server(_ACCEPTED), f"{{{{server}}}} {t.name('accepted')}", palette.GREEN),
            Query(promql.per_server(f"{_DRAFTED} - {_ACCEPTED}"), f"{{{{server}}}} {t.name('wasted')}", palette.ORANGE),
        ],
        width=12,
        runbooks=runbooks(t, "VllmDraftsDoNotPay"),
    )


def _from_drafts(t: Texts) -> Panel:
    return lines(
        t.panel("from_drafts"),
        RATIO,
        [Query(_share_from_drafts(), "{{server}}", palette.GREEN, several=True)],
        width=12,
        most=1,
    )


def _share_from_drafts() -> str:
    generated = promql.per_server(promql.of_engine("generation_tokens_per_second"))
    return f"{promql.per_server(_ACCEPTED)} / ({generated} > 0)"


def _tpot(t: Texts) -> Panel:
    return lines(
        t.panel("tpot"),
        SECONDS,
        [
            Query(_drafting(_time_per_token()), f"{{{{server}}}} {t.name('tpot')}", palette.GREEN),
            Query(
                _drafting(_time_per_output()), f"{{{{server}}}} {t.name('one_per_step')}", palette.ORANGE, limit=True
            ),
        ],
    )


def _tokens_per_output(t: Texts) -> Panel:
    outputs = _rate_of("inter_token_latency_seconds_count")
    measured = f"{_later_tokens()} / ({outputs} > 0)"
    return lines(
        t.panel("tokens_per_output"),
        _TOKENS,
        [
            Query(_drafting(measured), f"{{{{server}}}} {t.name('measured')}", palette.GREEN),
            Query(_LENGTH_NOW, f"{{{{server}}}} {t.name('by_drafts')}", palette.SKY),
        ],
        bounds=[(1, palette.GREY)],
    )


def _load(t: Texts) -> Panel:
    running = promql.per_server(promql.of_engine("requests_running"))
    return lines(
        t.panel("load"),
        REQUESTS,
        [Query(_drafting(running), "{{server}}", palette.SKY, several=True)],
        stepped=True,
    )


def _time_per_output() -> str:
    return f"{_rate_of('inter_token_latency_seconds_sum')} / ({_rate_of('inter_token_latency_seconds_count')} > 0)"


def _time_per_token() -> str:
    return f"{_rate_of('inter_token_latency_seconds_sum')} / ({_later_tokens()} > 0)"


def _later_tokens() -> str:
    """Return a server's generated tokens per second but for the first of each request, which comes with the prompt."""
    return f"({_rate_of('generation_tokens_total')} - {_rate_of('time_to_first_token_seconds_count')})"


def _rate_of(counter: str) -> str:
    return promql.per_server(promql.rate(promql.of_engine(counter)))


def _drafting(expr: str) -> str:
    """Return what is of servers that speculate: the others would be lines that say nothing here."""
    return f"{expr} and {promql.per_server(promql.of_engine('spec_decode_draft_tokens_total'))}"
