# SPDX-License-Identifier: Apache-2.0
"""The result block as the server saw it: requests and tokens it counted, latencies by its histograms."""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence

from vllm_watch.analysis.loadtest.growth import Growth
from vllm_watch.analysis.loadtest.history import Point
from vllm_watch.analysis.loadtest.model import (
    QUANTILES,
    Bounds,
    Goodput,
    Latency,
    LatencyName,
    Objective,
    Quantile,
    Result,
)
from vllm_watch.analysis.loadtest.snapshot_point import FINISHED, HTTP_REQUESTS, REJECTIONS
from vllm_watch.analysis.loadtest.usage import COMPUTED, GENERATED, PROMPTED, server_use
from vllm_watch.daemon.state.latencies import estimate_quantile
from vllm_watch.daemon.statistics.percentiles import min_count
from vllm_watch_parsers.scrape import Histogram


HISTOGRAMS: Mapping[LatencyName, str] = {
    "ttft_ms": "time_to_first_token_seconds",
    "tpot_ms": "time_per_output_token_seconds",
    "itl_ms": "inter_token_latency_seconds",
    "e2el_ms": "e2e_request_latency_seconds",
}
MILLISECONDS = 1000.0
_FAILED = frozenset({"abort", "error"})


def server_result(points: Sequence[Point], seconds: float, objective: Objective | None = None) -> Result:
    """
    Return what a server counted between the first and the last point.

    Args:
        points: In order of time.
        seconds: How long it had work: rates are over that time.
        objective: What the requests had to be answered within.
    """
    growth = Growth(points)
    successful, failed = _requests(growth)
    given, generated = _input_tokens(points, growth), growth.counter(GENERATED)
    both = None if given is None or generated is None else given + generated
    latencies = {name: latency(growth.histogram(series)) for name, series in HISTOGRAMS.items()}
    return Result(
        view="server",
        successful=successful,
        failed=failed,
        duration_s=seconds if seconds > 0 else None,
        total_input_tokens=None if given is None else round(given),
        total_output_tokens=None if generated is None else round(generated),
        request_throughput=_rate(successful, seconds),
        output_throughput=_rate(generated, seconds),
        total_token_throughput=_rate(both, seconds),
        goodput=_goodput(growth, (successful, failed), seconds, objective),
        ttft_ms=latencies["ttft_ms"],
        tpot_ms=latencies["tpot_ms"],
        itl_ms=latencies["itl_ms"],
        e2el_ms=latencies["e2el_ms"],
    )


def latency(histogram: Histogram | None) -> Latency | None:
    """Return a histogram's mean, which is exact or absent, and its percentiles with the bounds of their buckets."""
    if histogram is None:
        return None
    count = round(histogram.observations)
    values: dict[Quantile, float | None] = {}
    bounds: dict[Quantile, Bounds] = {}
    for name, quantile in QUANTILES.items():
        low, high = _bucket(histogram, quantile)
        bounds[name] = Bounds(low=_milli(low), high=_milli(high))
        # In the last bucket, which has no end, all that is known is that it is more.
        values[name] = None if high is None else _milli(_estimate(histogram, quantile, high))
    return Latency(
        mean=_milli(histogram.mean),
        median=values["p50"],
        count=count,
        bounds=bounds,
        too_few=tuple(name for name, quantile in QUANTILES.items() if count < min_count(quantile)),
        **values,
    )


def _estimate(histogram: Histogram, quantile: float, high: float) -> float:
    """Estimate a percentile linearly within its bucket, the first of which starts at 0."""
    seconds = estimate_quantile(histogram, quantile)
    if seconds is not None:
        return seconds
    return high * quantile * histogram.observations / histogram.counts[0]


def _bucket(histogram: Histogram, quantile: float) -> tuple[float | None, float | None]:
    """Return the bounds of the bucket that a percentile is in; `None` above the last one."""
    rank = quantile * histogram.observations
    low = 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        if count >= rank and count > 0:
            return low, None if math.isinf(bound) else bound
        low = bound
    return low, None


def _requests(growth: Growth) -> tuple[int | None, int | None]:
    """
    Return how many requests were answered, and how many were not.

    A request that its client gives up is counted as aborted, and has no status of failure; an error has both.
    """
    by_reason, by_status = growth.labelled(FINISHED), growth.labelled(HTTP_REQUESTS)
    refused = sum(count for status, count in by_status.items() if status in {"4xx", "5xx"})
    if not by_reason:
        return (round(by_status.get("2xx", 0.0)), round(refused)) if by_status else (None, None)
    done = sum(count for reason, count in by_reason.items() if reason not in _FAILED)
    at_the_door = growth.counter(REJECTIONS) or 0.0
    return round(done), round(by_reason.get("abort", 0.0) + max(by_reason.get("error", 0.0) + at_the_door, refused))


def _input_tokens(points: Sequence[Point], growth: Growth) -> float | None:
    """Return the tokens of all prompts; where only computed ones are known, they are all if none was cached."""
    prompted = growth.counter(PROMPTED)
    if prompted is not None:
        return prompted
    computed = growth.counter(COMPUTED)
    return computed if server_use(points).prefix_cache_hit_ratio in {None, 0.0} else None


def _goodput(
    growth: Growth, requests: tuple[int | None, int | None], seconds: float, objective: Objective | None
) -> Goodput | None:
    """
    Return between which shares of all requests were answered within all limits.

    Histograms do not show which request was within which limit: at least those that no limit leaves out, at most those
    that the strictest leaves. A failed request is not within any, whether histograms have it or not.
    """
    found = [] if objective is None else [(growth.histogram(HISTOGRAMS[name]), name) for name in objective.limits]
    known = [(each, name) for each, name in found if each is not None]
    if objective is None or len(known) < len(found):
        return None
    successful, failed = requests[0], requests[1] or 0
    if successful is None:
        successful = round(max(each.observations for each, _ in known))
    if successful + failed == 0:
        return None
    beyond = [_beyond(each, objective.limits[name] / MILLISECONDS) for each, name in known]
    low = max(successful - sum(most for _, most in beyond), 0.0) / (successful + failed)
    high = min(successful - max(least - failed, 0.0) for least, _ in beyond) / (successful + failed)
    ratio = low if math.isclose(low, high) else None
    return Goodput(
        objective=objective,
        ratio=ratio,
        request_goodput=None if ratio is None else _rate(ratio * (successful + failed), seconds),
        bounds=Bounds(low=low, high=high),
    )


def _beyond(histogram: Histogram, limit: float) -> tuple[float, float]:
    """Return how many values are above `limit`, at least and at most: its bucket may be on either side."""
    below = [0.0, *(n for bound, n in zip(histogram.bounds, histogram.counts, strict=True) if bound <= limit)]
    above = [n for bound, n in zip(histogram.bounds, histogram.counts, strict=True) if bound >= limit]
    return histogram.observations - above[0], histogram.observations - below[-1]


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MILLISECONDS


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds
