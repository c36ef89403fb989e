# SPDX-License-Identifier: Apache-2.0
"""
The ratio of two configurations, its interval, and how many runs would show it, from a value of each run.

Values of runs vary by a factor, not by an amount, so the test is Student's t on their logarithms, and the estimate the
ratio of the geometric means. Both sides are taken to vary alike, for of two or three runs it is hardly known how they
vary. Where the side of fewer runs clearly varies more, each has its own variance (Welch 1947, with the degrees of
freedom of Satterthwaite 1946); where that of more runs does, one variance is on the safe side.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.daemon.statistics.student_t import t_quantile, t_tail


CONFIDENCE = 0.95
POWER = 0.9
"""How often a difference of the detectable size is found."""
MOST_RUNS = 1000
"""Nobody makes more runs of each side than this to find a difference."""

_FEWEST_FOR_WELCH = 3
_CLEARLY_MORE = 4.0
"""From this ratio of the standard deviations on, sides with three runs or more do not share one variance."""


class Interval(NamedTuple):
    """
    An estimate and its bounds; all are ratios, b to a. `degrees` are the degrees of freedom.

    `error` is the standard error of the logarithm, `p` the probability of such a difference or a larger one without
    any cause.
    """

    ratio: float
    low: float
    high: float
    p: float
    error: float
    degrees: float


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, or `None` of no values or of one that is not positive; one value is its own mean."""
    if not values or min(values) <= 0:
        return None
    return values[0] if len(values) == 1 else math.exp(math.fsum(map(math.log, values)) / len(values))


def ratio_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """
    Return the ratio of b to a with its interval.

    A side of one value is taken to vary as the other does. `None` if neither side has two values, or one is not
    positive, or if no value differs from the others of its side: then nothing is known of how they vary.
    """
    if not a or not b or min(*a, *b) <= 0 or len(a) + len(b) <= 2:
        return None
    (mean_a, squares_a), (mean_b, squares_b) = _of_logarithms(a), _of_logarithms(b)
    error, degrees = _pooled(squares_a, squares_b, (len(a), len(b)))
    if min(len(a), len(b)) >= _FEWEST_FOR_WELCH:
        one, other = sorted(((len(a), squares_a / (len(a) - 1)), (len(b), squares_b / (len(b) - 1))))
        if one[1] > _CLEARLY_MORE**2 * other[1] or (one[0] == other[0] and other[1] > _CLEARLY_MORE**2 * one[1]):
            error, degrees = _welch(one, other)
    if error <= abs(mean_a - mean_b) * 1e-12 + 1e-15:  # Less than what rounding does.
        return None
    return _log_interval(mean_b - mean_a, error, degrees, confidence)


def detectable_difference(cv: float, runs: int, confidence: float = CONFIDENCE, power: float = POWER) -> float:
    """
    Return the smallest relative difference that a number of runs on each side finds.

    Args:
        cv: Coefficient of variation between runs of one configuration.
        runs: How many there are on each side, at least 2.
        confidence: Of the interval.
        power: How often it is found.
    """
    degrees = 2 * runs - 2
    steps = t_quantile(0.5 + confidence / 2, degrees) + t_quantile(power, degrees)
    return _exp(steps * cv * math.sqrt(2 / runs)) - 1


def needed_runs(cv: float, difference: float, confidence: float = CONFIDENCE) -> int | None:
    """
    Return how many runs of each side find a relative difference, at least 2: the fewest with a detectable one so small.

    `None` if a thousand are not enough.
    """
    if detectable_difference(cv, MOST_RUNS, confidence) > difference:
        return None
    few, many = 1, MOST_RUNS
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if detectable_difference(cv, middle, confidence) <= difference else (middle, many)
    return many


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the logarithms, which is the coefficient of variation while it is small."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return math.sqrt(_of_logarithms(values)[1] / (len(values) - 1))


def _of_logarithms(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the values' logarithms, and the sum of their squared distances from it."""
    logarithms = [math.log(each) for each in values]
    mean = math.fsum(logarithms) / len(logarithms)
    return mean, math.fsum((each - mean) ** 2 for each in logarithms)


def _pooled(squares_a: float, squares_b: float, runs: tuple[int, int]) -> tuple[float, float]:
    """Return the standard error of the difference of two means of one variance, and its degrees of freedom."""
    degrees = sum(runs) - 2
    return math.sqrt((squares_a + squares_b) / degrees * (1 / runs[0] + 1 / runs[1])), degrees


def _welch(one: tuple[int, float], other: tuple[int, float]) -> tuple[float, float]:
    """Return the same for means of two variances, each given with its number of runs."""
    (runs_a, a), (runs_b, b) = ((runs, variance / runs) for runs, variance in (one, other))
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / (runs_a - 1) + b**2 / (runs_b - 1))


def _log_interval(log_ratio: float, error: float, degrees: float, confidence: float) -> Interval:
    half = t_quantile(0.5 + confidence / 2, degrees) * error
    p = 2 * t_tail(abs(log_ratio) / error, degrees)
    return Interval(math.exp(log_ratio), _exp(log_ratio - half), _exp(log_ratio + half), p, error, degrees)


def _exp(value: float) -> float:
    """Return e to this power; two runs can be so far apart that a bound of their interval is beyond all numbers."""
    return math.exp(value) if value < 700 else math.inf
