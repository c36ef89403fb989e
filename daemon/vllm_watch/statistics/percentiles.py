# SPDX-License-Identifier: Apache-2.0
"""
Percentiles and what is known of them.

The bounds of a percentile come from order statistics: how many of n values are below the true percentile is binomial,
whatever their distribution. Too few values have no upper bound at all: P99 needs 299.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple


_NORMAL_FROM = 10_000
"""From so many values on the binomial distribution is as good as normal."""


class PercentileInterval(NamedTuple):
    """Between which values a percentile is; `high` is `None` if there are too few values for an upper bound."""

    low: float | None
    high: float | None


def percentile(values: Sequence[float], quantile: float) -> float:
    """
    Return a percentile, linear between its two neighbours, as numpy and ``vllm bench serve`` compute it.

    Args:
        values: At least one, sorted.
        quantile: From 0 to 1.
    """
    place = quantile * (len(values) - 1)
    below = min(int(place), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def min_count(quantile: float, confidence: float = 0.95) -> int:
    """Return how many independent values are needed until the highest is above the percentile with confidence."""
    return math.ceil(math.log(1 - confidence) / math.log(quantile) - 1e-9)


def percentile_interval(
    values: Sequence[float], quantile: float, effective: float | None = None, confidence: float = 0.95
) -> PercentileInterval:
    """
    Return the bounds of a percentile.

    Args:
        values: Sorted.
        quantile: Between 0 and 1.
        effective: How many independent values these are worth; `None`: they are independent.
        confidence: Of both bounds together.
    """
    count = max(int(len(values) if effective is None else min(effective, len(values))), 0)
    if count < 1:
        return PercentileInterval(None, None)
    low, high = _ranks(count, quantile, (1 - confidence) / 2)
    return PercentileInterval(
        None if low is None else _at_rank(values, low, count), None if high is None else _at_rank(values, high, count)
    )


def _at_rank(values: Sequence[float], rank: int, count: int) -> float:
    """Return the value at a rank (from 1) of `count` values, spread over all that there are."""
    if count == 1 or count == len(values):
        return values[rank - 1]
    return values[round((rank - 1) * (len(values) - 1) / (count - 1))]


def _ranks(count: int, quantile: float, tail: float) -> tuple[int | None, int | None]:
    """Return the ranks whose values are below and above the percentile, each but for a probability of `tail`."""
    if count >= _NORMAL_FROM:
        half = NormalDist().inv_cdf(1 - tail) * math.sqrt(count * quantile * (1 - quantile))
        return max(math.floor(count * quantile - half), 1), min(math.ceil(count * quantile + half) + 1, count)
    low = high = None
    below = 0.0
    for successes in range(count):
        below += _binomial(count, successes, quantile)  # P(at most so many values are below the percentile)
        if below <= tail:
            low = successes + 1
        if high is None and below >= 1 - tail:
            high = successes + 1
    return low, high


def _binomial(count: int, successes: int, probability: float) -> float:
    ways = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(ways + successes * math.log(probability) + (count - successes) * math.log1p(-probability))
