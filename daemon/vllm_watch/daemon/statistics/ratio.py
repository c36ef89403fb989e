# SPDX-License-Identifier: Apache-2.0
"""
The ratio of two configurations, and whether it differs from 1: from values of runs, or from blocks of two single runs.

Values of runs vary by a factor, not by an amount, so the test is Student's t on their logarithms, and the estimate the
ratio of the geometric means. The two sides may vary differently and have different numbers of runs (Welch 1947, with
the degrees of freedom of Satterthwaite 1946).
"""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple, TypeVar

from vllm_watch.daemon.statistics.student_t import t_quantile, t_tail
from vllm_watch.daemon.statistics.trend import autocorrelation


CONFIDENCE = 0.95
POWER = 0.9
"""How often a difference of the detectable size is found."""


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

    @property
    def is_different(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low > 1 or self.high < 1


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, or `None` of no values or of one that is not positive."""
    if not values or min(values) <= 0:
        return None
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratio_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """
    Return the ratio of b to a with its interval.

    A side of one value is taken to vary as the other does. `None` if neither side has two values, or one is not
    positive, or if no value differs from the others of its side: then nothing is known of how they vary.
    """
    if not a or not b or min(*a, *b) <= 0:
        return None
    (mean_a, *known_a), (mean_b, *known_b) = _of_logarithms(a), _of_logarithms(b)
    if not known_a and not known_b:
        return None
    square_a, square_b = (known_a or known_b)[0] / len(a), (known_b or known_a)[0] / len(b)
    error = math.sqrt(square_a + square_b)
    if error <= abs(mean_a - mean_b) * 1e-12 + 1e-15:  # Less than what rounding does.
        return None
    degrees: float = max(len(a), len(b)) - 1
    if min(len(a), len(b)) > 1:
        degrees = (square_a + square_b) ** 2 / (square_a**2 / (len(a) - 1) + square_b**2 / (len(b) - 1))
    return log_interval(mean_b - mean_a, error, degrees, confidence)


def log_interval(log_ratio: float, error: float, degrees: float, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of a ratio from its logarithm, the standard error of that, and its degrees of freedom."""
    half = t_quantile(0.5 + confidence / 2, degrees) * error
    p = 2 * t_tail(abs(log_ratio) / error, degrees)
    return Interval(math.exp(log_ratio), _exp(log_ratio - half), _exp(log_ratio + half), p, error, degrees)


def detectable_ratio(error: float, degrees: float, confidence: float = CONFIDENCE, power: float = POWER) -> float:
    """Return the smallest ratio above 1 that is found so often as `power` says, by t with this standard error."""
    return _exp((t_quantile(0.5 + confidence / 2, degrees) + t_quantile(power, degrees)) * error)


def detectable_difference(cv: float, runs: int, confidence: float = CONFIDENCE, power: float = POWER) -> float:
    """
    Return the smallest relative difference that a number of runs on each side finds.

    Args:
        cv: Coefficient of variation between runs of one configuration.
        runs: How many there are on each side, at least 2.
        confidence: Of the interval; in a family of six tests that of the strictest is 1 - 0.05 / 6.
        power: How often it is found.
    """
    return detectable_ratio(cv * math.sqrt(2 / runs), 2 * runs - 2, confidence, power) - 1


def needed_runs(cv: float, difference: float, confidence: float = CONFIDENCE) -> int:
    """Return how many runs a side find a relative difference, at least 2: the fewest with a detectable one so small."""
    few, many = 1, 2
    while detectable_difference(cv, many, confidence) > difference:
        few, many = many, many * 2
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if detectable_difference(cv, middle, confidence) <= difference else (middle, many)
    return many


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the logarithms, which is the coefficient of variation while it is small."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return math.sqrt(_of_logarithms(values)[1])


def _of_logarithms(values: Sequence[float]) -> tuple[float, ...]:
    """Return the mean of the values' logarithms, and their variance, which one value does not have."""
    logarithms = [math.log(each) for each in values]
    mean = math.fsum(logarithms) / len(logarithms)
    squares = math.fsum((each - mean) ** 2 for each in logarithms)
    return (mean, squares / (len(logarithms) - 1)) if len(logarithms) > 1 else (mean,)


def _exp(value: float) -> float:
    """Return e to this power; two runs can be so far apart that a bound of their interval is beyond all numbers."""
    return math.exp(value) if value < 700 else math.inf


MIN_BLOCKS = 8
"""Of fewer blocks it is hardly known how they vary, and how much neighbours resemble each other."""
FLOOR_FACTOR = 3.0


class BlockInterval(NamedTuple):
    """An estimate and its bounds, as ratios of b to a; `half` is half the width of its logarithm."""

    ratio: float
    low: float
    high: float
    half: float

    @property
    def is_different(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low > 1 or self.high < 1


def block_interval(
    a: Sequence[float], b: Sequence[float], cv_between_runs: float, confidence: float = 0.95
) -> BlockInterval | None:
    """
    Return the ratio of b's mean to a's, from the blocks of each run's steady window.

    Blocks tell how a value varies within a run, not between runs. So the interval is widened by a floor, the stated
    variation between runs: its half-width is √(half-width of the blocks² + (3 · CV between runs)²).

    Args:
        a: Means of the blocks of one run.
        b: Those of the other.
        cv_between_runs: The coefficient of variation between runs of one configuration, which blocks cannot tell.
        confidence: Of the blocks' part of the interval.

    Returns:
        `None` if a side has fewer than eight blocks, or a mean that is not positive.
    """
    if min(len(a), len(b)) < MIN_BLOCKS or min(fmean(a), fmean(b)) <= 0:
        return None
    (error_a, degrees_a), (error_b, degrees_b) = _relative_error(a), _relative_error(b)
    blocks = 0.0
    if error_a + error_b > 0:
        degrees = (error_a + error_b) ** 2 / (error_a**2 / degrees_a + error_b**2 / degrees_b)
        blocks = t_quantile(0.5 + confidence / 2, degrees) * math.sqrt(error_a + error_b)
    half = math.hypot(blocks, FLOOR_FACTOR * cv_between_runs)
    ratio = fmean(b) / fmean(a)
    return BlockInterval(ratio, ratio * math.exp(-half), ratio * math.exp(half), half)


def _relative_error(values: Sequence[float]) -> tuple[float, int]:
    """Return the square of the mean's relative standard error, and its degrees of freedom."""
    mean, count = fmean(values), len(values)
    square = math.fsum((each - mean) ** 2 for each in values) / (count - 1) / count / mean**2
    # Blocks that resemble their neighbours are worth fewer; of few blocks the autocorrelation comes out too low.
    rho = min(max((count * autocorrelation(values) + 1) / (count - 4), 0.0), 0.9)
    return square * (1 + rho) / (1 - rho), count - 1


MIN_VALUES = 5
"""With this many values on each side the smallest possible p, 2 in 252, is below 1 %."""
MAX_DIVISIONS = 200_000

_ROUNDING = 1e-12


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """
    Do the exact permutation test: a cross-check of Student's t that assumes no distribution.

    If the sides do not differ, each division of all values into two sides is as likely as the one that was observed.
    Return the share of divisions whose logarithms' means are at least so far apart as those observed, two-sided.

    `None` if a side has fewer than five values, or one that is not positive, or if there are too many divisions.
    """
    if min(len(a), len(b)) < MIN_VALUES or min(*a, *b) <= 0:
        return None
    divisions = math.comb(len(a) + len(b), len(a))
    if divisions > MAX_DIVISIONS:
        return None
    logarithms = [math.log(each) for each in (*a, *b)]
    expected = math.fsum(logarithms) * len(a) / len(logarithms)
    observed = abs(math.fsum(logarithms[: len(a)]) - expected) - _ROUNDING
    extreme = sum(abs(sum(chosen) - expected) >= observed for chosen in combinations(logarithms, len(a)))
    return extreme / divisions


_Name = TypeVar("_Name")


def holm_adjusted(p_values: Mapping[_Name, float], weights: Mapping[_Name, float]) -> dict[_Name, float]:
    """
    Correct the p of several tests (Holm 1979): the chance of any false one stays that of a single test.

    Tests have weights. What matters most may have a larger part of that chance, and so needs a smaller difference.
    Return each p as what is to be compared with the limit of a single test.

    Args:
        p_values: By name, of the tests that could be done.
        weights: By name, of all tests that were planned. Those that could not be done count as well: the family is
            fixed beforehand.

    Raises:
        KeyError: A test was not planned.
    """
    adjusted: dict[_Name, float] = {}
    left, highest = sum(weights.values()), 0.0
    for name, p in sorted(p_values.items(), key=lambda each: each[1] / weights[each[0]]):
        highest = max(highest, min(p * left / weights[name], 1.0))
        adjusted[name] = highest
        left -= weights[name]
    return adjusted
