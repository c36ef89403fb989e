# SPDX-License-Identifier: Apache-2.0
"""How much more a server can take, until when, and with what limits it was started."""

from __future__ import annotations

from itertools import pairwise

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
    TIME_AGO,
    TOKENS,
    TOKENS_PER_SECOND,
    Column,
    Key,
    Panel,
    Query,
    Steps,
    comparison,
    figure,
    grid,
    lines,
    state_mappings,
)
from boards.kit.preemptions import preemptions
from boards.kit.texts import Texts
from boards.kit.thresholds import number


UID = "vllm-watch-capacity"

_BAND_FROM = 0.7
"""Of the sustained maximum: a server that runs below it has room, and one above `demand_ratio` has none for a rise."""

_DEMAND: Steps = [(_BAND_FROM, palette.GOOD), (number("demand_ratio"), palette.WARNING), (1, palette.BAD)]
_SOME_LEFT: Steps = [(1, palette.PLAIN)]
_SOON: Steps = [(0, palette.WARNING), (number("exhaustion_ahead_seconds"), palette.PLAIN)]
"""Without a trend there is no colour of an alarm."""

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_RECENT = "10m"
"""The requests that finished in this time show what requests are like now."""

_TREND = "10m"
"""The time over which VllmKvCacheExhaustionAhead takes the trend of the KV cache."""

_RUNNING = promql.of_engine("requests_running")
_USAGE = promql.of_engine("kv_cache_usage_ratio")
_CAPACITY = promql.of_engine("kv_cache_capacity_tokens")
_DONE = promql.recorded("tokens_per_second:avg5m")
_MOST = promql.recorded("tokens_per_second:sustained_max")
_SHARE = promql.recorded("demand_ratio")
_PLACES = f"{promql.of_engine('max_running_requests')} - {_RUNNING}"
_FREE = f"{_CAPACITY} * (1 - {_USAGE})"


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "capacity")
    return board(
        t,
        UID,
        variables.usual(t),
        [
            Row(t.row("left"), [*_figures(t), _room(t)]),
            Row(t.row("demand"), [_demand(t), _throughput(t), _gain(t)]),
            Row(t.row("shortage"), [_kv_cache(t), _places(t), _queue_time(t), preemptions(t, several=True)]),
            Row(t.row("started_with"), [_shape(t), _limits(t)]),
        ],
    )


def _figures(t: Texts) -> list[Panel]:
    """Return what is worst among the chosen servers, each with the server's name: no number is of two servers."""
    return [*_demand_figures(t), *_room_figures(t), *_shortage_figures(t)]


def _demand_figures(t: Texts) -> list[Panel]:
    return [
        figure(
            t.panel("demand_now"),
            RATIO,
            _named("topk", promql.per_server(_SHARE, "max")),
            width=4,
            steps=_DEMAND,
            decimals=0,
            runbooks=runbooks(t, "VllmDemandNearMaximum"),
        ),
        figure(t.panel("most_now"), TOKENS_PER_SECOND, _named("bottomk", _most_of_server()), width=4, decimals=0),
    ]


def _room_figures(t: Texts) -> list[Panel]:
    return [
        figure(
            t.panel("places_now"),
            TOKENS,
            _named("bottomk", promql.per_server(_PLACES)),
            width=4,
            steps=_SOME_LEFT,
            below=palette.WARNING,
            decimals=0,
            runbooks=runbooks(t, "VllmBatchLimitReached"),
        ),
        figure(
            t.panel("fit_now"),
            TOKENS,
            _named("bottomk", _fitting()),
            width=4,
            steps=_SOME_LEFT,
            below=palette.WARNING,
            decimals=0,
            runbooks=runbooks(t, "VllmKvCacheSaturated"),
        ),
    ]


def _shortage_figures(t: Texts) -> list[Panel]:
    waited = promql.answering(promql.quantile(0.95, "queue_time_seconds"))
    below = promql.answering(promql.quantile_below(0.95, "queue_time_seconds"))
    return [
        figure(
            t.panel("full_in"),
            SECONDS,
            _named("bottomk", promql.per_server(_full_in(), "min")),
            width=4,
            steps=_SOON[1:],
            below=palette.WARNING,
            decimals=0,
            runbooks=runbooks(t, "VllmKvCacheExhaustionAhead"),
        ),
        figure(
            t.panel("wait_now"),
            SECONDS,
            _named("topk", waited),
            Query(f"topk(1, {below}) unless on () {waited}", f"{{{{server}}}} {t.name('below')}"),
            width=4,
            steps=[(number("queue_wait_seconds"), palette.BAD)],
            below=palette.GOOD,
            runbooks=runbooks(t, "VllmCapacityExhausted"),
        ),
    ]


def _named(how: str, expr: str) -> Query:
    return Query(f"{how}(1, {expr})", "{{server}}", several=True)


