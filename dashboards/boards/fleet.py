# SPDX-License-Identifier: Apache-2.0
"""Every server at a glance, the worst first: one table, one timeline, and the few extremes."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import engines, events, flags, gpus, links, palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.legends import AT, ENGINE
from boards.kit.links import runbooks, to_board
from boards.kit.panels import (
    COUNT,
    LATENCY,
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
    comparison,
    figure,
    figures,
    grid,
    lines,
    states,
    value_mapping,
)
from boards.kit.texts import Texts
from boards.kit.thresholds import number
from vllm_watch.daemon.catalog.gpu_texts import GPU_STATES
from vllm_watch.daemon.catalog.reasons import BY_SOURCE
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES, EngineState


UID = "vllm-watch-fleet"

_SERVER = f"{{{{server}}}}${{{AT}}}"
"""All servers are shown: each is named, and its daemon where there are several."""

_REMEMBERED = "1h"
"""How long a server that is not shown any more stays in the table."""

_STEADY = "5m"
"""What latencies in the table are over, whatever the time range: two servers are compared."""

_KINDS_OF_TOKENS = tuple(promql.of_engine(f"{kind}_tokens_per_second") for kind in ("prompt", "generation"))

_WATTS = "vllm_watch_gpu_power_watts"

_RECOMMENDED = 'vllm_watch_gpu_recovery_action{action!="none"}'

_HOTTEST = 5
"""How many GPUs are compared."""

_STEP = 10
"""Between two states in the order of the table; those with a critical alert stand between saturated and unknown."""

_NAMED = {"server": "${__data.fields.server}", "daemon": "${__data.fields.instance}"}


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "fleet")
    return board(
        t,
        UID,
        variables.usual(t),
        [
            Row(t.row("now"), [*_strip(t), _servers(t), events.firing(t, width=24, height=12, is_by_daemon=True)]),
            Row(t.row("course"), [_state(t), *_courses(t)]),
            Row(t.row("gpu"), [*_gpu_figures(t), *_gpu_courses(t)], collapsed=True),
            Row(t.row("flags"), [flags.table(t, "differing", flags.differing())]),
        ],
        annotated=False,
    )


def _strip(t: Texts) -> list[Panel]:
    tokens = " + ".join(f"sum({kind})" for kind in _KINDS_OF_TOKENS)
    worst_first = reversed(list(enumerate(BEST_TO_WORST, start=1)))
    return [
        figures(
            t.panel("by_state"),
            COUNT,
            [
                Query(f"sum({_worst()} == bool {place})", t.state(state), _count_color(state))
                for place, state in worst_first
            ],
            width=12,
        ),
        figure(t.panel("tokens"), TOKENS_PER_SECOND, Query(tokens, t.name("total")), decimals=0),
        figure(t.panel("running"), REQUESTS, Query(f"sum({promql.of_engine('requests_running')})", t.name("running"))),
        figure(
            t.panel("waiting"),
            REQUESTS,
            Query(f"sum({promql.of_engine('requests_waiting')})", t.name("waiting")),
            steps=[(1, palette.WARNING)],
        ),
        events.counts(t),
    ]


def _count_color(state: EngineState) -> str:
    """Return the colour of a number of servers: that some are idle is told apart from that none is."""
    return palette.TEXT if state == "idle" else STATE_COLORS[state]


def _worst() -> str:
    """Return each server's worst state; one that is not shown any more, though its daemon is a target, is unknown."""
    unknown = STATES["unknown"].severity
    shown = promql.worst_state()
    before = f"max without (engine, model_name, state) ({_before()})"
    return f"({shown} or ({before} and on (job, instance) up unless {shown}) * 0 + {unknown})"


def _rank() -> str:
    """
    Return each server's state as a number that the table is in the order of: a critical alert lifts it.

    Grafana sorts by no column that is hidden, so the state itself has to say it.
    """
    state, least = _worst(), STATES["saturated"].severity
    critical = events.counted("critical", "by (instance, server)")
    raised = f"({state} < {least}) + {_STEP * (least - 1)} and on (instance, server) {critical}"
    return f"({raised} or {state} * {_STEP})"


def _ranked_states(t: Texts) -> models.ValueMapping:
    """Return the states' names and colours by all numbers that `_rank` gives them."""
    places = list(enumerate(BEST_TO_WORST, start=1))
    least = STATES["saturated"].severity
    ranks = {_STEP * place: state for place, state in places}
    raised = {_STEP * (least - 1) + place: state for place, state in places if place < least}
    return value_mapping({str(rank): (t.state(state), STATE_COLORS[state]) for rank, state in (ranks | raised).items()})


def _before() -> str:
    return f"last_over_time({promql.of_engine('engine_state')}[{_REMEMBERED}])"


