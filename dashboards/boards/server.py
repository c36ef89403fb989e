# SPDX-License-Identifier: Apache-2.0
"""One server from top to bottom: what users feel, what the system does, what the engine is short of."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import energy, engines, events, gpus, palette, promql, room, variables
from boards.kit.board import Row, board
from boards.kit.engines import preemptions
from boards.kit.legends import ENGINE
from boards.kit.links import runbooks
from boards.kit.panels import (
    EVENTS,
    LATENCY,
    PER_SECOND,
    RATIO,
    RECENT,
    REQUESTS,
    SECONDS,
    TIMES,
    TOKENS,
    TOKENS_PER_SECOND,
    Column,
    Key,
    Panel,
    Query,
    figure,
    grid,
    lines,
    shares,
    state_mappings,
    states,
)
from boards.kit.texts import Texts
from boards.kit.thresholds import number


UID = "vllm-watch-server"

_SHORT, _USUAL, _LONG = 0.5, 0.95, 0.99

_OF_SERVER = ("instance", "server")
_CLASS = "batch_class"

_BATCH, _BATCH_LIMIT = promql.of_engine("requests_running"), promql.of_engine("max_running_requests")

_THAN_USUAL = ((3, palette.WARNING), (10, palette.BAD))
"""How many times slower than usual users notice: recorded servers keep below 2 until they are short of something."""

_CRASHES = {
    "engine_dead": palette.VERMILLION,
    "worker_died": palette.PURPLE,
    "out_of_memory": palette.ORANGE,
    "nccl_error": palette.BLUE,
}
"""What ends a server; other failures are grey."""

_REJECTED_BECAUSE = {"max_num_queued_reqs": palette.ORANGE, "max_num_queued_tokens": palette.PURPLE}
"""vLLM's names of the limits of its queue, ``--max-num-queued-reqs`` and ``--max-num-queued-tokens``."""


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "server")
    return board(
        t,
        UID,
        variables.usual(t, everything=False),
        [
            Row(t.row("now"), [*_figures(t), *_what_is_watched(t), events.happened(t, height=5)]),
            Row(t.row("users"), [*_request_figures(t), *_users(t)]),
            Row(t.row("system"), [*_system(t)]),
            Row(t.row("shortage"), [*_shortage(t)]),
            Row(t.row("objectives"), [*_objectives(t)], collapsed=True),
            Row(t.row("speed"), [_slower(t), _steps(t)], collapsed=True),
            Row(t.row("gpu"), gpus.panels(t), collapsed=True),
            Row(t.row("energy"), energy.panels(t), collapsed=True),
            Row(t.row("engines"), [*_engines(t)], collapsed=True),
            Row(t.row("distributions"), [*_distributions(t)], collapsed=True),
        ],
        alerts_on=[t.panel(key).title for key in ("state", "ttft", "waiting")],
    )


def _figures(t: Texts) -> list[Panel]:
    """Return what tells at one look whether anything is wrong: the state, what presses, and what users wait for."""
    return [
        figure(
            t.panel("state_now"),
            "none",
            Query(f"max({promql.worst_state()})", t.name("state")),
            mappings=state_mappings(t),
            filled=True,
            width=4,
        ),
        *_pressure(t),
        *_first_token(t),
    ]


def _pressure(t: Texts) -> list[Panel]:
    tokens = " + ".join(f"sum({promql.of_engine(f'{kind}_tokens_per_second')})" for kind in ("prompt", "generation"))
    return [
        figure(
            t.panel("waiting_now"),
            REQUESTS,
            Query(f"sum({promql.of_engine('requests_waiting')})", t.name("waiting")),
            steps=[(1, palette.WARNING)],
            runbooks=runbooks(t, "VllmQueueStanding"),
        ),
        figure(
            t.panel("running_now"),
            REQUESTS,
            Query(f"sum({_BATCH})", t.name("running")),
            Query(
                f"sum({room.free_places()}) unless count({room.free_places()}) < count({_BATCH})",
                t.name("room"),
                steps=[(0, palette.WARNING), (1, palette.TEXT)],
            ),
            decimals=0,
            runbooks=runbooks(t, "VllmCapacityExhausted"),
        ),
        figure(
            t.panel("kv_now"),
            RATIO,
            Query(f"max({promql.of_engine('kv_cache_usage_ratio')})", t.name("fullest")),
            steps=[(number("kv_spare_ratio"), palette.WARNING), (number("kv_full_ratio"), palette.BAD)],
            decimals=0,
            runbooks=runbooks(t, "VllmCapacityExhausted"),
        ),
        figure(t.panel("tokens_now"), TOKENS_PER_SECOND, Query(tokens, t.name("total")), decimals=0),
    ]


