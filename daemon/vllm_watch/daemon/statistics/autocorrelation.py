# SPDX-License-Identifier: Apache-2.0
"""How much values in order resemble their neighbours, and how many independent values they are worth."""

from __future__ import annotations

import math

from collections.abc import Sequence


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
