# SPDX-License-Identifier: Apache-2.0
"""
A load test: what came out of it in the chosen time range, beside what came out in a second range before it.

Everything of a range is asked once, at its end, over the whole of it: a mean of many short percentiles is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import energy, palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.engines import PREEMPTED, preemptions
from boards.kit.links import runbooks
from boards.kit.panels import (
    COUNT,
    LATENCY,
    PER_SECOND,
    RATIO,
    REQUESTS,
    SECONDS,
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
    shares,
    states,
)
from boards.kit.promql import by_drafts
from boards.kit.texts import Texts
from boards.kit.thresholds import number
from vllm_watch.daemon.state.window import STAGES


UID = "vllm-watch-load-test"

_LATENCIES: Final = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", "itl": "inter_token", "e2e": "e2e"}
"""Stages, as in `STAGES`, by the keys of their texts."""

_UNITS: Final = {"ttft": LATENCY, "tpot": SECONDS, "itl": SECONDS, "e2e": LATENCY}
"""What may take minutes is in plain seconds."""

_FAILED: Final = "abort|error"
_NOT_ADMITTED: Final = "4..|503"
"""Codes of requests that the engine never got."""

_ALARMING: Final[Mapping[str, Steps]] = {"failed": [(1, palette.BAD)]}
"""From which value on a figure of the result is wrong, by the key of its texts."""

_POINTS: Final = 2000
"""The steps that a range is divided into to find when there was work: the scrapes of less than three hours."""

_FEW: Final = 3
"""So many observations have to be beyond a percentile: 300 for a p99."""

_MARK: Final = "_is"

_PROMPTED: Final = "prompt_tokens_total"
_GENERATED: Final = "generation_tokens_total"
_BY_SOURCE: Final = "prompt_tokens_by_source_total"

Growth = Callable[[str], str]
"""What is made of a counter: its growth in the range, or per second."""


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "load_test")
    return board(
        t,
        UID,
        [*variables.usual(t, everything=False), variables.shift(t)],
        [
            Row(t.row("result"), [*_requests(t), *_tokens(t), _state(t)]),
            Row(t.row("latency"), [_latency(t, key, STAGES[stage], stage) for key, stage in _LATENCIES.items()]),
            Row(t.row("load"), [_outcomes(t), _offered(t), _running(t), _waiting(t)]),
            Row(t.row("work"), [_throughput(t), _step_tokens(t), _kv_cache(t)]),
            Row(t.row("limits"), [preemptions(t, _earlier_line(t, PREEMPTED), width=8), _acceptance(t), _positions(t)]),
            Row(t.row("energy"), _energy(t), collapsed=True),
        ],
    )


def _requests(t: Texts) -> list[Panel]:
    ok, duration = _ok(promql.grown), _duration()
    return [
        _figure(t, "ok", REQUESTS, f"sum({ok})", decimals=0),
        _figure(t, "failed", REQUESTS, f"sum({_failed(promql.grown)})", decimals=0),
        _figure(t, "duration", LATENCY, duration, decimals=0),
        _figure(t, "request_throughput", COUNT, f"sum({ok}) / ({duration})", decimals=2),
        _figure(t, "output_throughput", TOKENS, f"{_generated()} / ({duration})", decimals=1),
        _figure(t, "total_throughput", TOKENS, f"({_total()}) / ({duration})", decimals=1),
    ]


def _tokens(t: Texts) -> list[Panel]:
    return [
        _figure(t, "input", TOKENS, _prompted(), decimals=0),
        _figure(t, "output", TOKENS, _generated(), decimals=0),
        _figure(t, "total", TOKENS, _total(), decimals=0),
        _figure(t, "input_length", TOKENS, _mean("request_prompt_tokens"), decimals=1),
        _figure(t, "output_length", TOKENS, _mean("request_generation_tokens"), decimals=1),
        _figure(t, "acceptance", COUNT, _acceptance_in_range(), decimals=2),
    ]


def _energy(t: Texts) -> list[Panel]:
    """Return what the tokens of the range took in energy, and in money for the time with work."""
    used, generated, prompted = energy.grown_energy(), *map(energy.grown_tokens, (_GENERATED, _PROMPTED))
    of_prompts = energy.grown_tokens(_BY_SOURCE, 'source="local_compute"')
    computed = f"({generated} + {of_prompts})"
    cost = f"{energy.price()} * 1e6 / 3600"
    return [
        _figure(t, "watts", energy.WATTS, f"sum({used}) / $__range_s", decimals=0),
        _figure(t, "joules", energy.JOULES, energy.of_both(used, generated), decimals=2),
        _figure(t, "per_joule", energy.PER_JOULE, f"1 / ({energy.of_both(used, computed)})", decimals=2),
        *(
            _figure(t, key, energy.MONEY, f"{energy.of_both(cost, f'({tokens})')} * {_duration()}", decimals=2)
            for key, tokens in (
                ("cost_output", generated),
                ("cost_input", prompted),
                ("cost_total", f"{prompted} + {generated}"),
            )
        ),
    ]


def _figure(t: Texts, key: str, unit: str, expr: str, *, decimals: int) -> Panel:
    """Return a number of the chosen range, with that of the second one below it."""
    return figure(
        t.panel(key),
        unit,
        Query(expr, t.name("chosen")),
        Query(promql.earlier(expr), t.name("before")),
        width=4,
        steps=_ALARMING.get(key, ()),
        decimals=decimals,
        points=_POINTS,
    )


def _ok(growth: Growth) -> str:
    """Return each server's requests that were served; without a page, those that its access log has answered."""
    served = promql.of_engine("requests_finished_total", f'reason!~"{_FAILED}"')
    return f"{_by_server(growth(served), 'reason')} or {_answered(growth, '2..')}"