def _most_of_server() -> str:
    """Return the sum of its engines' maxima where each of them has one: part of a sum is no maximum."""
    return (
        f"({promql.per_server(_MOST)} unless {promql.per_server(_MOST, 'count')} < {promql.per_server(_DONE, 'count')})"
    )


def _fitting() -> str:
    """Return how many requests of the recent mean length the free part of a server's KV cache holds."""
    length = " + ".join(f"({promql.mean(f'request_{kind}_tokens', _RECENT)})" for kind in ("prompt", "generation"))
    return f"{promql.per_server(_FREE)} / ({length})"


def _trending() -> str:
    """Return the conditions of VllmKvCacheExhaustionAhead under which the KV cache has a trend."""
    share = promql.recorded("kv_cache_usage_ratio:avg1m")
    return (
        f"{share} > {number('exhaustion_from_ratio'):g} and {share} <= {number('kv_full_ratio'):g}"
        f" and avg_over_time({_USAGE}[5m]) > {number('exhaustion_growth'):g} * avg_over_time({_USAGE}[5m] offset 5m)"
    )


def _full_in() -> str:
    """Return seconds until an engine's KV cache is full, by the line that the alert looks along."""
    left = f"1 - predict_linear({_USAGE}[{_TREND}], 0)"
    return f"clamp_min(({left}) / (deriv({_USAGE}[{_TREND}]) > 0), 0) and {_trending()}"


