# SPDX-License-Identifier: Apache-2.0
"""
A benchmark's result as the client's view of a run.

What the client measured is taken as it wrote it. Only what it did not write is computed from its lists of single
requests, if there are any: percentiles, spread, and the requests within an objective.
"""

from __future__ import annotations

import math

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain, pairwise
from statistics import fmean

from vllm_watch.analysis.loadtest.client_requests import load_over_time, request_details, steady_window
from vllm_watch.analysis.loadtest.client_texts import notes_of, warnings_of
from vllm_watch.analysis.loadtest.load_test import (
    GIVEN,
    OBJECTIVE_LATENCIES,
    QUANTILES,
    Distribution,
    Goodput,
    Latency,
    Load,
    Objective,
    Quantile,
    RateGrowth,
    Result,
    Run,
)
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LatencyName
from vllm_watch.daemon.statistics.percentiles import min_count, percentile
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.benchmark import read_benchmarks
from vllm_watch_parsers.benchmark_result import (
    BenchmarkError,
    LatencyStats,
    MetricName,
    Requests,
    ServeResult,
)


STEPS_PER_DECADE = 20
"""Bounds of distributions are powers of this root of ten, in every run: so that runs can be laid over each other."""

_METRICS: Mapping[LatencyName, MetricName] = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl", "e2el_ms": "e2el"}
_SHOWN = frozenset(100 * share for share in QUANTILES.values())
_HIGHEST_TEMPERATURE = 100.0
_DATE = "%Y%m%d-%H%M%S"


def read_client_runs(text: str, source: str, *, objective: Objective | None = None) -> tuple[Run, ...]:
    """Return the run of each result in a text; `FileError` without one that can be believed."""
    try:
        results = read_benchmarks(text)
    except BenchmarkError as error:
        raise FileError(f"{source}:{error.line}: {error.reason}") from error
    names = [source] if len(results) == 1 else [f"{source} ({number})" for number in range(1, len(results) + 1)]
    return tuple(_run(result, source, name, objective) for result, name in zip(results, names, strict=True))


def _run(result: ServeResult, source: str, name: str, objective: Objective | None) -> Run:
    lists = _lists(result.requests)
    latencies = {metric: _latency(result, metric, lists.get(metric, ())) for metric in LATENCIES}
    view = Result(
        view="client",
        successful=result.completed,
        failed=_failed(result),
        duration_s=result.duration,
        total_input_tokens=result.total_input_tokens,
        total_output_tokens=result.total_output_tokens,
        request_throughput=result.request_throughput,
        output_throughput=result.output_throughput,
        total_token_throughput=result.total_token_throughput,
        goodput=_goodput(result, objective),
        ttft_ms=latencies["ttft_ms"],
        tpot_ms=latencies["tpot_ms"],
        itl_ms=latencies["itl_ms"],
        e2el_ms=latencies["e2el_ms"],
    )
    end = _end(result)
    start = None if end is None or result.duration is None else end - result.duration
    over_time = load_over_time(result.requests, start)
    return Run(
        source=(source,),
        name=name,
        start=start,
        end=end,
        model=result.settings.model_id,
        load=_load(result),
        result=view,
        views=(view,),
        requests=request_details(result),
        timeline=over_time,
        steady=steady_window(result.requests, over_time),
        distributions={metric: spread for metric, values in lists.items() if (spread := distribution(values))},
        warnings=warnings_of(result, view),
        notes=notes_of(result),
    )


def _end(result: ServeResult) -> float | None:
    """Return when a run ended: as its client wrote it, else in whole seconds by its date, in this machine's zone."""
    if result.end is not None:
        return result.end
    try:
        return datetime.strptime(result.settings.date or "", _DATE).timestamp()  # noqa: DTZ007  # A result names none.
    except (ValueError, OverflowError):
        return None


def _lists(requests: Requests | None) -> dict[LatencyName, Sequence[float]]:
    if requests is None:
        return {}
    seconds: dict[LatencyName, Sequence[float]] = {
        "ttft_ms": requests.ttfts,
        "tpot_ms": [tpot for tpot in _tpots(requests) if tpot is not None],
        "itl_ms": list(chain.from_iterable(requests.itls)),
        "e2el_ms": requests.latencies,
    }
    return {name: sorted(1000 * value for value in values) for name, values in seconds.items() if any(values)}


def _tpots(requests: Requests) -> list[float | None]:
    """Return each request's time per output token after the first, in seconds; `None` of an answer of one token."""
    if requests.tpots:
        return list(requests.tpots)
    if not requests.ttfts or not requests.output_lens or not requests.latencies:
        return []
    answers = zip(requests.latencies, requests.ttfts, requests.output_lens, strict=True)
    return [(whole - first) / (tokens - 1) if tokens > 1 else None for whole, first, tokens in answers]


