# SPDX-License-Identifier: Apache-2.0
"""How much more a server can take, until when, and with what limits it was started."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from boards import server
from boards.kit import batches, context, energy, engines, flags, palette, promql, room, variables, work
from boards.kit.board import Row, board
from boards.kit.engines import cell
from boards.kit.legends import ENGINE
from boards.kit.links import runbooks, to_dashboard
from boards.kit.panels import (
    LATENCY,
    RATIO,
    RECENT,
    REQUESTS,
    SECONDS,
    TOKENS,
    TOKENS_PER_SECOND,
    Column,
    Key,
    Panel,
    Query,
    Steps,
    figure,
    grid,
    lines,
    shares_of_time,
    state_mappings,
    value_mapping,
)
from boards.kit.promql import Quotient
from boards.kit.texts import Texts
from boards.kit.thresholds import number
from vllm_watch.daemon.catalog.codes import CAPACITY_BASES, CAPACITY_UNKNOWN


UID = "vllm-watch-capacity"

_BAND_FROM = 0.7
"""Of the sustained maximum: a server that runs below it has room, and one above `demand_ratio` has none for a rise."""

_DEMAND: Steps = [(_BAND_FROM, palette.GOOD), (number("demand_ratio"), palette.WARNING), (1, palette.BAD)]
_NONE_LEFT: Steps = [(0, palette.BAD), (1, palette.TEXT)]
_SOON: Steps = [(0, palette.WARNING), (number("exhaustion_ahead_seconds"), palette.TEXT)]
"""Without a trend there is no colour of an alarm."""

_OF_MODEL = "instance, model_name"

_BY_BATCH = f"instance, server, {batches.LABEL}"

_SAMPLED = "15s"
"""How often the mean size of the batch is looked at for its shares of the time, and of no less time it is the mean."""

_FIRM_SECONDS = 30
"""What an engine generated with so many requests is by chance where it ran them for less time."""

_BY_SOURCE = "prompt_tokens_by_source_total"

_PROMPT_SOURCES = {
    "local_compute": palette.SKY,
    "local_cache_hit": palette.GREEN,
    "external_kv_transfer": palette.ORANGE,
}
"""vLLM's names of where prompt tokens come from, and their colours."""

_REPLICAS = {"servers": 80, "for_week": 100, "for_demand": 80}
"""Pixels of the columns of counts: what they leave has the model's name, at 1280 px, too."""

_TREND = "10m"
"""The time over which the trend of the KV cache is taken."""

_RUNNING = promql.of_engine("requests_running")
_USAGE = promql.of_engine("kv_cache_usage_ratio")
_USAGE_MEAN = promql.recorded("kv_cache_usage_ratio:avg1m")
_CAPACITY = promql.of_engine("kv_cache_capacity_tokens")
_GENERATED = promql.of_engine("generation_tokens_per_second")
_DONE = promql.recorded("tokens_per_second:avg5m")
_THERE = f"and ignoring (state) {promql.of_engine('engine_state')}"
"""Only of an engine that is still there: what is recorded of days outlives a model and a number of engines."""

_BEST = f"max without (basis) ({promql.recorded('capacity_tokens_per_second:best_with_prompts')})"
_MOST = f"({_BEST} or {promql.recorded('tokens_per_second:sustained_max')} {_THERE})"
"""The capacity of each engine in all tokens; without one, the highest throughput that it has sustained."""

_LOWER = f"({_BEST} * {promql.recorded('capacity_lower_ratio')})"
_PROVISIONAL = f"({promql.recorded('tokens_per_second:provisional_max')} {_THERE})"
_SATURATED = promql.of_engine("engine_state", 'state="saturated"') + " == 1"


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "capacity")
    return board(
        t,
        UID,
        [*variables.usual(t), variables.planned(t)],
        [
            Row(t.row("left"), [*_room_figures(t), *_demand_figures(t), _room(t)]),
            Row(t.row("shortage"), [_places(t), _kv_cache(t)]),
            Row(t.row("demand"), [_demand(t), _throughput(t), _replicas(t), _estimates(t)]),
            Row(t.row("batch"), [_gain(t), _batch_over_time(t)]),
            Row(t.row("requests"), [_prompt_sources(t), _context(t)]),
            Row(t.row("work"), work.panels(t), collapsed=True),
            Row(t.row("energy"), [_energy(t)], collapsed=True),
            Row(
                t.row("started_with"),
                [_shape(t), _limits(t), _changes(t), flags.table(t, "flags", flags.known())],
            ),
        ],
    )


