# SPDX-License-Identifier: Apache-2.0
"""
The steady window: the part of a load test whose numbers describe a settled server.

It is chosen by precision and never by what its values are. In this order:

1. Only the time in which requests were issued counts, so the drain at the end is left out.
2. The warm-up is cut by MSER-5, at the latest cut of the quantities that decide: time per output token and running
   requests; never more than half. Time to first token does not decide, it varies ten times as much.
3. What rises or falls has no mean: the Mann-Kendall test, corrected for autocorrelation, finds a trend, and one of
   less than 5 % from end to end is ignored.
4. The window must be long enough: 60 s, five times the P99 latency, and as long as it takes until the mean of what
   is measured is known to 5 %. How many requests run is chance where they arrive by chance, and is seen at moments
   only.

A window that fails 3 or 4 is returned with its problem: a reader wants to see it, and why its values say little.
"""

from __future__ import annotations

import math

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from vllm_watch.daemon.statistics.trend import effective_count, mann_kendall


GROUP = 5


def mser_cut(values: Sequence[float], group: int = GROUP) -> int | None:
    """
    Return how many values to leave out at the beginning, by MSER-5 (White 1997; White, Cobb and Spratt 2000).

    The values are averaged in groups; the cut is where the standard error of the mean of the rest is least.

    `None` if the best cut would leave out half or more: the series has not settled. Short series take smaller groups.
    """
    means = [fmean(values[at : at + group]) for at in range(0, len(values) - group + 1, group)]
    if not means:
        return None
    best, least = 0, math.inf
    count, total, square = 0, 0.0, 0.0
    centre = fmean(means)  # Squares of large numbers with small differences would lose their digits.
    for place in range(len(means) - 1, -1, -1):
        value = means[place] - centre
        count, total, square = count + 1, total + value, square + value * value
        error = max(square - total * total / count, 0.0) / (count * count)
        # The last few groups agree by chance; and of equally good cuts the earliest leaves the most.
        if count >= max(len(means) // 4, 2) and error <= least * (1 + 1e-9):
            best, least = place, error
    return None if len(means) > 1 and best * 2 >= len(means) else best * group


METHOD = "MSER-5 on time per output token and running requests while requests are issued, no trend above 5 %"

MIN_SECONDS = 60.0
LATENCIES = 5
"""The window has at least this many times the P99 latency of a request."""
MIN_VALUES = 10
IGNORED_DRIFT = 0.05
PRECISION = 0.05
_SIGNIFICANCE = 0.05
_NORMAL = 1.96


class SteadyWindow(NamedTuple):
    """From when to when, in the unit of the times; `problem` is a sentence if its values say little."""

    start: float
    end: float
    problem: str | None = None


def find_steady_window(
    times: Sequence[float],
    quantities: Mapping[str, Sequence[float | None]],
    issued: tuple[float, float] | None = None,
    p99_latency: float | None = None,
    measured: str = "time per output token",
) -> SteadyWindow | None:
    """
    Find the steady window of a load test.

    Args:
        times: In seconds, rising; at about equal distances.
        quantities: What decides, by the name that a problem is told with: one value at each time, `None` where there
            was none. Usually ``time per output token`` and ``running requests``.
        issued: When the first and the last request was issued; `None`: all times count.
        p99_latency: The P99 of a request's whole latency, in seconds.
        measured: The quantity whose mean must be known to 5 %.

    Returns:
        `None` if there are fewer than ten times with values.
    """
    first, last = (0, len(times)) if issued is None else (bisect_left(times, issued[0]), bisect_right(times, issued[1]))
    series = {name: _known(values[first:last]) for name, values in quantities.items()}
    series = {name: known for name, known in series.items() if len(known) >= MIN_VALUES}
    if not series:
        return None
    start = first + max(map(_cut, series.values()))
    kept = {name: [value for place, value in known if place + first >= start] for name, known in series.items()}
    problem = _drift(kept) or _too_short(times[last - 1] - times[start], p99_latency)
    problem = problem or _imprecise(measured, kept.get(measured, ()))
    return SteadyWindow(times[start], times[last - 1], problem)


def _known(values: Sequence[float | None]) -> list[tuple[int, float]]:
    return [(place, value) for place, value in enumerate(values) if value is not None]


def _cut(known: Sequence[tuple[int, float]]) -> int:
    """
    Return the place at which the warm-up of a quantity is over, at most the middle.

    MSER-5 is misled by a slow drift into cutting more; whether that drift matters is a question of its own.
    """
    cut = mser_cut([value for _, value in known], min(GROUP, max(len(known) // MIN_VALUES, 1)))
    return known[len(known) // 2 if cut is None else cut][0]


def _drift(kept: Mapping[str, Sequence[float]]) -> str | None:
    for name, values in kept.items():
        trend, mean = mann_kendall(values), fmean(values) if values else 0.0
        if trend is None or trend.p >= _SIGNIFICANCE or abs(trend.drift) <= IGNORED_DRIFT * abs(mean):
            continue
        change = trend.drift / abs(mean) if mean else math.inf
        drifted = f"{name} drifted by {100 * change:+.0f} % of its mean"
        return f"no steady state: {drifted} from the start to the end of the window"
    return None


def _too_short(seconds: float, p99_latency: float | None) -> str | None:
    needed = max(MIN_SECONDS, LATENCIES * (p99_latency or 0.0))
    return f"too short: {seconds:,.0f} s are steady, and {needed:,.0f} s are needed" if seconds < needed else None


def _imprecise(name: str, values: Sequence[float]) -> str | None:
    mean = fmean(values) if values else 0.0
    if mean <= 0:
        return None
    precision = _NORMAL * pstdev(values) / mean / math.sqrt(max(effective_count(values), 1.0))
    if precision <= PRECISION:
        return None
    known, needed = f"±{100 * precision:.1f} %", f"±{100 * PRECISION:.0f} %"
    return f"too short: {name} varies so much that its mean is known to {known}, and {needed} are needed"