def _latency(result: ServeResult, name: LatencyName, values: Sequence[float]) -> Latency | None:
    stats = result.latencies.get(_METRICS[name])
    if stats is None and not values:
        return None
    # An answer of one token has no TPOT, and without lists nobody knows how many gaps there were.
    most = len(values) or (None if name == "itl_ms" else result.completed)
    return _filled(stats or LatencyStats(), values, len(values) or (None if name == "tpot_ms" else most), most)


def _filled(stats: LatencyStats, values: Sequence[float], count: int | None, most: int | None) -> Latency:
    shares: dict[Quantile, float] = {}
    for name, quantile in QUANTILES.items():
        written = stats.percentiles.get(100 * quantile, stats.median if quantile == 0.5 else None)
        value = percentile(values, quantile) if written is None and values else written
        if value is not None:
            shares[name] = value
    return Latency(
        mean=fmean(values) if stats.mean is None and values else stats.mean,
        median=percentile(values, 0.5) if stats.median is None and values else stats.median,
        std=_deviation(values) if stats.std is None and values else stats.std,
        count=count,
        too_few=tuple(name for name in shares if most is not None and most < min_count(QUANTILES[name])),
        p50=shares.get("p50"),
        p90=shares.get("p90"),
        p95=shares.get("p95"),
        p99=shares.get("p99"),
        percentiles={f"p{share:g}": value for share, value in sorted(stats.percentiles.items()) if share not in _SHOWN},
    )


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; `statistics.pstdev`, which is exact, takes minutes over millions of gaps."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return how sorted values above 0 are spread over bounds that are the same for every run."""
    positive = [value for value in values if value > 0]
    if not positive:
        return None
    first = math.floor(STEPS_PER_DECADE * math.log10(positive[0]))
    last = math.ceil(STEPS_PER_DECADE * math.log10(positive[-1]))
    bounds = [10 ** (step / STEPS_PER_DECADE) for step in range(first, max(last, first + 1) + 1)]
    up_to = [bisect_right(positive, bound) for bound in bounds]
    counts = [later - earlier for earlier, later in pairwise([0, *up_to, len(positive)])]
    return Distribution(bounds=tuple(bounds), counts=tuple(counts))


def _goodput(result: ServeResult, objective: Objective | None) -> Goodput | None:
    """Return the requests within the objective, from the requests; else what the client wrote of its own objective."""
    good = None if objective is None or result.requests is None else _good(result.requests, objective)
    failed = _failed(result)
    sent = None if failed is None and result.failed else result.completed + (failed or 0)
    if objective is not None and good is not None:
        rate = good / result.duration if result.duration else None
        return Goodput(objective=objective, request_goodput=rate, ratio=good / sent if sent else None)
    if result.request_goodput is None:
        return None
    limits = {
        latency: limit
        for metric, latency in OBJECTIVE_LATENCIES.items()
        for name, limit in result.settings.goodput.items()
        if name == metric
    }
    return Goodput(
        objective=Objective(name=GIVEN, limits=limits),
        request_goodput=result.request_goodput,
        ratio=min(result.request_goodput * result.duration / sent, 1.0) if sent and result.duration else None,
    )


def _failed(result: ServeResult) -> int | None:
    return None if result.failed and not result.is_failed_counted else result.failed


def _good(requests: Requests, objective: Objective) -> int | None:
    seconds: dict[LatencyName, Sequence[float | None]] = {
        "ttft_ms": requests.ttfts,
        "tpot_ms": _tpots(requests),
        "e2el_ms": requests.latencies,
    }
    lists = [(seconds.get(name, ()), limit / 1000) for name, limit in objective.limits.items()]
    if not lists or not all(values for values, _ in lists):
        return None
    within = [[value is None or value <= limit for value in values] for values, limit in lists]
    return sum(map(all, zip(*within, strict=True)))


def _load(result: ServeResult) -> Load:
    settings, completed = result.settings, result.completed
    growth, prompt, output = settings.ramp_up, result.total_input_tokens, result.total_output_tokens
    # vLLM writes a rate of inf where the rate grows.
    rate = settings.request_rate if growth is None else None
    return Load(
        endpoint="pooling" if result.is_pooling else "online",
        backend=settings.backend or result.client,
        request_rate=None if rate is None else "inf" if math.isinf(rate) else rate,
        ramp_up=growth and RateGrowth(strategy=growth.strategy, start=growth.start_rps, end=growth.end_rps),
        burstiness=settings.burstiness,
        max_concurrency=settings.max_concurrency,
        num_prompts=settings.num_prompts,
        mean_input_tokens=prompt / completed if prompt is not None and completed else None,
        mean_output_tokens=output / completed if output is not None and completed else None,
        temperature=_temperature(result),
        duration_s=result.duration,
        metadata=settings.metadata,
    )


def _temperature(result: ServeResult) -> float | None:
    if result.settings.temperature is not None:
        return result.settings.temperature
    try:
        value = float(result.settings.metadata.get("temperature", ""))
    except ValueError:
        return None
    return value if 0 <= value <= _HIGHEST_TEMPERATURE else None
