# SPDX-License-Identifier: Apache-2.0
"""
Throughput by concurrency, X(N) = N / (alpha + beta N).

A step of the engine takes alpha, plus beta for each running request.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import NamedTuple


class ThroughputFit(NamedTuple):
    """`alpha` and `beta` are in the inverse of the throughput's unit."""

    alpha: float
    beta: float

    def at(self, concurrency: float) -> float:
        """Return the throughput at a concurrency."""
        return concurrency / (self.alpha + self.beta * concurrency)


def fit_throughput(points: Sequence[tuple[float, float]]) -> ThroughputFit | None:
    """
    Fit the curve to points of concurrency and throughput.

    It is the line N/X = alpha + beta N by least squares, with weights of X⁴/N² that make its errors about those of X:
    in N/X alone the first, noisy points would outweigh all others. `None` if there are not at least three of different
    concurrency and positive throughput, or if the best curve does not rise from 0 (alpha or beta below 0).
    """
    usable = [(n, x) for n, x in points if n > 0 and x > 0]
    if len({n for n, _ in usable}) < 3:
        return None
    weights = [(x * x / n) ** 2 for n, x in usable]
    total = math.fsum(weights)
    mean_n = math.fsum(w * n for w, (n, _) in zip(weights, usable, strict=True)) / total
    mean_y = math.fsum(w * n / x for w, (n, x) in zip(weights, usable, strict=True)) / total
    square = math.fsum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, usable, strict=True))
    product = math.fsum(w * (n - mean_n) * (n / x - mean_y) for w, (n, x) in zip(weights, usable, strict=True))
    beta = product / square
    alpha = mean_y - beta * mean_n
    return ThroughputFit(alpha, beta) if alpha > 0 and beta >= 0 else None
