# SPDX-License-Identifier: Apache-2.0
"""
Percentiles, and how many values they need.

How many of n values are below the true percentile is binomial, whatever their distribution: with too few of them all
may be below it, and nothing is known of its upper bound. P99 needs 299.
"""

from __future__ import annotations

import math

from collections.abc import Sequence


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
