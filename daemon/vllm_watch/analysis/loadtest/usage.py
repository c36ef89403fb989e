# SPDX-License-Identifier: Apache-2.0
"""What a server did over some points of its history: rates, means of gauges, ratios, drafts, batch sizes."""

from __future__ import annotations

import math

from collections.abc import Sequence
from itertools import pairwise

from vllm_watch.analysis.loadtest.growth import Growth
from vllm_watch.analysis.loadtest.history import Point
from vllm_watch.analysis.loadtest.model import Distribution, ServerUse
from vllm_watch.analysis.loadtest.snapshot_point import ACCEPTED, FINISHED
from vllm_watch_parsers.scrape import Histogram


DRAFTED = "spec_decode_draft_tokens_total"
DRAFTS = "spec_decode_drafts_total"
GENERATED = "generation_tokens_total"
COMPUTED = "prompt_tokens_computed"
PROMPTED = "prompt_tokens_total"


def server_use(points: Sequence[Point], seconds: float | None = None) -> ServerUse:
    """
    Return what a server did between the first and the last point.

    Args:
        points: In order of time.
        seconds: How long it had work, if that is less than the time between the points.
    """
    growth = Growth(points)
    time = seconds or growth.seconds
    inside = [point for point in points[1:] if point.is_fresh]
    accepted, drafted = growth.counter(ACCEPTED), growth.counter(DRAFTED)
    return ServerUse(
        prompt_tokens_per_second=_tokens_per_second(points, growth, COMPUTED, time),
        generation_tokens_per_second=_tokens_per_second(points, growth, GENERATED, time),
        requests_per_second=_rate(finished(growth), time),
        offered_requests_per_second=_rate(arrivals(points, growth), time),
        running=_mean(points, "requests_running"),
        max_running=_highest(inside, "requests_running"),
        waiting=_mean(points, "requests_waiting"),
        max_waiting=_highest(inside, "requests_waiting"),
        kv_cache_usage_ratio=_mean(points, "kv_cache_usage_ratio"),
        max_kv_cache_usage_ratio=_highest(inside, "kv_cache_usage_ratio"),
        preemptions=_whole(growth.counter("preemptions_total")),
        prefix_cache_hit_ratio=_hits(points, growth, "prefix_cache"),
        mm_cache_hit_ratio=_hits(points, growth, "mm_cache"),
        acceptance_length=_acceptance_length(points, growth),
        position_acceptance=_positions(points, growth),
        drafted_tokens=_whole(drafted) if drafted else None,
        wasted_draft_tokens=_whole(max(drafted - accepted, 0)) if drafted and accepted is not None else None,
        batch_size=distribution(growth.histogram("iteration_tokens")),
    )


def finished(growth: Growth) -> float | None:
    """Return how many requests were finished, by whatever reason."""
    by_reason = growth.labelled(FINISHED)
    return sum(by_reason.values()) if by_reason else None


def arrivals(points: Sequence[Point], growth: Growth) -> float | None:
    """Return how many requests came: those that were finished, and by how much more are under way at the end."""
    done = finished(growth)
    known = [point for point in points if "requests_running" in point.gauges and "requests_waiting" in point.gauges]
    if done is None or len(known) < 2:
        return None
    return max(done + _under_way(known[-1]) - _under_way(known[0]), 0.0)


def distribution(histogram: Histogram | None, factor: float = 1.0) -> Distribution | None:
    """Return how values are spread over a histogram's buckets; its bounds times `factor`."""
    if histogram is None:
        return None
    counts = (histogram.counts[0], *(new - old for old, new in pairwise(histogram.counts)))
    return Distribution(
        bounds=tuple(bound * factor for bound in histogram.bounds if math.isfinite(bound)), counts=counts
    )


def weighted_mean(points: Sequence[Point], name: str) -> float | None:
    """Return the mean of a gauge over the time of the points, each counted for the interval before it."""
    pairs = [
        (new.gauges[name], new.at - old.at) for old, new in pairwise(points) if new.is_fresh and name in new.gauges
    ]
    seconds = sum(each for _, each in pairs)
    return sum(value * each for value, each in pairs) / seconds if seconds > 0 else None


_mean = weighted_mean


def _tokens_per_second(points: Sequence[Point], growth: Growth, counter: str, seconds: float) -> float | None:
    """Return the rate of a counter, also if it is 0; the log's rate only where tokens are not counted."""
    counted = growth.counter(counter)
    if counted is not None:
        return _rate(counted, seconds)
    return _mean(points, "generation_tokens_per_second" if counter == GENERATED else "prompt_tokens_per_second")


def _under_way(point: Point) -> float:
    return point.gauges["requests_running"] + point.gauges["requests_waiting"]


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _highest(points: Sequence[Point], name: str) -> float | None:
    return max((point.gauges[name] for point in points if name in point.gauges), default=None)


def _hits(points: Sequence[Point], growth: Growth, cache: str) -> float | None:
    """Return the share of hits; a gauge of it only where /metrics does not count them."""
    if growth.counter(f"{cache}_queries") is not None:
        return growth.ratio(f"{cache}_hits", f"{cache}_queries")
    return _mean(points, f"{cache}_hit_ratio")


def _acceptance_length(points: Sequence[Point], growth: Growth) -> float | None:
    """Return the tokens that a step gives: one, and those of the draft that are accepted."""
    drafts, accepted = growth.counter(DRAFTS), growth.counter(ACCEPTED)
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    return _mean(points, "spec_decode_mean_acceptance_length")


def _positions(points: Sequence[Point], growth: Growth) -> tuple[float, ...]:
    """Return the share of drafts accepted at each position."""
    drafts, by_position = growth.counter(DRAFTS), growth.labelled(ACCEPTED)
    if drafts and by_position:
        return tuple(min(by_position[position] / drafts, 1.0) for position in sorted(by_position, key=int))
    logged = [
        tuple(each for each in point.position_acceptance if each is not None)
        for point in points[1:]
        if point.is_fresh and point.position_acceptance
    ]
    if not logged or len({len(each) for each in logged}) != 1:
        return ()
    return tuple(sum(each) / len(each) for each in zip(*logged, strict=True))