def _room(t: Texts) -> Panel:
    batch = f"{_RUNNING} / {promql.of_engine('max_running_requests')}"
    return grid(
        t.panel("room"),
        engines.keys(t, server.UID),
        [
            Column(cell(_DONE), t.name("mean_5m"), TOKENS_PER_SECOND, decimals=0, width=110),
            Column(cell(_MOST), t.name("most"), TOKENS_PER_SECOND, decimals=0, width=120),
            _filled(_SHARE, t.name("demand"), _DEMAND),
            _filled(batch, t.name("batch"), ()),
            Column(cell(_PLACES), t.name("places"), TOKENS, decimals=0, width=90),
            _filled(_USAGE, t.name("usage"), [(number("kv_full_ratio"), palette.BAD)]),
            Column(cell(_FREE), t.name("free"), TOKENS, decimals=0, width=120),
            Column(cell(_full_in()), t.name("full_in"), SECONDS, steps=_SOON, below=palette.GREY, decimals=0, width=95),
        ],
        sort_by=[(t.name("demand"), True)],
        height=6,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _filled(ratio: str, name: str, steps: Steps) -> Column:
    return Column(cell(ratio), name, RATIO, steps=steps, decimals=0, gauge=True, most=1, width=115)


def _demand(t: Texts) -> Panel:
    return lines(
        t.panel("demand"),
        RATIO,
        [Query(_SHARE, "{{server}} {{engine}}", palette.SKY, several=True)],
        bounds=_DEMAND,
        soft_most=1,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _throughput(t: Texts) -> Panel:
    present = " + ".join(
        promql.per_server(promql.of_engine(f"{kind}_tokens_per_second")) for kind in ("prompt", "generation")
    )
    return lines(
        t.panel("throughput"),
        TOKENS_PER_SECOND,
        [
            Query(present, f"{{{{server}}}} {t.name('present')}", palette.GREY),
            Query(promql.per_server(_DONE), f"{{{{server}}}} {t.name('mean_5m')}", palette.GREEN),
            Query(_most_of_server(), f"{{{{server}}}} {t.name('sustained')}", palette.LIMIT, limit=True),
        ],
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _gain(t: Texts) -> Panel:
    """Return what an engine generates with few and with many requests in its batch."""
    sizes = [*((low, high - 1) for low, high in pairwise(_BATCHES)), (_BATCHES[-1], None)]
    return comparison(
        t.panel("gain"),
        TOKENS_PER_SECOND,
        [Query(_with_batch(low, high), f"{{{{server}}}} {_range(low, high)}", several=True) for low, high in sizes],
        runbooks=runbooks(t, "VllmBatchLimitReached"),
    )


def _with_batch(low: int, high: int | None) -> str:
    generated = promql.of_engine("generation_tokens_per_second")
    chosen = f"{_RUNNING} >= {low}" + (f" <= {high}" if high is not None else "")
    mean = f"avg_over_time(({generated} and {chosen})[$__range:$__interval])"
    return promql.per_server(mean, "avg")


def _range(low: int, high: int | None) -> str:
    return f"{low}+" if high is None else f"{low}" if low == high else f"{low}-{high}"


def _kv_cache(t: Texts) -> Panel:
    ahead = f"clamp(predict_linear({_USAGE}[{_TREND}], {number('exhaustion_ahead_seconds'):g}), 0, 1) and {_trending()}"
    return lines(
        t.panel("kv_cache"),
        RATIO,
        [
            Query(promql.per_server(_USAGE, "max"), f"{{{{server}}}} {t.name('present')}", palette.SKY),
            Query(promql.per_server(ahead, "max"), f"{{{{server}}}} {t.name('ahead')}", palette.ORANGE, limit=True),
        ],
        width=6,
        most=1,
        bounds=[(number("kv_full_ratio"), palette.BAD)],
        runbooks=runbooks(t, "VllmKvCacheExhaustionAhead", "VllmKvCacheSaturated"),
    )


def _places(t: Texts) -> Panel:
    """Return how many more requests fit: the smaller of two limits, in its colour."""
    places, fitting = f"({promql.per_server(_PLACES)})", f"({_fitting()})"
    return lines(
        t.panel("places"),
        REQUESTS,
        [
            Query(_least(places, fitting), f"{{{{server}}}} {t.name('by_batch')}", palette.PURPLE),
            Query(_least(fitting, places), f"{{{{server}}}} {t.name('by_cache')}", palette.SKY),
        ],
        width=6,
        runbooks=runbooks(t, "VllmBatchLimitReached", "VllmKvCacheSaturated"),
    )


def _least(one: str, other: str) -> str:
    """Return one of two quantities where it is not the larger one, or the other is not known."""
    return f"{one} <= {other} or {one} unless {other}"


def _queue_time(t: Texts) -> Panel:
    return lines(
        t.panel("queue_time"),
        SECONDS,
        [
            Query(promql.quantile(0.95, "queue_time_seconds"), "{{server}} p95", palette.ORANGE, several=True),
            Query(promql.mean("queue_time_seconds"), f"{{{{server}}}} {t.name('mean')}", palette.GREEN, several=True),
            Query(
                promql.quantile_below(0.95, "queue_time_seconds"),
                f"{{{{server}}}} {t.name('p95_below')}",
                palette.GREY,
                limit=True,
            ),
        ],
        width=6,
        logarithmic=True,
        bounds=[(number("queue_wait_seconds"), palette.BAD)],
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _shape(t: Texts) -> Panel:
    return grid(
        t.panel("shape"),
        [
            *engines.keys(t, server.UID),
            Key("model_name", t.name("model")),
            Key("version", t.name("version"), width=75),
            Key("engine_generation", t.name("generation"), width=90),
        ],
        [
            Column(_state_with_version(), t.name("state"), mappings=state_mappings(t), width=95),
            Column(cell(_on_engines("server_start_timestamp_seconds", 1000)), t.name("started"), TIME_AGO, width=110),
            Column(cell(promql.of_engine("model_load_seconds")), t.name("load"), SECONDS, width=100),
            Column(cell(promql.of_engine("tensor_parallel_size")), "TP", width=55),
            Column(cell(promql.of_engine("data_parallel_size")), "DP", width=55),
            Column(cell(promql.of_engine("num_speculative_tokens")), t.name("drafts"), width=100),
        ],
        sort_by=[(t.name("server"), False)],
        height=5,
    )


def _limits(t: Texts) -> Panel:
    return grid(
        t.panel("limits"),
        engines.keys(t, server.UID),
        [
            Column(cell(promql.of_engine("max_model_len_tokens")), t.name("max_len"), TOKENS),
            Column(cell(promql.of_engine("max_running_requests")), t.name("max_seqs"), TOKENS),
            Column(cell(_CAPACITY), t.name("kv_tokens"), TOKENS),
            Column(cell(promql.of_engine("max_concurrency")), t.name("concurrency"), decimals=1),
            Column(cell(_on_engines("slo_time_to_first_token_seconds")), t.name("slo_ttft"), SECONDS),
            Column(cell(_on_engines("slo_time_per_output_token_seconds")), t.name("slo_tpot"), SECONDS),
        ],
        sort_by=[(t.name("server"), False)],
        height=5,
    )


def _state_with_version() -> str:
    """Return each engine's state, with what the server said of itself last as labels: before a restart it was else."""
    said = ("model_name", "version", "engine_generation")
    # Loaded from files, series have no mark of their end, and what was said before is there for five minutes more.
    last = f"topk by (instance, server) (1, timestamp({promql.of_model('server_info')})) > bool 0"
    info = promql.only(last, "instance", "server", *said)
    return f"{cell(promql.state())} * on (instance, server) group_left ({', '.join(said)}) {info}"


def _on_engines(name: str, factor: int = 1) -> str:
    """Return a server's quantity, so many times, on each of its engines, for their rows."""
    engines_of_it = f"max without (state) ({promql.of_engine('engine_state')}) * 0"
    return f"{engines_of_it} + ignoring (model_name, engine) group_left () {promql.of_server(name)} * {factor}"
