# SPDX-License-Identifier: Apache-2.0
"""What a server did over some points of its history, and the result block as it saw the load: by its own counts."""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from vllm_watch.analysis.loadtest.load_test import (
    QUANTILES,
    Bounds,
    Distribution,
    Goodput,
    Latency,
    Objective,
    Quantile,
    Result,
    ServerUse,
)
from vllm_watch.analysis.loadtest.loads import has_work, tokens_grown
from vllm_watch.analysis.loadtest.server_history import (
    ACCEPTED,
    COMPUTED,
    DRAFTED,
    DRAFTS,
    FINISHED,
    GENERATED,
    HTTP_REQUESTS,
    PROMPTED,
    REJECTIONS,
    Growth,
    Point,
    rate,
    rounded,
)
from vllm_watch.daemon.catalog.metric_titles import LatencyName
from vllm_watch.daemon.state.latencies import estimate_quantile
from vllm_watch.daemon.statistics.percentiles import min_count
from vllm_watch_parsers.scrape import Histogram


HISTOGRAMS: Mapping[LatencyName, str] = {
    "queue_ms": "queue_time_seconds",
    "ttft_ms": "time_to_first_token_seconds",
    "tpot_ms": "time_per_output_token_seconds",
    "itl_ms": "inter_token_latency_seconds",
    "e2el_ms": "e2e_request_latency_seconds",
}
MILLISECONDS = 1000.0
_ORDERED: tuple[tuple[LatencyName, LatencyName], ...] = (
    ("ttft_ms", "e2el_ms"),
    ("queue_ms", "ttft_ms"),
    ("ttft_ms", "e2el_ms"),
)
"""A request waits in the queue, then for its first token, then for its last; the last pair again, as TTFT may rise."""

_FAILED = frozenset({"abort", "error"})


def server_use(points: Sequence[Point], seconds: float | None = None) -> ServerUse:
    """Return what a server did between the first and the last point; rates are over the seconds that it had work."""
    growth = Growth(points)
    time = seconds or growth.seconds
    inside = [point for point in points[1:] if point.is_fresh]
    # Work between two points that no point shows: what ran at once is not known, and not 0.
    gauged = points if any(map(has_work, points)) or not tokens_grown(points[0], points[-1]) else ()
    inside = [point for point in inside if gauged]
    accepted, drafted = growth.counter(ACCEPTED), growth.counter(DRAFTED)
    return ServerUse(
        prompt_tokens_per_second=_tokens_per_second(points, growth, COMPUTED, time),
        generation_tokens_per_second=_tokens_per_second(points, growth, GENERATED, time),
        requests_per_second=rate(finished(growth), time),
        offered_requests_per_second=rate(arrivals(points, growth), time),
        running=_mean(gauged, "requests_running"),
        max_running=_highest(inside, "requests_running"),
        waiting=_mean(gauged, "requests_waiting"),
        max_waiting=_highest(inside, "requests_waiting"),
        kv_cache_usage_ratio=_mean(gauged, "kv_cache_usage_ratio"),
        max_kv_cache_usage_ratio=_highest(inside, "kv_cache_usage_ratio"),
        preemptions=rounded(growth.counter("preemptions_total")),
        prefix_cache_hit_ratio=_hits(points, growth, "prefix_cache"),
        mm_cache_hit_ratio=_hits(points, growth, "mm_cache"),
        acceptance_length=_acceptance_length(points, growth),
        position_acceptance=_positions(points, growth),
        drafted_tokens=rounded(drafted) if drafted else None,
        wasted_draft_tokens=rounded(max(drafted - accepted, 0)) if drafted and accepted is not None else None,
    )


def finished(growth: Growth) -> float | None:
    """Return how many requests were finished, by whatever reason."""
    by_reason = growth.labelled(FINISHED)
    return sum(by_reason.values()) if by_reason else None


def arrivals(points: Sequence[Point], growth: Growth) -> float | None:
    """Return how many requests came: those that were finished, and by how much more are under way at the end."""
    done = finished(growth)
    queued = [
        point.gauges["requests_running"] + point.gauges["requests_waiting"]
        for point in points
        if "requests_running" in point.gauges and "requests_waiting" in point.gauges
    ]
    return None if done is None or len(queued) < 2 else max(done + queued[-1] - queued[0], 0.0)


def distribution(histogram: Histogram | None, factor: float = 1.0) -> Distribution | None:
    """Return how values are spread over a histogram's buckets; its bounds times `factor`."""
    if histogram is None:
        return None
    counts = (histogram.counts[0], *(new - old for old, new in pairwise(histogram.counts)))
    bounds = tuple(bound * factor for bound in histogram.bounds if math.isfinite(bound))
    return Distribution(bounds=bounds, counts=counts)