def _failed(growth: Growth) -> str:
    """Return each server's requests that broke off, in the engine or before it."""
    broken = promql.of_engine("requests_finished_total", f'reason=~"{_FAILED}"')
    return _and_not_admitted(_by_server(growth(broken), "reason"), growth)


def _and_not_admitted(requests: str, growth: Growth) -> str:
    """Return requests by server together with those that its engines never got."""
    rejected = f"sum without (model_name, reason) ({growth(promql.of_model('admission_rejections_total'))})"
    before = f'label_replace({_answered(growth, _NOT_ADMITTED)} or {rejected}, "_of", "http", "", "")'
    return f"sum without (_of) ({requests} or {before})"


def _answered(growth: Growth, codes: str) -> str:
    counter = promql.of_server("http_requests_total", f'{promql.COMPLETIONS},code=~"{codes}"')
    return f"sum without (handler, method, code) ({growth(counter)})"


def _by_server(expr: str, *more: str) -> str:
    return f"sum without ({', '.join(('model_name', 'engine', *more))}) ({expr})"


def _summed(gauge: str) -> str:
    return promql.per_server(promql.of_engine(gauge))


def _duration() -> str:
    """Return the seconds from the first to the last moment with work; each value holds until the next one."""
    moments = f"timestamp({_summed('requests_running')} + {_summed('requests_waiting')} > 0)[$__range:$__interval]"
    between = f"max(max_over_time({moments})) - min(min_over_time({moments}))"
    return f"clamp_max({between} + $__interval_ms / 1000, $__range_s)"


def _prompted() -> str:
    return f"sum({promql.grown(promql.of_engine(_PROMPTED))})"


def _generated() -> str:
    """Return the tokens that were generated; without a page, what the log's rates add up to."""
    counted = promql.per_server(promql.grown(promql.of_engine(_GENERATED)))
    rates = f"{promql.of_engine('generation_tokens_per_second')}[$__range:$__interval]"
    known = f"clamp_max(count_over_time({rates}) * $__interval_ms / 1000, $__range_s)"
    added = promql.per_server(f"avg_over_time({rates}) * {known}")
    return f"sum({counted} or {added})"


def _total() -> str:
    return f"{_prompted()} + {_generated()}"