def _first_token(t: Texts) -> list[Panel]:
    histogram = "time_to_first_token_seconds"
    objective = promql.of_server(f"slo_{histogram}")
    of_usual = f"{promql.mean(histogram)} / {promql.usual(histogram)} unless on (instance, server) {objective}"
    return [
        _latency_figure(t, "ttft", histogram, LATENCY, width=5),
        figure(
            t.panel("ttft_compared"),
            TIMES,
            Query(
                promql.worst(f"{promql.quantile(_USUAL, histogram)} / {objective}"),
                t.name("of_objective"),
                steps=[(1, palette.BAD)],
            ),
            Query(promql.worst(f"({of_usual})"), t.name("of_usual"), steps=_THAN_USUAL),
            decimals=1,
            points=RECENT,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
    ]


def _latency_figure(t: Texts, name: str, histogram: str, unit: str, *, width: int) -> Panel:
    return figure(
        t.panel(f"{name}_p95"),
        unit,
        Query(_p95_or_below(histogram), "p95 {{_is}}"),
        Query(promql.worst(promql.mean(histogram)), t.name("mean")),
        width=width,
        points=RECENT,
    )


def _what_is_watched(t: Texts) -> list[Panel]:
    return [
        states(
            t.panel("state"),
            t,
            Query(promql.state(), f"{{{{server}}}} {t.name('engine')} {{{{engine}}}}"),
            width=12,
            height=8,
        ),
        events.firing(t, width=12, height=8),
        _strip(t),
    ]


def _strip(t: Texts) -> Panel:
    """Return what a server is and may do, on one line."""
    keys = ("instance", "server", "model_name")
    return grid(
        t.panel("strip"),
        [Key("server", t.name("server")), Key("model_name", t.name("model"))],
        [
            engines.state_for(_on_models(engines.in_state()), t),
            Column(_on_models(promql.since_token()), t.name("last_token"), SECONDS, decimals=1),
            Column(_runs_for(), t.name("runs_for"), SECONDS, decimals=1),
            *(
                Column(promql.only(promql.of_engine(gauge), *keys), t.name(name), TOKENS)
                for gauge, name in (
                    ("max_model_len_tokens", "max_len"),
                    ("max_running_requests", "max_seqs"),
                    ("kv_cache_capacity_tokens", "kv_tokens"),
                )
            ),
            *(
                Column(_on_models(promql.of_server(objective)), t.name(name), SECONDS)
                for objective, name in (
                    ("slo_time_to_first_token_seconds", "slo_ttft"),
                    ("slo_time_per_output_token_seconds", "slo_tpot"),
                )
            ),
            Column(promql.only(promql.of_model("server_info"), *keys, "version"), t.name("info"), hidden=True),
        ],
        facts=[Key("version", t.name("version")), Key("instance", t.name("daemon"))],
        sort_by=[(t.name("server"), False)],
        height=4,
    )


def _runs_for() -> str:
    return f"time() - ({_on_models(promql.of_server('server_start_timestamp_seconds'))})"


def _on_models(expr: str) -> str:
    """Return a quantity of servers for each of their models, as the strip has a line for each."""
    models_of_it = promql.only(promql.of_engine("engine_state"), "instance", "server", "model_name")
    of_server = promql.only(expr, *_OF_SERVER)
    return f"{models_of_it} * 0 + on (instance, server) group_left () {of_server}"


def _request_figures(t: Texts) -> list[Panel]:
    answered = promql.of_server("http_requests_total", promql.COMPLETIONS)
    answered_well = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"2.."')
    return [
        figure(t.panel("qps"), PER_SECOND, Query(f"sum({_finished()})", t.name("finished")), width=5, points=RECENT),
        figure(
            t.panel("success"),
            RATIO,
            Query(f"sum({promql.rate(answered_well)}) / (sum({promql.rate(answered)}) > 0)", t.name("success")),
            steps=[(0, palette.BAD), (0.99, palette.WARNING), (0.999, palette.TEXT)],
            width=5,
            points=RECENT,
        ),
        figure(
            t.panel("rejected"),
            PER_SECOND,
            Query(f"sum({promql.rate(promql.of_model('admission_rejections_total'))})", t.name("rejected")),
            steps=[(0.001, palette.BAD)],
            points=RECENT,
            runbooks=runbooks(t, "VllmAdmissionRejections"),
            width=4,
        ),
        _latency_figure(t, "tpot", "time_per_output_token_seconds", SECONDS, width=5),
        _latency_figure(t, "e2e", "e2e_request_latency_seconds", LATENCY, width=5),
    ]


def _objectives(t: Texts) -> list[Panel]:
    kept = f"min({promql.answering(_good_share('$__range'))})"
    return [
        figure(
            t.panel("objective_kept"),
            RATIO,
            # A threshold cannot be a variable: one of the two gives nothing.
            Query(f"{kept} >= $slo", t.name("good")),
            Query(f"{kept} < $slo", t.name("missed"), steps=[(0, palette.BAD)]),
            decimals=2,
            width=4,
            height=8,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
        figure(
            t.panel("budget_burn"),
            TIMES,
            Query(f"max((1 - {promql.answering(_good_share('1h'))}) / (1 - $slo))", t.name("burn")),
            steps=[(1, palette.WARNING), (number("burn_page_slow"), palette.BAD)],
            decimals=1,
            width=4,
            height=8,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
        _burn(t),
    ]


def _finished() -> str:
    """Return each server's finished requests per second; without a page, those that its access log has answered."""
    by_page = f"sum without (model_name, engine, reason) ({promql.rate(promql.of_engine('requests_finished_total'))})"
    answered = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"2.."')
    return f"{by_page} or sum without (handler, method, code) ({promql.rate(answered)})"


def _p95_or_below(histogram: str) -> str:
    """Return the slowest server's quantile, or else what all are below, with a label that says so in any language."""
    below = promql.worst(promql.quantile_below(_USUAL, histogram))
    return f'{promql.worst(promql.quantile(_USUAL, histogram))} or on () label_replace({below}, "_is", "<", "", "")'


def _good_share(window: str, objective: str = "") -> str:
    chosen = f'objective="{objective}"' if objective else ""
    good = promql.rate(promql.of_engine("slo_good_requests_total", chosen), window)
    judged = promql.rate(promql.of_engine("slo_requests_total", chosen), window)
    # Over all bounds: each request is judged by the objective of its time.
    good, judged = (f"sum without (bound) ({promql.per_server(each)})" for each in (good, judged))
    return f"{good} / ({judged} > 0)"


def _users(t: Texts) -> list[Panel]:
    return [
        _traffic(t),
        _latency(t, "ttft", "time_to_first_token_seconds", promql.of_server("slo_time_to_first_token_seconds")),
        _latency(t, "tpot", "time_per_output_token_seconds", promql.of_server("slo_time_per_output_token_seconds")),
        _latency(t, "itl", "inter_token_latency_seconds"),
        _latency(t, "e2e", "e2e_request_latency_seconds", _slowest("e2e_request_latency_seconds:objective_5m")),
        _phases(t),
    ]


def _slowest(recorded: str) -> str:
    return f"{promql.per_server(promql.recorded(recorded), 'max')} >= 0"  # Nothing observed is NaN.


def _traffic(t: Texts) -> Panel:
    answered = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code!~"2.."')
    failed = f"sum without (handler, method, code) ({promql.rate(answered)})"
    return lines(
        t.panel("traffic"),
        PER_SECOND,
        [
            Query(_finished(), t.of_server("finished"), palette.GREEN),
            Query(failed, t.of_server("not_2xx"), palette.VERMILLION),
        ],
    )


def _latency(t: Texts, name: str, histogram: str, objective: str | None = None) -> Panel:
    queries = [
        Query(promql.quantile(_SHORT, histogram), "{{server}} p50", palette.SKY),
        Query(promql.quantile(_USUAL, histogram), "{{server}} p95", palette.ORANGE),
        Query(promql.quantile(_LONG, histogram), "{{server}} p99", palette.PURPLE),
        Query(promql.mean(histogram), t.of_server("mean"), palette.GREEN),
        _quantiles_below(t, histogram),
    ]
    if objective is not None:
        queries.append(Query(objective, t.of_server("objective"), palette.LIMIT, limit=True))
    # From tens of milliseconds to minutes when requests queue; a time per token has no such range.
    return lines(t.panel(name), SECONDS, queries, logarithmic=name in {"ttft", "e2e"})


def _quantiles_below(t: Texts, histogram: str) -> Query:
    """Return the line under which quantiles are that are not drawn: the lowest is there first."""
    below = promql.quantile_below(_SHORT, histogram)
    return Query(below, t.of_server("quantiles_below"), palette.GREY, limit=True)


def _burn(t: Texts) -> Panel:
    queries = [
        Query(f"(1 - {_good_share(window, of)}) / (1 - $slo)", f"{{{{server}}}} {short} {window}", color)
        for of, short, window, color in (
            ("time_to_first_token", "TTFT", "5m", palette.SKY),
            ("time_to_first_token", "TTFT", "1h", palette.BLUE),
            ("time_per_output_token", "TPOT", "5m", palette.GREEN),
            ("time_per_output_token", "TPOT", "1h", palette.PURPLE),
        )
    ]
    return lines(
        t.panel("burn"),
        TIMES,
        queries,
        width=16,
        soft_most=number("burn_page"),
        bounds=[(number("burn_page_slow"), palette.WARNING), (number("burn_page"), palette.BAD)],
        runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast", "VllmLatencyBudgetBurnsSlowly"),
    )


def _system(t: Texts) -> list[Panel]:
    return [_throughput(t), _running(t), _waiting(t), _batch(t), _finish_reasons(t), _lengths(t)]


def _throughput(t: Texts) -> Panel:
    prompt = promql.per_server(promql.of_engine("prompt_tokens_per_second"))
    generation = promql.per_server(promql.of_engine("generation_tokens_per_second"))
    return lines(
        t.panel("throughput"),
        TOKENS_PER_SECOND,
        [
            Query(prompt, t.of_server("prompt"), palette.SKY),
            Query(generation, t.of_server("generation"), palette.GREEN),
            Query(f"{prompt} + {generation}", t.of_server("total"), palette.GREY),
        ],
        runbooks=runbooks(t, "VllmEngineStalled"),
    )


def _running(t: Texts) -> Panel:
    limit = promql.whole(_BATCH_LIMIT, _BATCH)
    return lines(
        t.panel("running"),
        REQUESTS,
        [
            Query(_summed("requests_running"), t.of_server("running"), palette.SKY),
            Query(limit, t.of_server("batch_limit"), palette.LIMIT, limit=True),
        ],
        stepped=True,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _waiting(t: Texts) -> Panel:
    return lines(
        t.panel("waiting"),
        REQUESTS,
        [
            Query(_summed("requests_waiting"), t.of_server("waiting"), palette.ORANGE),
            Query(_deferred(), t.of_server("deferred"), palette.PURPLE),
        ],
        stepped=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmQueueStanding"),
    )


def _deferred() -> str:
    """Return the deferred requests of servers that have any in the time range: hardly one ever has."""
    deferred = promql.of_engine("requests_deferred")
    most = promql.per_server(promql.over_range(deferred, "max_over_time"))
    return f"{promql.per_server(deferred)} and {most} > 0"


def _summed(gauge: str) -> str:
    return promql.per_server(promql.of_engine(gauge))


def _batch(t: Texts) -> Panel:
    most = promql.per_server(promql.of_engine("max_batched_tokens"), "min")
    return lines(
        t.panel("batch"),
        TOKENS,
        [
            Query(promql.mean("iteration_tokens"), t.of_server("mean"), palette.GREEN),
            Query(promql.quantile(_USUAL, "iteration_tokens"), "{{server}} p95", palette.ORANGE),
            Query(most, t.of_server("batch_limit"), palette.LIMIT, limit=True),
        ],
        # A step that only decodes has a token for each request, and may have thousands.
        logarithmic=True,
    )


def _finish_reasons(t: Texts) -> Panel:
    counter = promql.of_engine("requests_finished_total")
    finished = promql.grew(promql.per_server(promql.rate(counter)), counter)
    return lines(
        t.panel("finish_reasons"),
        PER_SECOND,
        [Query(finished, "{{server}} {{reason}}", palette.GREY, several=True)],
        stacked=True,
        colors={
            "stop": palette.GREEN,
            "length": palette.SKY,
            "abort": palette.ORANGE,
            "error": palette.VERMILLION,
            "repetition": palette.PURPLE,
        },
    )


def _lengths(t: Texts) -> Panel:
    longest = promql.per_server(promql.of_engine("max_model_len_tokens"), "min")
    return lines(
        t.panel("lengths"),
        TOKENS,
        [
            Query(promql.quantile(of, f"request_{kind}_tokens"), f"{{{{server}}}} {t.name(kind)} p{of * 100:g}", color)
            for kind, of, color in (
                ("prompt", _SHORT, palette.SKY),
                ("prompt", _USUAL, palette.BLUE),
                ("generation", _SHORT, palette.GREEN),
                ("generation", _USUAL, palette.ORANGE),
            )
        ]
        + [
            Query(promql.mean(f"request_{kind}_tokens"), f"{{{{server}}}} {t.name(kind)} {t.name('mean')}", color)
            for kind, color in (("prompt", palette.PURPLE), ("generation", palette.GREY))
        ]
        + [Query(longest, t.of_server("longest"), palette.LIMIT, limit=True)],
        # Requests of a few hundred tokens stand below a limit of many thousands.
        logarithmic=True,
    )


def _phases(t: Texts) -> Panel:
    """Return the mean phases of all chosen servers' requests: the means of several, one on the other, are none."""
    return lines(
        t.panel("phases"),
        LATENCY,
        [
            Query(_mean_of_all(f"{phase}_time_seconds"), t.name(phase), color)
            for phase, color in (("queue", palette.ORANGE), ("prefill", palette.SKY), ("decode", palette.GREEN))
        ],
        stacked=True,
    )


def _mean_of_all(histogram: str) -> str:
    total, observed = (f"sum({promql.rate(promql.of_engine(f'{histogram}_{part}'))})" for part in ("sum", "count"))
    return f"{total} / ({observed} > 0)"


def _shortage(t: Texts) -> list[Panel]:
    return [
        _kv_cache(t),
        _queue_time(t),
        preemptions(t, width=8),
        _hit_ratios(t),
        _rejections(t),
        _failures(t),
    ]


def _kv_cache(t: Texts) -> Panel:
    usage = promql.of_engine("kv_cache_usage_ratio")
    return lines(
        t.panel("kv_cache"),
        RATIO,
        [Query(promql.per_server(usage, "max"), t.of_server("fullest"), palette.SKY)],
        most=1,
        bounds=[(number("kv_full_ratio"), palette.BAD)],
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _queue_time(t: Texts) -> Panel:
    return lines(
        t.panel("queue_time"),
        SECONDS,
        [
            Query(promql.quantile(of, "queue_time_seconds"), f"{{{{server}}}} p{of * 100:g}", color)
            for of, color in ((_SHORT, palette.SKY), (_USUAL, palette.ORANGE), (_LONG, palette.PURPLE))
        ]
        + [
            Query(promql.mean("queue_time_seconds"), t.of_server("mean"), palette.GREEN),
            _quantiles_below(t, "queue_time_seconds"),
        ],
        logarithmic=True,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _hit_ratios(t: Texts) -> Panel:
    return lines(
        t.panel("hit_ratios"),
        RATIO,
        [
            Query(
                promql.of_engine(f"{cache}_hit_ratio"),
                f"{{{{server}}}} {t.name(cache)}${{{ENGINE}}}",
                color,
                several=True,
            )
            for cache, color in (
                ("prefix_cache", palette.SKY),
                ("external_prefix_cache", palette.GREEN),
                ("mm_cache", palette.PURPLE),
            )
        ],
        most=1,
        runbooks=runbooks(t, "VllmCacheCollapseSlows"),
    )


def _rejections(t: Texts) -> Panel:
    turned_away = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"429|503"')
    by_code = promql.grew(
        f"sum without (handler, method) ({promql.rate(turned_away)})", turned_away, without="handler, method"
    )
    return lines(
        t.panel("rejections"),
        PER_SECOND,
        [
            *(
                Query(_rejected_because(reason), t.of_server(reason), color)
                for reason, color in _REJECTED_BECAUSE.items()
            ),
            Query(by_code, "{{server}} HTTP {{code}}", several=True),
        ],
        soft_most=1,
        colors={"HTTP 429": palette.VERMILLION, "HTTP 503": palette.BLUE},
        runbooks=runbooks(t, "VllmAdmissionRejections"),
    )


def _rejected_because(reason: str) -> str:
    counter = promql.of_model("admission_rejections_total", f'reason="{reason}"')
    return promql.grew(promql.per_server(promql.rate(counter)), counter)


def _failures(t: Texts) -> Panel:
    happened = promql.happened(promql.of_server("log_events_total"))
    corrupted = promql.per_server(promql.happened(promql.of_engine("corrupted_requests_total")))
    return lines(
        t.panel("failures"),
        EVENTS,
        [
            Query(happened, "{{server}} {{event}}", palette.GREY),
            Query(corrupted, t.of_server("corrupted"), palette.MAGENTA),
        ],
        bars=True,
        soft_most=1,
        colors=_CRASHES,
        runbooks=runbooks(t, "VllmEngineCrashed", "VllmCorruptedRequests"),
    )


def _slower(t: Texts) -> Panel:
    """Return how many times as long a decode step takes as it did, by batch size and over all."""
    by_batch = f"max by ({', '.join(_OF_SERVER)}, {_CLASS}) ({_in_all_contexts(promql.recorded('slower_ratio'))})"
    over_all = promql.per_server(promql.recorded("slower_ratio:median"), "max")
    return lines(
        t.panel("slower"),
        TIMES,
        [
            Query(by_batch, f"{{{{server}}}} {t.name('batch')} {{{{{_CLASS}}}}}", several=True),
            Query(over_all, t.of_server("over_all"), palette.TEXT),
        ],
        width=9,
        soft_most=2,
        bounds=[(number("slower_ratio"), palette.WARNING)],
        runbooks=runbooks(t, "VllmSlowerThanItWas"),
    )


def _steps(t: Texts) -> Panel:
    """Return how long a decode step takes at each batch size, and how long it did."""
    columns = {
        "now": promql.of_engine("decode_step_seconds"),
        "usual": promql.recorded("decode_step_seconds:usual"),
        "first_day": promql.recorded("decode_step_seconds:first_day"),
    }
    keys = (*_OF_SERVER, "engine", _CLASS, "context_class", "prompt_class")
    return grid(
        t.panel("steps"),
        [
            Key("server", t.name("server"), width=90),
            Key("instance", t.name("daemon"), width=110),
            Key("engine", t.name("engine"), width=75),
            Key(_CLASS, t.name("batch"), width=65),
            Key("context_class", t.name("context"), width=95),
            Key("prompt_class", t.name("prompts"), width=75),
        ],
        [Column(promql.only(expr, *keys), t.name(name), SECONDS) for name, expr in columns.items()],
        # Larger batches take longer, and as texts their sizes are in no order.
        sort_by=[(t.name("engine"), False), (t.name("now"), False)],
        width=15,
        runbooks=runbooks(t, "VllmSlowerThanItWas"),
    )


def _in_all_contexts(ratio: str) -> str:
    return f"quantile without (config, version, context_class, prompt_class) (0.5, {ratio})"


def _engines(t: Texts) -> list[Panel]:
    return [
        _by_engine(t, "engine_generation", "generation_tokens_per_second", TOKENS_PER_SECOND),
        _by_engine(t, "engine_running", "requests_running", REQUESTS),
        _by_engine(t, "engine_waiting", "requests_waiting", REQUESTS),
        _by_engine(t, "engine_kv", "kv_cache_usage_ratio", RATIO),
    ]


def _by_engine(t: Texts, key: str, gauge: str, unit: str) -> Panel:
    return lines(
        t.panel(key),
        unit,
        [Query(promql.of_engine(gauge), f"{{{{server}}}} {t.name('engine')} {{{{engine}}}}", several=True)],
        width=6,
        most=1 if unit == RATIO else None,
        soft_most=1,
        colors={str(engine): color for engine, color in enumerate(palette.COLORS)},
    )


def _distributions(t: Texts) -> list[Panel]:
    return [
        shares(
            t.panel(f"{name}_buckets"),
            unit,
            Query(f"sum by (le) ({promql.rate(promql.of_engine(histogram + '_bucket'))})", "{{le}}"),
            width=6,
        )
        for name, histogram, unit in (
            ("ttft", "time_to_first_token_seconds", LATENCY),
            ("itl", "inter_token_latency_seconds", SECONDS),
            ("e2e", "e2e_request_latency_seconds", LATENCY),
            ("queue", "queue_time_seconds", LATENCY),
        )
    ]