def _mean(points: Sequence[Point], name: str) -> float | None:
    """Return the mean of a gauge over the time of the points, each counted for the interval before it."""
    pairs = [
        (new.gauges[name], new.at - old.at) for old, new in pairwise(points) if new.is_fresh and name in new.gauges
    ]
    whole = sum(seconds for _, seconds in pairs)
    return sum(value * seconds for value, seconds in pairs) / whole if whole > 0 else None


def _highest(points: Sequence[Point], name: str) -> float | None:
    return max((point.gauges[name] for point in points if name in point.gauges), default=None)


def _tokens_per_second(points: Sequence[Point], growth: Growth, counter: str, seconds: float) -> float | None:
    counted = growth.counter(counter)
    if counted is not None:
        return rate(counted, seconds)
    return _mean(points, "generation_tokens_per_second" if counter == GENERATED else "prompt_tokens_per_second")


def _hits(points: Sequence[Point], growth: Growth, cache: str) -> float | None:
    if growth.counter(f"{cache}_queries") is not None:
        return growth.ratio(f"{cache}_hits", f"{cache}_queries")
    return _mean(points, f"{cache}_hit_ratio")


def _acceptance_length(points: Sequence[Point], growth: Growth) -> float | None:
    drafts, accepted = growth.counter(DRAFTS), growth.counter(ACCEPTED)
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    return _mean(points, "spec_decode_mean_acceptance_length")


def _positions(points: Sequence[Point], growth: Growth) -> tuple[float, ...]:
    drafts, by_position = growth.counter(DRAFTS), growth.labelled(ACCEPTED)
    if drafts and by_position:
        return tuple(min(by_position[position] / drafts, 1.0) for position in sorted(by_position, key=int))
    logged = [
        tuple(ratio for ratio in point.position_acceptance if ratio is not None)
        for point in points[1:]
        if point.is_fresh and point.position_acceptance
    ]
    if not logged or len({len(ratios) for ratios in logged}) != 1:
        return ()
    return tuple(sum(ratios) / len(ratios) for ratios in zip(*logged, strict=True))


def server_result(points: Sequence[Point], seconds: float, objective: Objective | None = None) -> Result:
    """Return what a server counted between the first and the last point; rates are over the seconds of work."""
    growth = Growth(points)
    successful, failed = _requests(growth)
    prompted, generated = _input_tokens(points, growth), growth.counter(GENERATED)
    known = latencies({name: growth.histogram(series) for name, series in HISTOGRAMS.items()})
    return Result(
        view="server",
        successful=successful,
        failed=failed,
        duration_s=seconds if seconds > 0 else None,
        total_input_tokens=rounded(prompted),
        total_output_tokens=rounded(generated),
        request_throughput=rate(successful, seconds),
        output_throughput=rate(generated, seconds),
        total_token_throughput=rate(None if prompted is None or generated is None else prompted + generated, seconds),
        goodput=_goodput(growth, (successful, failed), seconds, objective),
        queue_ms=known["queue_ms"],
        ttft_ms=known["ttft_ms"],
        tpot_ms=known["tpot_ms"],
        itl_ms=known["itl_ms"],
        e2el_ms=known["e2el_ms"],
    )


def latencies(histograms: Mapping[LatencyName, Histogram | None]) -> dict[LatencyName, Latency | None]:
    """Return the latencies of the same requests, by name: none leaves the queue after its first token, or that last."""
    found = {name: latency(histogram) for name, histogram in histograms.items()}
    for early, late in _ORDERED:
        first, whole = found.get(early), found.get(late)
        if first is not None and whole is not None:
            found[early], found[late] = _in_order(first, whole)
    return found


def _in_order(first: Latency, whole: Latency) -> tuple[Latency, Latency]:
    """Return two latencies of which the first is at no quantile above the other, as far as their buckets allow it."""
    for name in QUANTILES:
        early, late = first.bounds[name], whole.bounds[name]
        most = min((each for each in (early.high, late.high) if each is not None), default=None)
        least = max(early.low or 0.0, late.low or 0.0)
        if (most is not None and most < (early.low or 0.0)) or (late.high is not None and late.high < least):
            # They are not of the same requests: many have their first token and not yet their last one.
            continue
        ends: float | None = getattr(whole, name)
        ends = None if ends is None else max(ends, least)
        begins = min((each for each in (getattr(first, name), ends, most) if each is not None), default=None)
        first = _placed(first, name, Bounds(low=early.low, high=most), None if most is None else begins)
        whole = _placed(whole, name, Bounds(low=least, high=late.high), ends)
    return first, whole