def _mean(histogram: str) -> str:
    """Return the mean of all that was observed in the range."""
    total, observed = (f"sum({promql.grown(promql.of_engine(f'{histogram}_{part}'))})" for part in ("sum", "count"))
    return f"{total} / ({observed} > 0)"


def _acceptance_in_range() -> str:
    accepted, drafts = (
        f"sum({promql.grown(promql.of_engine(f'spec_decode_{each}_total'))})" for each in ("accepted_tokens", "drafts")
    )
    return f"1 + {accepted} / ({drafts} > 0)"


def _latency(t: Texts, key: str, histogram: str, stage: str) -> Panel:
    """Return the mean and the percentiles of the range, each with that of the second range below it."""
    before = t.name("before")
    queries = [*_beside(t.name("mean"), before, _mean(histogram))]
    for of in (0.5, 0.9, 0.95, 0.99):
        mark = f" {{{{{_MARK}}}}}"
        queries += _beside(f"p{of * 100:g}", before, _quantile(of, histogram, stage), mark)
    return comparison(t.panel(key), _UNITS[key], queries, width=6, height=9)


def _beside(name: str, before: str, expr: str, mark: str = "") -> Iterator[Query]:
    """Yield a bar of each range; at 1280 px a name with the mark at its end has room for one short word."""
    yield Query(expr, f"{name}{mark}", palette.PLAIN)
    yield Query(promql.earlier(expr), f"{name} {before}{mark}", palette.GREY)


def _quantile(of: float, histogram: str, stage: str) -> str:
    """
    Return a percentile of the range with a label that says what it is, and reads the same in any language.

    ``<``: it is in the first bucket, and below this bound. ``>``: it is above the last bound, which is given. ``?``:
    too few requests are beyond it.
    """
    # Not `grown`, which is four times as long: Kubernetes takes no dashboard of more than 256 KiB.
    counted = promql.rate(promql.of_engine(f"{histogram}_bucket"), promql.RANGE)
    value, highest = (f"(histogram_quantile({each:g}, sum by (le) ({counted})) >= 0)" for each in (of, 1))
    bound = promql.of_engine("latency_first_bound_seconds", f'stage="{stage}"')
    observed = f"sum({promql.increase(promql.of_engine(f'{histogram}_count'), promql.RANGE)})"
    known = {
        "<": f"max(max_over_time({bound}[$__range])) >= {value}",
        ">": f"{value} == {highest}",
        "?": f"{value} and {observed} < {_FEW / (1 - of):.0f}",
    }
    marked = [f'label_replace({expr}, "{_MARK}", "{sign}", "", "")' for sign, expr in known.items()]
    return " or on () ".join([*marked, value])


def _outcomes(t: Texts) -> Panel:
    ok = _ok(promql.rate)
    return lines(
        t.panel("outcomes"),
        PER_SECOND,
        [
            Query(ok, t.of_server("ok"), palette.GREEN),
            Query(_failed(promql.rate), t.of_server("failed"), palette.VERMILLION),
            _earlier_line(t, ok, t.name("ok")),
        ],
        width=6,
        runbooks=runbooks(t, "VllmAdmissionRejections"),
    )


