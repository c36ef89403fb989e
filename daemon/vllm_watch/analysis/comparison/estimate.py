# SPDX-License-Identifier: Apache-2.0
"""
What several runs of each side tell of a metric: the ratio of b to a with its interval, or why there is none.

Student's t over the runs' logarithms is in `statistics.ratio`; `verdicts` gives the confidence, and decides.
"""

from __future__ import annotations

import math

from typing import NamedTuple

from vllm_watch.analysis.comparison.comparison_model import Metric, metric_bounds, metric_value, needed_values
from vllm_watch.analysis.comparison.pair import Measured, Pair, metric_values
from vllm_watch.analysis.loadtest.load_test import Bounds, Result, Run, ServerUse, bounded
from vllm_watch.analysis.loadtest.offered_load import is_saturated, load_kind
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.number_texts import limit
from vllm_watch.daemon.statistics.ratio import Interval, ratio_interval


_WAITING_SHARE = 0.02
"""A request waits for the end of a step also where there is room, which is less than this part of its time."""
_ROOM = 5.0
"""
How much room a load at a rate needs besides the mean number of requests, in square roots of that number.

In simulated servers with room for 32, the intervals of TTFT hold the truth at loads that leave this room, and fail at
others: there some runs have a queue and others do not, which the runs without one cannot tell.
"""
_LEAST_ROOM = 128
"""vLLM's lowest default of ``--max-num-seqs`` (``SchedulerConfig.DEFAULT_MAX_NUM_SEQS``)."""

_QUEUE = N_(
    "Near saturation a few runs tell nothing of TTFT, for some have a queue and others do not. Test at a lower "
    "rate, or with a fixed number of users (--max-concurrency)."
)
_QUEUE_UNKNOWN = N_(
    "Whether the load was near saturation, where some runs have a queue and others do not, is not known: give "
    "the server's log or a recording with each run."
)


class Estimate(NamedTuple):
    """The interval, or why there is none (`refusal`); `doubt` is why a difference is no more than likely."""

    interval: Interval | None = None
    low: float | None = None
    high: float | None = None
    refusal: str | None = None
    doubt: str | None = None


def estimate(metric: Metric, pair: Pair, confidence: float) -> Estimate:
    """Return what the runs of two sides, whose values are above 0, tell of a metric, at this confidence."""
    a, b = (metric_values(metric, side) for side in pair.sides)
    interval = ratio_interval(a, b, confidence)
    if interval is None:
        return Estimate(refusal=_("All runs of a side have the same value, so nothing is known of how they vary."))
    # If a queue was left to chance in any run, an interval of a few runs is too narrow.
    by_chance = [
        is_near_saturation(run)
        for side in pair.sides
        for run, result in side.measured_runs
        if metric.latency == "ttft_ms" and _varies_by_chance(run) and not is_saturated(run, result)
    ]
    if True in by_chance:
        return Estimate(refusal=_(_QUEUE))
    known = Estimate(interval, interval.low, interval.high, doubt=_(_QUEUE_UNKNOWN) if None in by_chance else None)
    return _with_bounds(known, _bounds(metric, pair.a), _bounds(metric, pair.b))


def is_near_saturation(run: Run) -> bool | None:
    """
    Return whether requests queued for a place in the batch, or could have by chance, `None` if that is not known.

    Then the time to the first token is that of the queue. The number of users bounds it: only at a rate it may grow.
    """
    use = run.use if run.steady is None or run.steady.use.waiting is None else run.steady.use
    if use.waiting is None or use.running is None or use.waiting + use.running <= 0:
        return None
    if use.waiting / (use.waiting + use.running) > _WAITING_SHARE:
        return True
    # Each engine has its own queue, and its own chance that it grows.
    places = _places(run)
    engines = max(round(run.max_running_requests / places), 1) if run.max_running_requests and places else 1
    running = use.running / engines
    return _varies_by_chance(run) and running + _ROOM * math.sqrt(running) > _room(places, running, use)


def notes(metric: Metric, pair: Pair) -> list[str]:
    """Return what a reader must know of the values of a metric."""
    texts = []
    if metric.latency in {"ttft_ms", "e2el_ms"} and pair.is_burst:
        texts.append(_("It is mostly the wait in the queue of a burst."))
    few = [needed for side in pair.sides for result in side.results if (needed := needed_values(metric, result))]
    if few:
        texts.append(
            _(
                "{statistic} of fewer than {count} requests in a run may be below the true one.",
                statistic=metric.statistic.upper(),
                count=few[0],
            )
        )
    buckets = [_bounds(metric, side) for side in pair.sides]
    if buckets != [None, None]:
        ranges = [_bucket(side, metric, bounds) for side, bounds in zip(pair.sides, buckets, strict=True)]
        texts.append(_("From buckets: {ranges} {unit}.", ranges=_(" and ").join(ranges), unit=_(metric.unit)))
    if min(len(side.runs) for side in pair.sides) == 1 and not pair.is_single:
        texts.append(_("A side of one run is taken to vary as the other does."))
    return texts


def _bucket(side: Measured, metric: Metric, bounds: Bounds | None) -> str:
    values = metric_values(metric, side)
    return (
        bounded(bounds)
        if bounds is not None
        else limit(sum(values) / len(values))
        if values
        else _(
            "an unknown value",
        )
    )


def _bounds(metric: Metric, side: Measured) -> Bounds | None:
    """Return the bounds of all runs together, if any run has its percentile from buckets."""
    if not any(metric_bounds(metric, result) for result in side.results):
        return None
    ranges = [metric_bounds(metric, result) or _exact(metric, result) for result in side.results]
    lows, highs = [each.low for each in ranges if each], [each.high for each in ranges if each]
    return Bounds(
        low=None if None in lows else min(low for low in lows if low is not None),
        high=None if None in highs else max(high for high in highs if high is not None),
    )


def _exact(metric: Metric, result: Result) -> Bounds | None:
    value = metric_value(metric, result)
    return None if value is None else Bounds(low=value, high=value)


def _with_bounds(known: Estimate, a: Bounds | None, b: Bounds | None) -> Estimate:
    """Widen an interval to what the buckets leave open; what may be in one bucket has no interval."""
    if known.interval is None or (a is None and b is None):
        return known
    a, b = a or Bounds(), b or Bounds()
    low = None if b.low is None or not a.high else b.low / a.high
    high = None if b.high is None or not a.low else b.high / a.low
    if (low is None or low <= 1) and (high is None or high >= 1):
        return Estimate(refusal=_("The buckets that the values are in overlap."))
    return known._replace(
        low=None if low is None else min(low, known.interval.low),
        high=None if high is None else max(high, known.interval.high),
    )


def _varies_by_chance(run: Run) -> bool:
    """Return whether the number of requests at once is left to chance: they come at a rate, or it is not known how."""
    return load_kind(run.load) not in {"closed", "burst"}


def _room(places: int | None, running: float, use: ServerUse) -> float:
    """Return how many requests an engine runs at most: the places of its batch, or how many fit into its KV cache."""
    most = places or _LEAST_ROOM
    return min(most, running / use.kv_cache_usage_ratio) if running and use.kv_cache_usage_ratio else most


def _places(run: Run) -> int | None:
    given = (run.config.get(flag, "") for flag in ("max-num-seqs", "max-num-active-seqs"))
    return min((int(number) for number in given if number.isdecimal()), default=None)