def _placed(latency: Latency, name: Quantile, bounds: Bounds, value: float | None) -> Latency:
    median = value if name == "p50" else latency.median
    return msgspec.structs.replace(latency, **{name: value}, median=median, bounds={**latency.bounds, name: bounds})


def latency(histogram: Histogram | None) -> Latency | None:
    """Return a histogram's mean, which is exact or absent, and its percentiles with the bounds of their buckets."""
    if histogram is None:
        return None
    count = round(histogram.observations)
    values: dict[Quantile, float | None] = {}
    bounds: dict[Quantile, Bounds] = {}
    for name, quantile in QUANTILES.items():
        low, high = _bucket(histogram, quantile)
        # Markov: a hundredth of the values cannot be above a hundred times their mean.
        most = math.inf if histogram.mean is None else histogram.mean / (1 - quantile)
        high = most if high is not None and (low or 0.0) < most < high else high
        bounds[name] = Bounds(low=_milli(low), high=_milli(high))
        # In the last bucket, which has no end, all that is known is that it is more.
        values[name] = None if high is None else _milli(min(_estimate(histogram, quantile, high), high))
    return Latency(
        mean=_milli(histogram.mean),
        median=values["p50"],
        count=count,
        bounds=bounds,
        too_few=tuple(name for name, quantile in QUANTILES.items() if count < min_count(quantile)),
        p50=values["p50"],
        p90=values["p90"],
        p95=values["p95"],
        p99=values["p99"],
    )


def _estimate(histogram: Histogram, quantile: float, high: float) -> float:
    seconds = estimate_quantile(histogram, quantile)
    return high * quantile * histogram.observations / histogram.counts[0] if seconds is None else seconds


def _bucket(histogram: Histogram, quantile: float) -> tuple[float | None, float | None]:
    rank = quantile * histogram.observations
    low = 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        if count >= rank and count > 0:
            return low, None if math.isinf(bound) else bound
        low = bound
    return low, None


def _requests(growth: Growth) -> tuple[int | None, int | None]:
    """Return how many requests were answered and how many were not: an aborted one has no status, an error has both."""
    by_reason, by_status = growth.labelled(FINISHED), growth.labelled(HTTP_REQUESTS)
    refused = sum(count for status, count in by_status.items() if status in {"4xx", "5xx"})
    if not by_reason:
        return (round(by_status.get("2xx", 0.0)), round(refused)) if by_status else (None, None)
    done = sum(count for reason, count in by_reason.items() if reason not in _FAILED)
    rejected = growth.counter(REJECTIONS) or 0.0
    return round(done), round(by_reason.get("abort", 0.0) + max(by_reason.get("error", 0.0) + rejected, refused))


def _input_tokens(points: Sequence[Point], growth: Growth) -> float | None:
    """Return the tokens of all prompts; where only computed ones are known, they are all if none was cached."""
    prompted = growth.counter(PROMPTED)
    if prompted is not None:
        return prompted
    return growth.counter(COMPUTED) if _hits(points, growth, "prefix_cache") in {None, 0.0} else None


def _goodput(
    growth: Growth, requests: tuple[int | None, int | None], seconds: float, objective: Objective | None
) -> Goodput | None:
    """
    Return between which shares of requests were within all limits: histograms do not show which is where.

    At least those that no limit leaves out, at most those that the strictest leaves; no failed one.
    """
    if objective is None:
        return None
    histograms = {
        name: histogram for name in objective.limits if (histogram := growth.histogram(HISTOGRAMS[name])) is not None
    }
    successful, failed = requests[0], requests[1] or 0
    if len(histograms) < len(objective.limits):
        return None
    if successful is None:
        successful = round(max(histogram.observations for histogram in histograms.values()))
    sent = successful + failed
    if sent == 0:
        return None
    beyond = [_beyond(histogram, objective.limits[name] / MILLISECONDS) for name, histogram in histograms.items()]
    low = max(successful - sum(most for _, most in beyond), 0.0) / sent
    high = min(successful - max(least - failed, 0.0) for least, _ in beyond) / sent
    ratio = low if math.isclose(low, high) else None
    return Goodput(
        objective=objective,
        ratio=ratio,
        request_goodput=None if ratio is None else rate(ratio * sent, seconds),
        bounds=Bounds(low=low, high=high),
    )


def _beyond(histogram: Histogram, limit: float) -> tuple[float, float]:
    """Return how many values are above `limit`, at least and at most: its bucket may be on either side."""
    buckets = list(zip(histogram.bounds, histogram.counts, strict=True))
    below = max((count for bound, count in buckets if bound <= limit), default=0.0)
    above = min(count for bound, count in buckets if bound >= limit)
    return histogram.observations - above, histogram.observations - below


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MILLISECONDS
