# SPDX-License-Identifier: Apache-2.0
"""
Whether values in order rise or fall: the Mann-Kendall test, corrected for autocorrelation (Yue and Wang 2004).

The plain test takes neighbours that resemble each other for a trend. The correction makes the variance of its score
larger, by the lag-1 autocorrelation of what is left after Sen's slope is taken out.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from statistics import NormalDist, fmean, median
from typing import NamedTuple


def autocorrelation(values: Sequence[float], lag: int = 1) -> float:
    """Return the correlation of the values with those `lag` later, from -1 to 1; 0 if they are constant or too few."""
    if len(values) <= lag + 1:
        return 0.0
    mean = math.fsum(values) / len(values)
    from_mean = [each - mean for each in values]
    square = math.fsum(each * each for each in from_mean)
    if square <= (abs(mean) * 1e-12) ** 2 * len(values):  # Constant, but for rounding.
        return 0.0
    return math.fsum(x * y for x, y in zip(from_mean, from_mean[lag:], strict=False)) / square


def effective_count(values: Sequence[float]) -> float:
    """
    Return how many independent values would be as precise: n(1 - r)/(1 + r) with the lag-1 autocorrelation r.

    It is at most n: a negative autocorrelation is not taken as more knowledge.
    """
    rho = min(max(autocorrelation(values), 0.0), 0.999)
    return len(values) * (1 - rho) / (1 + rho)


MIN_VALUES = 8
"""Of fewer values the normal approximation of the test is wrong."""
MAX_VALUES = 200
"""More are averaged in groups: the test takes time with their square."""


class Trend(NamedTuple):
    """`drift` is how much Sen's line rises from the first to the last value, `p` the chance of that without a trend."""

    drift: float
    p: float


def mann_kendall(values: Sequence[float]) -> Trend | None:
    """Return the trend of values at equal distances, or `None` if there are fewer than eight."""
    if len(values) < MIN_VALUES:
        return None
    grouped = _grouped(values)
    slope = _sen_slope(grouped)
    drift = slope * (len(grouped) - 1)
    pairs = [(x > y) - (x < y) for at, y in enumerate(grouped) for x in grouped[at + 1 :]]
    score = sum(pairs)
    variance = _variance(grouped) * _correction([y - slope * x for x, y in enumerate(grouped)])
    if variance <= 0 or score == 0:
        return Trend(drift, 1.0)
    z = (abs(score) - 1) / math.sqrt(variance)
    return Trend(drift, min(2 * (1 - NormalDist().cdf(z)), 1.0))


def _grouped(values: Sequence[float]) -> list[float]:
    """Return the values, or means of consecutive ones so that at most 200 are left."""
    size = math.ceil(len(values) / MAX_VALUES)
    return [fmean(values[at : at + size]) for at in range(0, len(values) - size + 1, size)]


def _sen_slope(values: Sequence[float]) -> float:
    return median((values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values)))


def _variance(values: Sequence[float]) -> float:
    """Return the variance of the score of independent values; ties make it smaller."""
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    tied = sum(number * (number - 1) * (2 * number + 5) for number in counts.values())
    n = len(values)
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


def _correction(values: Sequence[float]) -> float:
    """
    Return by how much autocorrelation makes the variance larger, at least 1: 1 + 2 Σ (1 - k/n) r^k.

    Of few values, whose trend was taken out, the lag-1 autocorrelation r comes out too low; that is set right first.
    """
    n = len(values)
    rho = min(max((n * autocorrelation(values) + 2) / (n - 4), 0.0), 0.95)
    return 1 + 2 * math.fsum((1 - lag / n) * rho**lag for lag in range(1, n))
