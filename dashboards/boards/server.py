# SPDX-License-Identifier: Apache-2.0
"""One server from top to bottom: what users feel, what the system does, what the engine is short of."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import palette, promql, variables
from boards.kit.alerts import firing
from boards.kit.board import Row, board
from boards.kit.events import events
from boards.kit.links import runbooks
from boards.kit.panels import (
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    TIMES,
    TOKENS,
    TOKENS_PER_SECOND,
    Panel,
    Query,
    figure,
    lines,
    shares,
    states,
)
from boards.kit.preemptions import preemptions
from boards.kit.texts import Texts
from boards.kit.thresholds import number


UID = "vllm-watch-server"

_SHORT, _USUAL, _LONG = 0.5, 0.95, 0.99


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "server")
    return board(
        t,
        UID,
        variables.usual(t, everything=False),
        [
            Row(t.row("now"), [_state(t), firing(t), events(t)]),
            Row(t.row("users"), [*_users_figures(t), *_users(t)]),
            Row(t.row("system"), [*_system(t)]),
            Row(t.row("shortage"), [*_shortage(t)]),
            Row(t.row("engines"), [*_engines(t)], collapsed=True),
            Row(t.row("distributions"), [*_distributions(t)], collapsed=True),
        ],
    )


def _state(t: Texts) -> Panel:
    return states(t.panel("state"), t, Query(promql.state(), "{{server}} {{engine}}"), width=13, height=6)


def _users_figures(t: Texts) -> list[Panel]:
    return [*_request_figures(t), *_latency_figures(t), *_objective_figures(t)]


def _request_figures(t: Texts) -> list[Panel]:
    answered = promql.of_server("http_requests_total", promql.COMPLETIONS)
    answered_well = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"2.."')
    return [
        figure(t.panel("qps"), PER_SECOND, Query(f"sum({_finished()})", t.name("finished"))),
        figure(
            t.panel("success"),
            RATIO,
            Query(f"sum({promql.rate(answered_well)}) / (sum({promql.rate(answered)}) > 0)", t.name("success")),
            steps=[(0, palette.BAD), (0.99, palette.WARNING), (0.999, palette.GOOD)],
        ),
        figure(
            t.panel("rejected"),
            PER_SECOND,
            Query(f"sum({promql.rate(promql.of_model('admission_rejections_total'))})", t.name("rejected")),
            steps=[(0, palette.GOOD), (0.001, palette.BAD)],
            runbooks=runbooks(t, "VllmAdmissionRejections"),
        ),
    ]


def _latency_figures(t: Texts) -> list[Panel]:
    return [
        figure(
            t.panel(f"{name}_p95"),
            SECONDS,
            Query(_p95_or_below(histogram), "p95 {{_is}}"),
            Query(promql.worst(promql.mean(histogram)), t.name("mean")),
        )
        for name, histogram in (
            ("ttft", "time_to_first_token_seconds"),
            ("tpot", "time_per_output_token_seconds"),
            ("e2e", "e2e_request_latency_seconds"),
        )
    ]


def _objective_figures(t: Texts) -> list[Panel]:
    return [
        figure(
            t.panel("objective_kept"),
            RATIO,
            Query(f"min({promql.answering(_good_share('$__range'))})", t.name("good")),
            decimals=2,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
        figure(
            t.panel("budget_burn"),
            TIMES,
            Query(f"max((1 - {promql.answering(_good_share('1h'))}) / (1 - $slo))", t.name("burn")),
            steps=[(0, palette.GOOD), (1, palette.WARNING), (number("burn_page_slow"), palette.BAD)],
            decimals=1,
            runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast"),
        ),
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
        _burn(t),
    ]


def _slowest(recorded: str) -> str:
    return f"{promql.per_server(promql.recorded(recorded), 'max')} >= 0"  # Nothing observed is NaN.


def _traffic(t: Texts) -> Panel:
    answered = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code!~"2.."')
    failed = f"sum without (handler, method, code) ({promql.rate(answered)})"
    rejected = f"sum without (model_name, reason) ({promql.rate(promql.of_model('admission_rejections_total'))})"
    return lines(
        t.panel("traffic"),
        PER_SECOND,
        [
            Query(_finished(), f"{{{{server}}}} {t.name('finished')}", palette.GREEN),
            Query(failed, f"{{{{server}}}} {t.name('not_2xx')}", palette.VERMILLION),
            Query(rejected, f"{{{{server}}}} {t.name('rejected')}", palette.ORANGE),
        ],
        runbooks=runbooks(t, "VllmAdmissionRejections"),
    )


def _latency(t: Texts, name: str, histogram: str, objective: str | None = None) -> Panel:
    queries = [
        Query(promql.quantile(_SHORT, histogram), "{{server}} p50", palette.SKY),
        Query(promql.quantile(_USUAL, histogram), "{{server}} p95", palette.ORANGE),
        Query(promql.quantile(_LONG, histogram), "{{server}} p99", palette.PURPLE),
        Query(promql.mean(histogram), f"{{{{server}}}} {t.name('mean')}", palette.GREEN),
        _quantiles_below(t, histogram),
    ]
    if objective is not None:
        queries.append(Query(objective, f"{{{{server}}}} {t.name('objective')}", palette.LIMIT, limit=True))
    # From tens of milliseconds to minutes when requests queue; a time per token has no such range.
    return lines(t.panel(name), SECONDS, queries, logarithmic=name in {"ttft", "e2e"})


def _quantiles_below(t: Texts, histogram: str) -> Query:
    """Return the line under which quantiles are that are not drawn: the lowest is there first."""
    below = promql.quantile_below(_SHORT, histogram)
    return Query(below, f"{{{{server}}}} {t.name('quantiles_below')}", palette.GREY, limit=True)


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
        soft_most=number("burn_page"),
        bounds=[(number("burn_page_slow"), palette.WARNING), (number("burn_page"), palette.BAD)],
        runbooks=runbooks(t, "VllmLatencyBudgetBurnsFast", "VllmLatencyBudgetBurnsSlowly"),
    )


def _system(t: Texts) -> list[Panel]:
    return [_throughput(t), _requests(t), _batch(t), _finish_reasons(t), _lengths(t), _phases(t)]


def _throughput(t: Texts) -> Panel:
    prompt = promql.per_server(promql.of_engine("prompt_tokens_per_second"))
    generation = promql.per_server(promql.of_engine("generation_tokens_per_second"))
    return lines(
        t.panel("throughput"),
        TOKENS_PER_SECOND,
        [
            Query(prompt, f"{{{{server}}}} {t.name('prompt')}", palette.SKY),
            Query(generation, f"{{{{server}}}} {t.name('generation')}", palette.GREEN),
            Query(f"{prompt} + {generation}", f"{{{{server}}}} {t.name('total')}", palette.GREY),
        ],
        runbooks=runbooks(t, "VllmEngineStalled"),
    )


def _requests(t: Texts) -> Panel:
    return lines(
        t.panel("requests"),
        COUNT,
        [
            Query(_summed("requests_running"), f"{{{{server}}}} {t.name('running')}", palette.SKY),
            Query(_summed("requests_waiting"), f"{{{{server}}}} {t.name('waiting')}", palette.ORANGE),
            Query(_summed("requests_deferred"), f"{{{{server}}}} {t.name('deferred')}", palette.PURPLE),
            Query(
                _summed("max_running_requests"), f"{{{{server}}}} {t.name('batch_limit')}", palette.LIMIT, limit=True
            ),
        ],
        stepped=True,
        runbooks=runbooks(t, "VllmQueueGrowing", "VllmBatchLimitReached"),
    )


def _summed(gauge: str) -> str:
    return promql.per_server(promql.of_engine(gauge))


def _batch(t: Texts) -> Panel:
    return lines(
        t.panel("batch"),
        COUNT,
        [
            Query(promql.mean("iteration_tokens"), f"{{{{server}}}} {t.name('mean')}", palette.SKY),
            Query(promql.quantile(_USUAL, "iteration_tokens"), "{{server}} p95", palette.ORANGE),
        ],
    )


def _finish_reasons(t: Texts) -> Panel:
    finished = promql.per_server(promql.rate(promql.of_engine("requests_finished_total")))
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
        ],
    )


def _phases(t: Texts) -> Panel:
    return lines(
        t.panel("phases"),
        SECONDS,
        [
            Query(promql.mean(f"{phase}_time_seconds"), f"{{{{server}}}} {t.name(phase)}", color)
            for phase, color in (("queue", palette.ORANGE), ("prefill", palette.SKY), ("decode", palette.GREEN))
        ],
        stacked=True,
    )


def _shortage(t: Texts) -> list[Panel]:
    return [
        _kv_cache(t),
        _kv_tokens(t),
        _queue_time(t),
        preemptions(t),
        _hit_ratios(t),
        _rejections(t),
        _failures(t),
        _starts(t),
    ]


def _kv_cache(t: Texts) -> Panel:
    usage = promql.of_engine("kv_cache_usage_ratio")
    return lines(
        t.panel("kv_cache"),
        RATIO,
        [Query(promql.per_server(usage, "max"), "{{server}}", palette.SKY)],
        width=6,
        most=1,
        bounds=[(number("kv_full_ratio"), palette.BAD)],
        runbooks=runbooks(t, "VllmKvCacheSaturated", "VllmKvCacheExhaustionAhead"),
    )


def _kv_tokens(t: Texts) -> Panel:
    capacity = promql.of_engine("kv_cache_capacity_tokens")
    used = promql.per_server(f"{promql.of_engine('kv_cache_usage_ratio')} * {capacity}")
    return lines(
        t.panel("kv_tokens"),
        TOKENS,
        [
            Query(used, f"{{{{server}}}} {t.name('used')}", palette.SKY),
            Query(promql.per_server(capacity), f"{{{{server}}}} {t.name('capacity')}", palette.LIMIT, limit=True),
        ],
        width=6,
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
            Query(promql.mean("queue_time_seconds"), f"{{{{server}}}} {t.name('mean')}", palette.GREEN),
            _quantiles_below(t, "queue_time_seconds"),
        ],
        width=6,
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
                f"{{{{server}}}} {{{{engine}}}} {t.name(cache)}",
                color,
                several=True,
            )
            for cache, color in (
                ("prefix_cache", palette.SKY),
                ("external_prefix_cache", palette.GREEN),
                ("mm_cache", palette.PURPLE),
            )
        ],
        width=6,
        most=1,
        runbooks=runbooks(t, "VllmPrefixCacheCollapsed"),
    )


def _rejections(t: Texts) -> Panel:
    rejected = f"sum without (model_name) ({promql.rate(promql.of_model('admission_rejections_total'))})"
    turned_away = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"429|503"')
    return lines(
        t.panel("rejections"),
        PER_SECOND,
        [
            Query(rejected, "{{server}} {{reason}}", palette.GREY, several=True),
            Query(
                f"sum without (handler, method) ({promql.rate(turned_away)})",
                "{{server}} HTTP {{code}}",
                palette.VERMILLION,
                several=True,
            ),
        ],
        width=6,
        soft_most=1,
        colors={"max_num_queued_reqs": palette.ORANGE, "max_num_queued_tokens": palette.PURPLE},
        runbooks=runbooks(t, "VllmAdmissionRejections"),
    )


def _failures(t: Texts) -> Panel:
    happened = promql.happened(promql.of_server("log_events_total"))
    return lines(
        t.panel("failures"),
        COUNT,
        [Query(happened, "{{server}} {{event}}", palette.VERMILLION, several=True)],
        width=6,
        bars=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmEngineCrashed", "VllmOutOfMemory"),
    )


def _starts(t: Texts) -> Panel:
    age = f"time() - {promql.of_server('server_start_timestamp_seconds')}"
    return lines(
        t.panel("uptime"),
        SECONDS,
        [Query(age, "{{server}}", palette.GREY)],
        width=6,
        runbooks=runbooks(t, "VllmRestartLoop"),
    )


def _engines(t: Texts) -> list[Panel]:
    return [
        _by_engine(t, "engine_generation", "generation_tokens_per_second", TOKENS_PER_SECOND),
        _by_engine(t, "engine_running", "requests_running", COUNT),
        _by_engine(t, "engine_waiting", "requests_waiting", COUNT),
        _by_engine(t, "engine_kv", "kv_cache_usage_ratio", RATIO),
    ]


def _by_engine(t: Texts, key: str, gauge: str, unit: str) -> Panel:
    return lines(
        t.panel(key),
        unit,
        [Query(promql.of_engine(gauge), "{{server}} {{engine}}", palette.GREY, several=True)],
        width=6,
        most=1 if unit == RATIO else None,
        soft_most=1,
        colors={str(engine): color for engine, color in enumerate(palette.COLORS)},
    )


def _distributions(t: Texts) -> list[Panel]:
    return [
        shares(
            t.panel(f"{name}_buckets"),
            SECONDS,
            Query(f"sum by (le) ({promql.rate(promql.of_engine(histogram + '_bucket'))})", "{{le}}"),
            width=6,
        )
        for name, histogram in (
            ("ttft", "time_to_first_token_seconds"),
            ("itl", "inter_token_latency_seconds"),
            ("e2e", "e2e_request_latency_seconds"),
            ("queue", "queue_time_seconds"),
        )
    ]