def _servers(t: Texts) -> Panel:
    state, waiting, server = t.name("state"), t.name("waiting"), t.name("server")
    return grid(
        t.panel("servers"),
        [Key("server", server, [_to(t, "server")])],
        [
            Column(
                _rank(),
                state,
                mappings=[_ranked_states(t)],
                filled=True,
                width=74,
                # A number that is 0 would be a link, too, and look like one: the state leads where to look on.
                links=[*(_to(t, name) for name in ("server", "capacity", "sources")), *links.pages(t)],
            ),
            engines.state_for(engines.in_state(), t, width=78),
            *_warnings(t),
            *_load(t, waiting),
            *_latency(t),
            Column(promql.since_token(), t.name("last_token"), SECONDS, decimals=1),
            Column(_info(), t.name("info"), hidden=True),
            Column(links.over_range(), t.name("links"), hidden=True),
        ],
        facts=[
            Key("version", t.name("version"), width=54),
            Key("instance", t.name("daemon"), [_to(t, "sources")], width=106),
            *links.hidden(t),
        ],
        required=True,
        sort_by=[(state, True), (waiting, True), (server, False)],
        height=12,
    )


def _warnings(t: Texts) -> list[Column]:
    return [
        *(
            Column(
                events.counted(severity, "by (instance, server)"),
                t.name(f"{severity}_count"),
                steps=[(1, color)],
                width=62 if severity == "critical" else 66,
            )
            for severity, color in events.SEVERITIES.items()
        ),
        Column(_unread(), t.name("unread"), steps=[(1, palette.WARNING)], width=62),
    ]


def _load(t: Texts, waiting: str) -> list[Column]:
    return [
        Column(_tokens(), t.name("tokens"), TOKENS_PER_SECOND, decimals=0, width=58),
        Column(_summed("requests_running"), t.name("running"), REQUESTS, width=68),
        Column(_summed("requests_waiting"), waiting, REQUESTS, steps=[(1, palette.WARNING)], width=78),
        Column(
            _fullest(),
            t.name("kv"),
            RATIO,
            steps=[(number("kv_spare_ratio"), palette.WARNING), (number("kv_full_ratio"), palette.BAD)],
            decimals=0,
            width=46,
        ),
    ]


def _to(t: Texts, board_name: str) -> Mapping[str, object]:
    return to_board(t.name(f"to_{board_name}"), f"vllm-watch-{board_name}", **_NAMED)


def _unread() -> str:
    """Return how many sources cannot be read; a machine without the driver of its GPUs is nothing to look at."""
    quiet = "|".join(code for code, reason in BY_SOURCE["gpu"].items() if reason.kind == "quiet")
    excused = promql.of_server("source_info", f'source="gpu",reason=~"{quiet}"')
    down = f"{promql.of_server('source_up')} == bool 0"
    return f"sum without (source) ({down} unless max without (reason) ({excused}))"


def _tokens() -> str:
    return " + ".join(promql.per_server(kind) for kind in _KINDS_OF_TOKENS)


def _summed(gauge: str) -> str:
    return promql.per_server(promql.of_engine(gauge))


def _fullest() -> str:
    return promql.per_server(promql.of_engine("kv_cache_usage_ratio"), "max")


def _latency(t: Texts) -> list[Column]:
    first_token = promql.answering(promql.quantile(0.95, "time_to_first_token_seconds", _STEADY))
    mean = promql.answering(promql.mean("time_to_first_token_seconds", _STEADY))
    objective = promql.of_server("slo_time_to_first_token_seconds")
    bad = promql.answering(promql.per_server(promql.recorded("slo_bad_ratio:rate1h"), "max"))
    return [
        Column(first_token, t.name("ttft"), LATENCY, width=78),
        Column(mean, t.name("ttft_mean"), LATENCY),
        Column(
            f"({first_token}) / {objective}",
            t.name("ttft_share"),
            TIMES,
            steps=[(1, palette.BAD)],
            decimals=1,
            width=70,
        ),
        Column(
            f"max without (objective, bound) ({bad}) / (1 - $slo)",
            t.name("burn"),
            TIMES,
            steps=[(1, palette.WARNING), (number("burn_page_slow"), palette.BAD)],
            decimals=1,
            width=58,
        ),
    ]


def _info() -> str:
    return f"max without (model_name, engine_generation, pd_role) ({promql.of_model('server_info')})"


def _state(t: Texts) -> Panel:
    rows = promql.in_order(promql.worst_at_end_first(), "server", "engine", "instance")
    return states(
        t.panel("state"),
        t,
        Query(rows, f"{{{{server}}}}${{{ENGINE}}}${{{AT}}}"),
        height=12,
        rows_per_page=20,
    )


