# SPDX-License-Identifier: Apache-2.0
"""
The steady window: the part of a load test whose numbers describe a settled server.

It is chosen by precision and never by what its values are. In this order:

1. Only the time in which requests were issued counts, so the drain at the end is left out; of several parts between
   stalls the longest counts.
2. All of it is kept, but for a beginning or an end whose mean surely differs from the rest's, by autocorrelated noise
   as in the rest, and that moves the mean of the whole by 1 %; never more than half.
3. What rises or falls has no mean: the Mann-Kendall test, corrected for autocorrelation, finds a trend, and one of
   less than 5 % from end to end is ignored. Nor has a server whose queue grows or drains.
4. The window must be long enough: 60 s, five times what the slowest requests take, and as long as it takes until the
   mean of what is measured is known to 5 %. How many requests run is chance where they arrive by chance, and is seen
   at moments only.

A window that fails 3 or 4 is returned with its problem: a reader wants to see it, and why its values say little.
"""

from __future__ import annotations

import math

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev, variance
from typing import NamedTuple

from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.statistics.student_t import t_quantile
from vllm_watch.daemon.statistics.trend import autocorrelation, effective_count, mann_kendall


METHOD = N_(
    "what surely differs from the rest is left out at both ends, no trend above 5 %, no queue that grows or drains"
)

MIN_SECONDS = 60.0
LATENCIES = 5
"""The window has at least this many times the P99 latency of a request."""
MIN_VALUES = 10
IGNORED_DRIFT = 0.05
PRECISION = 0.05
MEASURED = N_("time per output token")
"""The quantity whose mean must be known to 5 %."""

_GROUPS = 60
"""More values are averaged: neighbours of a fine series resemble each other, and say nothing new."""
_CUT_SIGNIFICANCE = 0.0005
"""Of each place at which a beginning may end: there are some thirty of them that differ little."""
_MOVES_MEAN = 0.01
_DRIFT_SIGNIFICANCE = 0.01
_NORMAL = 1.96
_QUEUE_PARTS = 5
_QUEUE_SHARE = 0.5
_FEWEST_QUEUED = 2.0


class SteadyWindow(NamedTuple):
    """From when to when, in the unit of the times; `problem` is a sentence if its values say little."""

    start: float
    end: float
    problem: str | None = None


class Server(NamedTuple):
    """
    What a server did: a value at each time.

    `serves`: whether it served all through the interval before that time; a window holds no other one.
    """

    serves: Sequence[bool]
    running: Sequence[float | None]
    waiting: Sequence[float | None]


def find_steady_window(
    times: Sequence[float],
    quantities: Mapping[str, Sequence[float | None]],
    issued: tuple[float, float] | None = None,
    p99_latency: float | None = None,
    server: Server | None = None,
) -> SteadyWindow | None:
    """
    Find the steady window of a load test.

    Args:
        times: In seconds, rising; at about equal distances.
        quantities: What decides, by the name that a problem is told with: one value for the interval before each time,
            `None` where there was none.
        issued: When the first and the last request was issued; `None`: all times count.
        p99_latency: What the slowest hundredth of the requests takes at least, in seconds.
        server: If it is known.

    Returns:
        `None` if there are fewer than ten times with values.
    """
    first, last = (0, len(times)) if issued is None else (bisect_left(times, issued[0]), bisect_right(times, issued[1]))
    if server is not None:
        first, last = _longest(server.serves, first, last)
    known = {name: values for name, values in quantities.items() if len(_numbers(values[first:last])) >= MIN_VALUES}
    if not known:
        return None
    start, end = _settled(known, first, last)
    kept = {name: _numbers(values[start:end]) for name, values in known.items()}
    # A value is of the interval before its time: the window begins with the first interval that is kept.
    began = times[start - 1] if start > first else times[start]
    problem = _queue_change(server, start, end) or _drift(kept)
    problem = problem or _too_short(times[end - 1] - began, p99_latency) or _imprecise(kept.get(MEASURED, ()))
    return SteadyWindow(began, times[end - 1], problem)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _longest(serves: Sequence[bool], first: int, last: int) -> tuple[int, int]:
    ends = [first - 1, *(index for index in range(first, last) if not serves[index]), last]
    before, after = max(pairwise(ends), key=lambda ends: ends[1] - ends[0])
    return before + 1, after


def _settled(known: Mapping[str, Sequence[float | None]], first: int, last: int) -> tuple[int, int]:
    """Return from where to where all quantities have settled, at least half of the places."""
    most = (last - first) // 2
    start = first + max(_unlike(values[first:last], most) for values in known.values())
    left = most - (start - first)
    end = last - max(_unlike(values[start:last][::-1], left) for values in known.values())
    return start, end


