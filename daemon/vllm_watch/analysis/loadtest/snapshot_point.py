# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a server as one point of its history: all its engines together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from vllm_watch.analysis.loadtest.history import Point, labelled
from vllm_watch.daemon.catalog.states import STATES, EngineState
from vllm_watch.daemon.state.snapshot import EngineTotals, ServerSnapshot
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import Histogram, MetricsReading


HIT_COUNTERS = (
    "prompt_tokens_cached",
    "prompt_tokens_computed",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
)
"""Counters of a scrape that are no series, by the names of `metric_names`."""

FINISHED = "requests_finished_total"
REJECTIONS = "admission_rejections_total"
HTTP_REQUESTS = "http_requests_total"
ACCEPTED = "spec_decode_accepted_tokens_total"
_RATIO = "_ratio"
_MEAN = "spec_decode_mean_acceptance_length"


def snapshot_point(snapshot: ServerSnapshot, reading: MetricsReading | None, *, is_fresh: bool) -> Point:
    """
    Return a snapshot as a point.

    Args:
        snapshot: The snapshot.
        reading: The last scrape, for what is counted there and is no series.
        is_fresh: Whether a source has reported something since the point before.
    """
    totals = [*(engine.totals for engine in snapshot.engines), *snapshot.former]
    counters = _counters(totals)
    counters.update(_request_counters(snapshot))
    if reading is not None:
        counters.update(_reading_counters(reading))
    return Point(
        snapshot.at,
        worst_state(engine.state for engine in snapshot.engines),
        _gauges(snapshot),
        counters,
        _histograms(totals),
        _positions(snapshot),
        snapshot.starts,
        is_fresh,
    )


def worst_state(states: Iterable[EngineState]) -> EngineState:
    """Return the state of a server whose engines are in these states."""
    return max(states, key=lambda state: STATES[state].severity, default="unknown")


def _gauges(snapshot: ServerSnapshot) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for engine in snapshot.engines:
        for name, reading in engine.gauges.items():
            values[name].append(reading.value)
    return {name: together(name, each) for name, each in values.items() if name != "last_token_timestamp_seconds"}


def together(name: str, values: list[float]) -> float:
    """Return the value of all engines together: the mean of ratios, the sum of everything else."""
    is_mean = name.endswith(_RATIO) or name == _MEAN
    return sum(values) / len(values) if is_mean else sum(values)


def _counters(totals: Iterable[EngineTotals]) -> dict[str, float]:
    counters: dict[str, float] = defaultdict(float)
    for each in totals:
        for name, reading in each.counters.items():
            counters[name] += reading.value
        for reason, reading in each.requests_finished.items():
            counters[labelled(FINISHED, reason)] += reading.value
    return dict(counters)


def _request_counters(snapshot: ServerSnapshot) -> dict[str, float]:
    """Return the requests for tokens by class of HTTP status, and those that were rejected at the door."""
    counters: dict[str, float] = defaultdict(float)
    for key, count in snapshot.http_requests.items():
        if key.handler in INFERENCE_HANDLERS and key.code[:1].isdigit():
            counters[labelled(HTTP_REQUESTS, f"{key.code[0]}xx")] += count
    for reading in snapshot.admission_rejections.values():
        counters[REJECTIONS] += reading.value
    return dict(counters)


def _reading_counters(reading: MetricsReading) -> dict[str, float]:
    counters: dict[str, float] = defaultdict(float)
    for engine in reading.engines.values():
        for name in HIT_COUNTERS:
            if name in engine.counters:
                counters[name] += engine.counters[name]
        for position, accepted in enumerate(engine.position_accepted):
            counters[labelled(ACCEPTED, str(position))] += accepted
    return dict(counters)


def _histograms(totals: Iterable[EngineTotals]) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for each in totals:
        for name, reading in each.histograms.items():
            other = found.get(name)
            if other is None:
                found[name] = reading.histogram
            elif other.bounds == reading.histogram.bounds:
                found[name] = added(other, reading.histogram)
    return found


def added(one: Histogram, other: Histogram) -> Histogram:
    """Return two histograms with the same bounds as one."""
    counts = tuple(left + right for left, right in zip(one.counts, other.counts, strict=True))
    return Histogram(one.bounds, counts, one.sum + other.sum, one.is_estimate or other.is_estimate)


def _positions(snapshot: ServerSnapshot) -> tuple[float | None, ...]:
    """Return the mean acceptance at each position, as far as all engines that have drafts know it."""
    every: list[Mapping[int, float]] = [
        {index: each.value for index, each in enumerate(engine.position_acceptance) if each is not None}
        for engine in snapshot.engines
        if engine.position_acceptance
    ]
    length = max((max(each, default=-1) for each in every), default=-1) + 1
    by_position = [[each[index] for each in every if index in each] for index in range(length)]
    return tuple(sum(each) / len(each) if each else None for each in by_position)