def _offered(t: Texts) -> Panel:
    """Return what arrived, which is what was finished and what is more in the server than before."""
    finished = _by_server(promql.rate(promql.of_engine("requests_finished_total")), "reason")
    served = f"{finished} or {_answered(promql.rate, '2..')}"
    gathered = " + ".join(
        promql.per_server(f"delta({promql.of_engine(f'requests_{where}')}[{promql.WINDOW}])")
        for where in ("running", "waiting")
    )
    arrived = f"clamp_min(({served}) + ({gathered}) / ($__rate_interval_ms / 1000), 0)"
    return lines(
        t.panel("offered"),
        PER_SECOND,
        [
            Query(_and_not_admitted(arrived, promql.rate), t.of_server("offered"), palette.ORANGE),
            Query(served, t.of_server("served"), palette.GREEN),
        ],
        width=6,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _running(t: Texts) -> Panel:
    running, limit = (promql.of_engine(name) for name in ("requests_running", "max_running_requests"))
    of_server = promql.per_server(running)
    return lines(
        t.panel("running"),
        REQUESTS,
        [
            Query(of_server, t.of_server("running"), palette.SKY),
            _earlier_line(t, of_server, t.name("running")),
            Query(promql.whole(limit, running), t.of_server("batch_limit"), palette.LIMIT, limit=True),
        ],
        width=6,
        stepped=True,
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _waiting(t: Texts) -> Panel:
    waiting = _summed("requests_waiting")
    return lines(
        t.panel("waiting"),
        REQUESTS,
        [
            Query(waiting, t.of_server("waiting"), palette.ORANGE),
            _earlier_line(t, waiting, t.name("waiting")),
        ],
        width=6,
        stepped=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmQueueStanding"),
    )


def _earlier_line(t: Texts, expr: str, *name: str) -> Query:
    return Query(promql.earlier(expr), " ".join(("{{server}}", *name, t.name("earlier"))), palette.GREY)


def _state(t: Texts) -> Panel:
    return states(
        t.panel("state"), t, Query(promql.state(), f"{{{{server}}}} {t.name('engine')} {{{{engine}}}}"), height=5
    )


def _throughput(t: Texts) -> Panel:
    prompt, generation = (
        promql.per_server(promql.rate(promql.of_engine(f"{kind}_tokens_total"))) for kind in ("prompt", "generation")
    )
    total = f"{prompt} + {generation}"
    return lines(
        t.panel("throughput"),
        TOKENS_PER_SECOND,
        [
            Query(prompt, t.of_server("input"), palette.SKY),
            Query(generation, t.of_server("output"), palette.GREEN),
            Query(total, t.of_server("total"), palette.PURPLE),
            _earlier_line(t, total, t.name("total")),
        ],
    )


def _step_tokens(t: Texts) -> Panel:
    steps = promql.rate(promql.of_engine("iteration_tokens_bucket"))
    return shares(t.panel("step_tokens"), TOKENS, Query(f"sum by (le) ({steps})", "{{le}}"))


def _kv_cache(t: Texts) -> Panel:
    usage = promql.per_server(promql.of_engine("kv_cache_usage_ratio"), "max")
    return lines(
        t.panel("kv_cache"),
        RATIO,
        [Query(usage, "{{server}}", palette.SKY), _earlier_line(t, usage)],
        most=1,
        bounds=[(number("kv_full_ratio"), palette.BAD)],
        runbooks=runbooks(t, "VllmCapacityExhausted"),
    )


def _acceptance(t: Texts) -> Panel:
    length = by_drafts(promql.of_engine("spec_decode_mean_acceptance_length")).now
    return lines(
        t.panel("acceptance_length"),
        "suffix: tok",
        [Query(length, "{{server}}", palette.GREEN), _earlier_line(t, length)],
        bounds=[(1, palette.GREY)],
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )


def _positions(t: Texts) -> Panel:
    """Return how often each position of a draft was accepted in the range, every draft counted alike."""
    ratio = promql.of_engine("spec_decode_position_acceptance_ratio")
    drafted = f"ignoring (position) group_left () {promql.of_engine('spec_decode_drafted_tokens_per_second')}"
    accepted, all_drafts = (
        f"sum by (position) (sum_over_time(({weighted})[$__range:$__interval]))"
        for weighted in (f"{ratio} * {drafted}", f"{ratio} * 0 + {drafted}")
    )
    by_position = f"{accepted} / ({all_drafts} > 0)"
    return grid(
        t.panel("positions"),
        [Key("position", t.name("position"), width=90)],
        [
            Column(expr, t.name(name), RATIO, decimals=1, gauge=True, most=1)
            for expr, name in ((by_position, "chosen"), (promql.earlier(by_position), "second"))
        ],
        sort_by=[(t.name("position"), False)],
        width=8,
        runbooks=runbooks(t, "VllmAcceptanceCollapsed"),
    )