def _unlike(values: Sequence[float | None], most: int) -> int:
    """Return how many values at the beginning, at most `most`, are surely unlike the rest; 0 if none are."""
    size = math.ceil(len(values) / _GROUPS)
    edges = range(0, len(values) - size + 1, size)
    groups = [(at, fmean(part)) for at in edges if (part := _numbers(values[at : at + size]))]
    best, most_sure = 0, 1.0
    for count in range(1, len(groups) - MIN_VALUES // 2):
        if groups[count][0] > most:
            break
        sureness = _sureness([value for _, value in groups[:count]], [value for _, value in groups[count:]])
        if sureness > most_sure:
            best, most_sure = groups[count][0], sureness
    return best


def _sureness(head: Sequence[float], rest: Sequence[float]) -> float:
    """
    Return by how many times a head's mean differs more from the rest's than chance lets it; 0 if it matters little.

    The rest has the noise: a head that rises or falls has none of its own. Of few values that resemble each other both
    autocorrelation and variance come out too low; that is set right.
    """
    n, mean = len(rest), fmean(rest)
    difference = abs(fmean(head) - mean)
    if difference * len(head) <= _MOVES_MEAN * abs(mean) * (len(head) + n):
        return 0.0
    rho = min(max((n * autocorrelation(rest) + 1) / (n - 3), 0.0), 0.95)
    alike = _inflation(n, rho)
    degrees = n / alike - 1
    if degrees < 1:
        return 0.0
    spread = variance(rest) * (n - 1) / (n - alike)
    error = math.sqrt(spread * (_inflation(len(head), rho) / len(head) + alike / n))
    return difference / error / t_quantile(1 - _CUT_SIGNIFICANCE / 2, degrees) if error > 0 else math.inf


def _inflation(count: int, rho: float) -> float:
    """Return by how much a lag-1 autocorrelation makes the variance of a mean of so many values larger."""
    if rho <= 0:
        return 1.0
    return (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**count) / (count * (1 - rho) ** 2)


def _queue_change(server: Server | None, start: int, end: int) -> str | None:
    """Return what is wrong if parts of the window had much longer queues than others."""
    if server is None:
        return None
    waiting, running = _numbers(server.waiting[start:end]), _numbers(server.running[start:end])
    if len(waiting) < MIN_VALUES:
        return None
    edges = [round(part * len(waiting) / _QUEUE_PARTS) for part in range(_QUEUE_PARTS + 1)]
    parts = [fmean(waiting[edges[part] : edges[part + 1]]) for part in range(_QUEUE_PARTS)]
    least, most = min(parts), max(parts)
    if most - least <= max(_FEWEST_QUEUED, _QUEUE_SHARE * fmean(running or [0.0])):
        return None
    if parts.index(least) < parts.index(most):
        grew = N_("no steady state: the queue grew from {least:,.0f} to {most:,.0f} requests within the window")
        return _(grew, least=least, most=most)
    drained = N_("no steady state: the queue drained from {most:,.0f} to {least:,.0f} requests within the window")
    return _(drained, least=least, most=most)


def _drift(kept: Mapping[str, Sequence[float]]) -> str | None:
    for name, values in kept.items():
        trend, mean = mann_kendall(values), fmean(values) if values else 0.0
        if trend is None or trend.p >= _DRIFT_SIGNIFICANCE or abs(trend.drift) <= IGNORED_DRIFT * abs(mean):
            continue
        change = trend.drift / abs(mean) if mean else math.inf
        return _(
            "no steady state: {name} drifted by {change:+.0f} % of its mean from the start to the end of the window",
            name=_(name),
            change=100 * change,
        )
    return None


def _too_short(seconds: float, p99_latency: float | None) -> str | None:
    needed = max(MIN_SECONDS, LATENCIES * (p99_latency or 0.0))
    if seconds >= needed:
        return None
    if needed == MIN_SECONDS:
        longer = N_(
            "too short: {seconds:,.0f} s are steady, and {needed:,.0f} s are needed: send the same load for longer"
        )
        return _(longer, seconds=seconds, needed=needed)
    return _(
        "too short: {seconds:,.0f} s are steady, and {needed:,.0f} s are needed, {times} times its slowest requests: a "
        "longer load or shorter answers help",
        seconds=seconds,
        needed=needed,
        times=LATENCIES,
    )


def _imprecise(values: Sequence[float]) -> str | None:
    mean = fmean(values) if values else 0.0
    if mean <= 0:
        return None
    precision = _NORMAL * pstdev(values) / mean / math.sqrt(max(effective_count(values), 1.0))
    if precision <= PRECISION:
        return None
    return _(
        "too short: {name} varies so much that its mean is known to ±{precision:.1f} %, and ±{needed:.0f} % are needed",
        name=_(MEASURED),
        precision=100 * precision,
        needed=100 * PRECISION,
    )