def _courses(t: Texts) -> list[Panel]:
    return [
        lines(
            t.panel("tokens_course"),
            TOKENS_PER_SECOND,
            _ranked(f"({_tokens()})", _tokens_over_range()),
            width=12,
            runbooks=runbooks(t, "VllmEngineStalled"),
        ),
        lines(
            t.panel("waiting_course"),
            REQUESTS,
            _ranked_gauge("requests_waiting", "sum"),
            width=12,
            soft_most=1,
            runbooks=runbooks(t, "VllmQueueStanding"),
        ),
        lines(
            t.panel("kv_course"),
            RATIO,
            _ranked_gauge("kv_cache_usage_ratio", "max"),
            most=1,
            bounds=[(number("kv_full_ratio"), palette.BAD)],
            runbooks=runbooks(t, "VllmCapacityExhausted"),
        ),
        lines(
            t.panel("ttft_course"),
            SECONDS,
            _ranked_first_token(promql.quantile(0.95, "time_to_first_token_seconds")),
            logarithmic=True,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
        lines(
            t.panel("ttft_mean_course"),
            SECONDS,
            _ranked_first_token(promql.mean("time_to_first_token_seconds")),
            logarithmic=True,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
    ]


def _tokens_over_range() -> str:
    return f"({' + '.join(promql.per_server(_mean_over_range(kind)) for kind in _KINDS_OF_TOKENS)})"


def _mean_over_range(gauge: str) -> str:
    return promql.over_range(gauge, "avg_over_time")


def _ranked_gauge(gauge: str, how: str) -> list[Query]:
    of_engine = promql.of_engine(gauge)
    return _ranked(promql.per_server(of_engine, how), promql.per_server(_mean_over_range(of_engine), how))


def _ranked_first_token(shown: str) -> list[Query]:
    seconds, requests = (
        promql.per_server(promql.over_range(promql.of_engine(f"time_to_first_token_seconds_{part}"), "rate"))
        for part in ("sum", "count")
    )
    return _ranked(f"({shown})", f"{seconds} / {requests}")


def _ranked(expr: str, by: str) -> list[Query]:
    """Return a query for each place, as many as there are colours that can be distinguished."""
    return [
        Query(promql.ranked(expr, by, place), _SERVER, color) for place, color in enumerate(palette.COLORS, start=1)
    ]


def _gpu_figures(t: Texts) -> list[Panel]:
    """Return what needs somebody among all GPUs, and what they draw; a GPU that servers share counts once."""
    return [
        figures(
            t.panel("gpu_states"),
            COUNT,
            [
                Query(
                    f"sum({_each_gpu(gpus.state())} == bool {place})", t.name(f"gpu_{state}"), gpus.STATE_COLORS[state]
                )
                for place, state in enumerate(GPU_STATES, start=1)
            ],
            width=12,
        ),
        figure(
            t.panel("gpu_actions"),
            COUNT,
            Query(f"sum({_each_gpu(_RECOMMENDED)})", t.name("needing"), steps=[(1, palette.BAD)]),
            width=4,
            runbooks=runbooks(t, "GpuNeedsAction"),
        ),
        figure(
            t.panel("gpu_watts"),
            gpus.WATTS,
            Query(f"sum({_each_gpu(_WATTS)})", t.name("all_gpus")),
            Query(f"sum({_idle_watts()})", t.name("idle_gpus")),
            decimals=0,
            width=8,
        ),
    ]


def _gpu_courses(t: Texts) -> list[Panel]:
    return [
        comparison(
            t.panel("gpu_hottest"),
            gpus.CELSIUS,
            [Query(_hottest(), "{{server}} GPU {{index}}", palette.ORANGE)],
            runbooks=runbooks(t, "GpuThrottled"),
        ),
        lines(
            t.panel("gpu_throttled_course"),
            RATIO,
            _ranked(
                gpus.of_servers(gpus.throttled(), "max"), gpus.of_servers(_throttled_over_range(), "max", gpus.EVER)
            ),
            bounds=[(number("gpu_throttled_share"), palette.WARNING)],
            soft_most=number("gpu_throttled_share"),
            runbooks=runbooks(t, "GpuThrottled"),
        ),
        lines(
            t.panel("gpu_power_course"),
            gpus.WATTS,
            _ranked(gpus.of_servers(_WATTS), gpus.of_servers(_mean_over_range(_WATTS), gpus=gpus.EVER)),
        ),
    ]


def _each_gpu(series: str) -> str:
    """Return what each GPU of the chosen servers has, once."""
    return f"(max by (gpu) ({series}) and on (gpu) {promql.of_server('server_gpu_info')})"


def _idle_watts() -> str:
    """Return the power of GPUs whose servers have no running request."""
    busy = f"{promql.per_server(promql.of_engine('requests_running'))} > 0"
    return f"{_each_gpu(_WATTS)} unless on (gpu) ({gpus.GPUS} and ignoring (gpu) {busy})"


def _hottest() -> str:
    core = 'vllm_watch_gpu_temperature_celsius{sensor="core"}'
    return gpus.numbered(f"topk({_HOTTEST}, {gpus.of_gpu(core)})")


def _throttled_over_range() -> str:
    return promql.over_range('vllm_watch_gpu_throttled_seconds_total{reason!="power_cap"}', "rate")