def _room_figures(t: Texts) -> list[Panel]:
    """Return what is worst among the chosen servers, each with the server's name: no number is of two servers."""
    return [_places_now(t), _full_in_now(t), _wait_now(t)]


def _places_now(t: Texts) -> Panel:
    fewest = f"bottomk(1, {promql.per_server(room.free_places())})"
    return figure(
        t.panel("places_now"),
        REQUESTS,
        Query(f"{fewest} and {room.is_limited_by_batch()}", f"{t.name('fewest')}, {t.name('by_batch')}"),
        Query(f"{fewest} unless {room.is_limited_by_batch()}", f"{t.name('fewest')}, {t.name('by_cache')}"),
        width=5,
        steps=_NONE_LEFT,
        decimals=0,
        one_at_a_time=True,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _full_in_now(t: Texts) -> Panel:
    return figure(
        t.panel("full_in"),
        SECONDS,
        Query(f"bottomk(1, {promql.per_server(_full_in(), 'min')})", t.name("first"), several=True),
        width=5,
        steps=_SOON[1:],
        below=palette.WARNING,
        decimals=0,
        mappings=[_full(t)],
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _wait_now(t: Texts) -> Panel:
    waited = promql.answering(promql.quantile(0.95, "queue_time_seconds"))
    below = promql.answering(promql.quantile_below(0.95, "queue_time_seconds"))
    slowest = t.name("slowest")
    return figure(
        t.panel("wait_now"),
        LATENCY,
        Query(f"topk(1, {waited})", slowest),
        Query(f"topk(1, {below}) unless on () {waited}", f"{slowest}, {t.name('below')}"),
        width=4,
        steps=[(number("queue_wait_seconds"), palette.BAD)],
        below=palette.TEXT,
        points=RECENT,
        one_at_a_time=True,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _demand_figures(t: Texts) -> list[Panel]:
    busiest = f"topk(1, {promql.answering(promql.per_server(_demand_ratio(), 'max'))})"
    known = promql.per_server(promql.recorded("demand_ratio"), "count")
    of_busiest, of_least = t.name("busiest"), t.name("lowest")
    lowest = f"bottomk(1, {_most_of_server()} or {_provisional_of_server()})"
    return [
        figure(
            t.panel("demand_now"),
            RATIO,
            Query(f"{busiest} and {known}", of_busiest),
            Query(f"{busiest} unless {known}", f"{of_busiest}, {t.name('provisional')}"),
            width=5,
            steps=_DEMAND,
            decimals=0,
            one_at_a_time=True,
            runbooks=runbooks(t, "VllmDemandNearMaximum"),
        ),
        figure(
            t.panel("most_now"),
            TOKENS_PER_SECOND,
            Query(f"{lowest} and {_most_of_server()}", of_least),
            Query(f"{lowest} unless {_most_of_server()}", f"{of_least}, {t.name('provisional')}"),
            width=5,
            decimals=0,
            one_at_a_time=True,
        ),
    ]


def _demand_ratio() -> str:
    """
    Return each engine's demand divided by the lower bound of its capacity, or by its maximum until one is known.

    Of an engine that is saturated it is at least 1: requests wait, so more is asked for than is served.
    """
    provisional = f"{promql.recorded('tokens_per_second:avg1m')} / ({_PROVISIONAL} > 0)"
    served = f"({promql.recorded('demand_ratio:of_lower')} or {provisional})"
    return f"(clamp_min({served}, 1) and ignoring (state) {_SATURATED} or clamp_min({served}, 0))"


def _most_of_server() -> str:
    """Return the sum of its engines' maxima where each of them has one: part of a sum is no maximum."""
    return promql.whole(_MOST, _DONE)


def _provisional_of_server() -> str:
    """Return the sum of its engines' maxima of a minute, where each has one and some have no sustained one yet."""
    return f"({promql.whole(f'({_MOST} or {_PROVISIONAL})', _DONE)} unless {_most_of_server()})"


def _full(t: Texts) -> models.ValueMapping:
    return value_mapping({"0": (t.name("full"), palette.BAD)})


def _full_in() -> str:
    """
    Return seconds until an engine's KV cache is full, by its trend; 0 where it is full.

    Full is what VllmCapacityExhausted calls full; one that drains is not, although its mean of a minute still is. One
    that is full now and has no trend is full, too: the mean of a minute is late.
    """
    left = f"1 - predict_linear({_USAGE}[{_TREND}], 0)"
    trend = f"clamp_min(({left}) / (deriv({_USAGE}[{_TREND}]) > 0), 0) and {_trending()}"
    most = number("kv_full_ratio")
    full = f"{_USAGE_MEAN} > {most:g} and {_USAGE} >= {number('kv_spare_ratio'):g}"
    return f"(({full}) * 0 or {trend} or ({_USAGE} >= {most:g}) * 0)"


def _trending() -> str:
    """Return the conditions under which the KV cache has a trend: it is used, not yet full, and grows."""
    return (
        f"{_USAGE_MEAN} > {number('exhaustion_from_ratio'):g} and {_USAGE_MEAN} <= {number('kv_full_ratio'):g}"
        f" and avg_over_time({_USAGE}[5m]) > {number('exhaustion_growth'):g} * avg_over_time({_USAGE}[5m] offset 5m)"
    )


def _room(t: Texts) -> Panel:
    running = f"{_RUNNING} / {promql.of_engine('max_running_requests')}"
    full_in = Column(
        cell(_full_in()),
        t.name("full_in"),
        SECONDS,
        steps=_SOON,
        below=palette.GREY,
        decimals=0,
        width=125,
        mappings=[_full(t)],
    )
    return grid(
        t.panel("room"),
        engines.keys(t, server.UID),
        [
            Column(cell(promql.state()), t.name("state"), mappings=state_mappings(t), width=90),
            Column(cell(room.free_places()), t.name("places"), REQUESTS, steps=_NONE_LEFT, decimals=0, width=115),
            _filled(running, t.name("running"), ()),
            _filled(_USAGE, t.name("usage"), [(number("kv_full_ratio"), palette.BAD)]),
            full_in,
            _filled(promql.answering(_demand_ratio(), "instance, server, engine"), t.name("demand"), _DEMAND),
            Column(cell(_MOST), t.name("most"), TOKENS_PER_SECOND, decimals=0, width=115),
            Column(
                cell(f"{_PROVISIONAL} unless {_MOST}"),
                t.name("provisional_most"),
                TOKENS_PER_SECOND,
                decimals=0,
                width=125,
            ),
        ],
        sort_by=[(t.name("places"), False)],
        height=8,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _filled(ratio: str, name: str, steps: Steps) -> Column:
    return Column(cell(ratio), name, RATIO, steps=steps, decimals=0, gauge=True, most=1)


def _places(t: Texts) -> Panel:
    """Return how many more requests fit, in the colour of what limits them."""
    places = promql.per_server(room.free_places())
    return lines(
        t.panel("places"),
        REQUESTS,
        [
            Query(f"{places} and {room.is_limited_by_batch()}", t.of_server("by_batch"), palette.PURPLE),
            Query(f"{places} unless {room.is_limited_by_batch()}", t.of_server("by_cache"), palette.SKY),
        ],
        width=12,
        stepped=True,
        runbooks=[
            *runbooks(t, "VllmCapacityExhausted"),
            to_dashboard(t.name("open_server"), server.UID),
        ],
    )


def _kv_cache(t: Texts) -> Panel:
    ahead = f"clamp(predict_linear({_USAGE}[{_TREND}], {number('exhaustion_ahead_seconds'):g}), 0, 1) and {_trending()}"
    return lines(
        t.panel("kv_cache"),
        RATIO,
        [
            Query(promql.per_server(_USAGE, "max"), t.of_server("present"), several=True),
            Query(promql.per_server(ahead, "max"), t.of_server("ahead"), palette.ORANGE, limit=True),
        ],
        width=12,
        most=1,
        bounds=[(number("kv_full_ratio"), palette.BAD)],
        runbooks=[
            *runbooks(t, "VllmCapacityExhausted"),
            to_dashboard(t.name("open_server"), server.UID),
        ],
    )


def _demand(t: Texts) -> Panel:
    by_capacity = promql.recorded("demand_ratio")
    known = f"{_demand_ratio()} and {by_capacity}"
    provisional = f"{_demand_ratio()} unless {by_capacity}"
    return lines(
        t.panel("demand"),
        RATIO,
        [
            Query(known, f"{{{{server}}}}${{{ENGINE}}}", palette.SKY, several=True),
            Query(provisional, f"{{{{server}}}} {t.name('provisional')}${{{ENGINE}}}", palette.GREY, several=True),
        ],
        bounds=_DEMAND,
        soft_most=1.1,
        width=7,
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
            Query(present, t.of_server("present"), palette.GREY),
            Query(promql.per_server(_DONE), t.of_server("mean_5m"), several=True),
            Query(_most_of_server(), t.of_server("capacity"), palette.LIMIT, limit=True),
            Query(promql.whole(_LOWER, _DONE), t.of_server("lower_bound"), palette.PURPLE, limit=True),
            Query(_provisional_of_server(), t.of_server("provisional"), palette.ORANGE, limit=True),
        ],
        width=7,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _estimates(t: Texts) -> Panel:
    """Return what each engine can carry on each basis, or why that is not known."""
    estimate, lower, upper, prompts = (
        promql.of_engine(f"capacity_estimate_{each}tokens_per_second") for each in ("", "lower_", "upper_", "prompt_")
    )
    columns = ((estimate, "estimate", 125), (lower, "lower", 90), (upper, "upper", 90), (prompts, "prompts", 115))
    unknown = f'label_replace({promql.of_engine("capacity_unknown_info")}, "basis", "$1", "reason", "(.+)")'
    return grid(
        t.panel("estimates"),
        [*engines.keys(t, server.UID), Key("basis", t.name("basis"), mappings=[_bases(t)])],
        [
            *(
                Column(cell(expr, "basis"), t.name(name), TOKENS_PER_SECOND, decimals=0, width=width)
                for expr, name, width in columns
            ),
            Column(
                cell(f"{estimate} / ignoring (basis) group_left () ({_gpus()})", "basis"),
                t.name("per_gpu"),
                TOKENS_PER_SECOND,
                decimals=0,
                width=90,
            ),
            Column(cell(unknown, "basis"), t.name("unknown"), hidden=True),
        ],
        sort_by=[(t.name("server"), False)],
        height=5,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _gpus() -> str:
    """Return how many GPUs an engine has; a pipeline is an exception, and nothing says so where there is none."""
    tensor, pipeline = (promql.of_engine(f"{kind}_parallel_size") for kind in ("tensor", "pipeline"))
    return f"{tensor} * ({pipeline} or {tensor} * 0 + 1)"


def _bases(t: Texts) -> models.ValueMapping:
    """Return what the bases of a capacity are called, and the reasons why there is none."""
    known = {basis: (t.get(f"bases.{basis}"), palette.TEXT) for basis in CAPACITY_BASES}
    return value_mapping(known | {why: (t.get(f"unknown.{why}"), palette.GREY) for why in CAPACITY_UNKNOWN})


def _replicas(t: Texts) -> Panel:
    """Return how many servers of each model there are, and how many a demand needs."""
    running = f"count by ({_OF_MODEL}, server) ({_RUNNING})"
    of_server = f"avg by ({_OF_MODEL}) ({running})"
    planned = f"$planned / ({number('plan_ratio'):g} * avg by ({_OF_MODEL}) ({_LOWER}))"
    columns = {
        "servers": f"count by ({_OF_MODEL}) ({running})",
        "for_week": f"ceil({_week_peak()} / {of_server})",
        "for_demand": f"ceil({planned} / {of_server})",
    }
    return grid(
        t.panel("replicas"),
        [Key("model_name", t.name("model")), Key("instance", t.name("daemon"), width=110)],
        [Column(expr, t.name(name), decimals=0, width=_REPLICAS[name]) for name, expr in columns.items()],
        sort_by=[(t.name("model"), False)],
        width=10,
        runbooks=runbooks(t, "VllmDemandNearMaximum"),
    )


def _week_peak() -> str:
    """Return how many engines the week's peak of a model needs, where that of each engine is known."""
    needed = promql.recorded("replicas_needed:week_peak")
    known, there = (f"count by ({_OF_MODEL}) ({each})" for each in (needed, _RUNNING))
    return f"(sum by ({_OF_MODEL}) ({needed}) unless {known} < {there})"


def _gain(t: Texts) -> Panel:
    """Return what an engine generates with few and with many running requests, and what its users wait then."""
    generated = Quotient(_by_batch("sum", _GENERATED), _by_batch("count", _GENERATED))
    return grid(
        t.panel("gain"),
        [
            Key("server", t.name("server"), width=100),
            Key("instance", t.name("daemon"), width=115),
            Key(batches.LABEL, t.name("running"), width=80),
        ],
        [
            # The first query has the rows in its order.
            Column(f"sort({_fewest_by_batch()})", t.name("at_least"), hidden=True),
            Column(generated.in_range, t.name("generated"), TOKENS_PER_SECOND, decimals=0, gauge=True),
            *(
                Column(_latency_by_batch(histogram).in_range, t.name(name), unit, gauge=True)
                for histogram, name, unit in (
                    ("inter_token_latency_seconds", "itl", SECONDS),
                    ("time_to_first_token_seconds", "ttft", LATENCY),
                )
            ),
            Column(
                f"sum_over_time(({generated.whole})[$__range:$__interval]) * $__interval_ms / 1000",
                t.name("seen_for"),
                SECONDS,
                steps=[(_FIRM_SECONDS, palette.TEXT)],
                below=palette.WARNING,
                decimals=1,
                width=78,
            ),
        ],
        sort_by=[(t.name("server"), False), (t.name("at_least"), False)],
        width=15,
        height=9,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _by_batch(how: str, expr: str) -> str:
    """Return what a function makes of a quantity of a server's engines that run about as many requests."""
    return f"{how} by ({_BY_BATCH}) ({batches.by_class(expr)})"


def _fewest_by_batch() -> str:
    return f"min_over_time((min by ({_BY_BATCH}) ({batches.running()}))[$__range:$__interval])"


def _latency_by_batch(histogram: str) -> Quotient:
    """Return the mean of what was observed while about as many requests ran."""
    of_all, observed = (
        f"({series} - ({series} offset $__interval)) > 0"
        for series in (promql.of_engine(f"{histogram}_{part}") for part in ("sum", "count"))
    )
    return Quotient(_by_batch("sum", of_all), _by_batch("sum", observed))


def _batch_over_time(t: Texts) -> Panel:
    """Return how much of the time engines ran how many requests."""
    with_so_many, watched = (
        f"count_over_time(({each})[{promql.WINDOW}:{_SAMPLED}])" for each in (batches.classes(), _RUNNING)
    )
    share = f"sum by ({batches.LABEL}) ({with_so_many}) / ignoring ({batches.LABEL}) group_left () sum({watched})"
    return shares_of_time(
        t.panel("batch_over_time"),
        REQUESTS,
        Query(share, f"{{{{{batches.LABEL}}}}}"),
        least=_SAMPLED,
        width=9,
        height=9,
    )


def _prompt_sources(t: Texts) -> Panel:
    """Return where the prompt tokens of all chosen servers came from, with those of servers that do not say it."""
    every = promql.per_server(promql.rate(promql.of_engine("prompt_tokens_total")))
    said = f"sum without (model_name, engine, source) ({promql.of_engine(_BY_SOURCE)})"
    return lines(
        t.panel("prompt_sources"),
        TOKENS_PER_SECOND,
        [
            *(Query(_from(source), t.name(source), color) for source, color in _PROMPT_SOURCES.items()),
            Query(f"sum({every} unless {said})", t.name("unknown_source"), palette.GREY),
        ],
        width=10,
        stacked=True,
        runbooks=runbooks(t, "VllmCacheCollapseSlows"),
    )


def _from(source: str) -> str:
    """Return the tokens from a source that gave any in the time range."""
    series = promql.of_engine(_BY_SOURCE, f'source="{source}"')
    return f"sum({promql.rate(series)}) and sum({promql.over_range(series, 'increase')}) > 0"


def _context(t: Texts) -> Panel:
    """Return how much of the longest request is used, and how many requests come near it."""
    return grid(
        t.panel("context"),
        [Key("server", t.name("server")), Key("instance", t.name("daemon"), width=110)],
        [
            Column(context.longest(), t.name("max_len"), TOKENS, width=120),
            Column(context.used(), t.name("used"), RATIO, decimals=0, gauge=True, most=1, width=95),
            Column(context.near(), t.name("near"), TOKENS, width=80),
            Column(context.at_least(), t.name("share_at_least"), RATIO, decimals=1, width=105),
            Column(context.at_most(), t.name("share_at_most"), RATIO, decimals=1, width=105),
        ],
        sort_by=[(t.name("server"), False)],
        width=14,
    )


def _energy(t: Texts) -> Panel:
    """Return what each server's tokens took in the time range, in energy and in money."""
    watts = f"avg_over_time({energy.recorded_watts()}[$__range])"
    idle = f"avg_over_time({energy.recorded_idle_watts()}[$__range])"
    columns = (
        (watts, "watts", energy.WATTS),
        (idle, "idle_watts", energy.WATTS),
        (energy.joules_in_range("generation"), "joules", energy.JOULES),
        (energy.tokens_per_joule_in_range(), "per_joule", energy.PER_JOULE),
        (energy.cost_in_range("generation"), "cost_output", energy.MONEY),
        (energy.cost_in_range("prompt"), "cost_prompt", energy.MONEY),
        (energy.cost_in_range("prompt", "generation"), "cost_total", energy.MONEY),
    )
    return grid(
        t.panel("energy"),
        [Key("server", t.name("server")), Key("instance", t.name("daemon"), width=110)],
        [
            Column(promql.only(expr, "instance", "server"), t.name(name), unit, width=110)
            for expr, name, unit in columns
        ],
        sort_by=[(t.name("server"), False)],
        width=24,
        height=5,
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
            Column(
                cell(f"time() - ({_on_engines('server_start_timestamp_seconds')})"),
                t.name("runs_for"),
                SECONDS,
                width=95,
            ),
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
            Column(cell(promql.of_engine("max_running_requests")), t.name("max_seqs"), REQUESTS),
            Column(cell(_CAPACITY), t.name("kv_tokens"), TOKENS),
            Column(cell(promql.of_engine("max_concurrency")), t.name("concurrency"), decimals=1),
            Column(cell(_on_engines("slo_time_to_first_token_seconds")), t.name("slo_ttft"), SECONDS),
            Column(cell(_on_engines("slo_time_per_output_token_seconds")), t.name("slo_tpot"), SECONDS),
        ],
        sort_by=[(t.name("server"), False)],
        height=5,
    )


def _changes(t: Texts) -> Panel:
    """Return what the last start with other flags or another version has changed."""
    ends = [Key(end, t.name(end)) for end in ("from", "to")]
    changed = promql.of_server("server_config_change_timestamp_seconds")
    return grid(
        t.panel("changes"),
        [Key("flag", t.name("flag"), width=240), *ends, Key("server", t.name("server"), width=110)],
        [
            Column(
                f"max by (instance, server, flag, from, to) ({changed}) * 1000",
                t.name("at"),
                "dateTimeAsIso",
                width=160,
            )
        ],
        facts=[Key("instance", t.name("daemon"), width=115)],
        sort_by=[(t.name("at"), True)],
        height=5,
    )


def _state_with_version() -> str:
    """Return each engine's state, with what the server said of itself last as labels: before a restart it was else."""
    said = ("model_name", "version", "engine_generation")
    # Loaded from files, series have no mark of their end, and what was said before is there for five minutes more.
    last = f"topk by (instance, server) (1, timestamp({promql.of_model('server_info')})) > bool 0"
    info = promql.only(last, "instance", "server", *said)
    return f"{cell(promql.state())} * on (instance, server) group_left ({', '.join(said)}) {info}"


def _on_engines(name: str) -> str:
    """Return a server's quantity on each of its engines, for their rows."""
    engines_of_it = f"max without (state) ({promql.of_engine('engine_state')}) * 0"
    return f"{engines_of_it} + ignoring (model_name, engine) group_left () {promql.of_server(name)}"
