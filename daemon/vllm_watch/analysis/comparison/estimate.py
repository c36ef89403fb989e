# SPDX-License-Identifier: Apache-2.0
"""What several runs of each side tell of a metric: the ratio of b to a with its interval, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.analysis.comparison.comparison_model import Metric, metric_bounds, metric_value, needed_values
from vllm_watch.analysis.comparison.pair import (
    Measured,
    Pair,
    is_near_saturation,
    is_saturated,
    metric_values,
    varies_by_chance,
)
from vllm_watch.analysis.loadtest.load_test import Bounds, bounded
from vllm_watch.daemon.catalog.number_texts import limit
from vllm_watch.daemon.statistics.ratio import Interval, ratio_interval


_QUEUE = "Near saturation a few runs tell nothing of TTFT, for some have a queue and others do not."
_QUEUE_UNKNOWN = (
    "Whether the load was near saturation, where some runs have a queue and others do not, is not known: give the "
    "server's log or a recording with each run."
)


class Estimate(NamedTuple):
    """The interval, or why there is none (`refusal`); `doubt` is why a difference is no more than likely."""

    interval: Interval | None = None
    low: float | None = None
    high: float | None = None
    refusal: str | None = None
    doubt: str | None = None


def missing(metric: Metric, pair: Pair) -> str | None:
    """Return why two sides have no ratio in a metric, `None` if they have one."""
    for side in pair.sides:
        known = metric_values(metric, side)
        if not known:
            return f"No value is known of {side.name}."
        if min(known) <= 0:
            return f"A value of {side.name} is {limit(min(known))}, which has no ratio."
    return None


def estimate(metric: Metric, pair: Pair, confidence: float) -> Estimate:
    """Return what the runs of two sides, which have values, tell of a metric; its interval is at this confidence."""
    a, b = (metric_values(metric, side) for side in pair.sides)
    found = ratio_interval(a, b, confidence)
    if found is None:
        return Estimate(refusal="All runs of a side have the same value, so nothing is known of how they vary.")
    near = _near_saturation(metric, pair)
    if True in near:
        return Estimate(refusal=f"{_QUEUE} Test at a lower rate, or with a fixed number of users (--max-concurrency).")
    known = Estimate(found, found.low, found.high, doubt=_QUEUE_UNKNOWN if None in near else None)
    return _with_bounds(known, _bounds(metric, pair.a), _bounds(metric, pair.b))


def notes(metric: Metric, pair: Pair) -> list[str]:
    """Return what a reader must know of the values of a metric."""
    found = []
    if metric.latency in {"ttft_ms", "e2el_ms"} and pair.is_burst:
        found.append("It is mostly the wait in the queue of a burst.")
    few = [needed for side in pair.sides for result in side.results if (needed := needed_values(metric, result))]
    if few:
        found.append(f"{metric.statistic.upper()} of fewer than {few[0]} requests in a run may be below the true one.")
    buckets = [_bounds(metric, side) for side in pair.sides]
    if buckets != [None, None]:
        texts = [_bucket(side, metric, known) for side, known in zip(pair.sides, buckets, strict=True)]
        found.append(f"From buckets: {' and '.join(texts)} {metric.unit}.")
    if min(len(side.runs) for side in pair.sides) == 1 and not pair.is_single:
        found.append("A side of one run is taken to vary as the other does.")
    return found


def _bucket(side: Measured, metric: Metric, known: Bounds | None) -> str:
    values = metric_values(metric, side)
    return bounded(known) if known is not None else limit(sum(values) / len(values)) if values else "an unknown value"


def _bounds(metric: Metric, side: Measured) -> Bounds | None:
    """Return the bounds of all runs together, if any run has its percentile from buckets."""
    known = [bounds for result in side.results if (bounds := metric_bounds(metric, result)) is not None]
    if not known:
        return None
    lows, highs = [each.low for each in known], [each.high for each in known]
    exact = [
        value
        for result in side.results
        if metric_bounds(metric, result) is None and (value := metric_value(metric, result)) is not None
    ]
    return Bounds(
        low=None if None in lows else min([*(low for low in lows if low is not None), *exact]),
        high=None if None in highs else max([*(high for high in highs if high is not None), *exact]),
    )


def _with_bounds(known: Estimate, a: Bounds | None, b: Bounds | None) -> Estimate:
    """Widen an interval to what the buckets leave open; what may be in one bucket has no interval."""
    if known.interval is None or (a is None and b is None):
        return known
    a, b = a or Bounds(), b or Bounds()
    low = None if b.low is None or not a.high else b.low / a.high
    high = None if b.high is None or not a.low else b.high / a.low
    if (low is None or low <= 1) and (high is None or high >= 1):
        return Estimate(refusal="The buckets that the values are in overlap.")
    return known._replace(
        low=None if low is None else min(low, known.interval.low),
        high=None if high is None else max(high, known.interval.high),
    )


def _near_saturation(metric: Metric, pair: Pair) -> Sequence[bool | None]:
    """Return of each run whether a queue was left to chance; if it was, an interval of a few runs is too narrow."""
    if metric.latency != "ttft_ms":
        return ()
    return [
        is_near_saturation(run, result)
        for side in pair.sides
        for run, result in zip(side.runs, side.results, strict=True)
        if varies_by_chance(run) and not is_saturated(run, result)
    ]
