# SPDX-License-Identifier: Apache-2.0
"""
Throughput by concurrency: X(N) = N / (alpha + beta N).

A step of the engine takes alpha, plus beta for each running request. The fit is by least squares in X, for in 1/X the
first, noisy points would outweigh all others.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Literal, NamedTuple


_STEPS = 200
_PRECISION = 1e-12


class ThroughputFit(NamedTuple):
    """
    `alpha` and `beta` are in the inverse of the throughput's unit; `r_squared` is of the throughput.

    `covariance` has the variance of alpha, that of both and that of beta.
    """

    alpha: float
    beta: float
    r_squared: float
    covariance: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def at(self, concurrency: float) -> float:
        """Return the throughput at a concurrency."""
        return concurrency / (self.alpha + self.beta * concurrency)

    def relative_error(self, concurrency: float) -> float:
        """Return the standard error of the throughput at a concurrency, as a part of it."""
        of_alpha, of_both, of_beta = self.covariance
        variance = of_alpha + 2 * of_both * concurrency + of_beta * concurrency**2
        return math.sqrt(max(variance, 0.0)) / (self.alpha + self.beta * concurrency)


def fit_throughput(points: Sequence[tuple[float, float]]) -> ThroughputFit | None:
    """
    Fit the curve to points of concurrency and throughput.

    `None` if there are not at least three of different concurrency and positive throughput, or if the best curve does
    not rise from 0 (alpha or beta below 0).
    """
    usable = [(n, x) for n, x in points if n > 0 and x > 0]
    if len({n for n, _ in usable}) < 3:
        return None
    alpha, beta = _start(usable)
    for _ in range(_STEPS):
        step = _step(usable, alpha, beta)
        if step is None:
            return None
        alpha, beta, is_done = step
        if is_done:
            break
    if alpha <= 0 or beta < 0:
        return None
    return ThroughputFit(alpha, beta, _r_squared(usable, alpha, beta), _covariance(usable, alpha, beta))


def _start(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit N/X = alpha + beta N by weighted least squares; a weight of X⁴/N² makes its errors about those of X."""
    weights = [(x * x / n) ** 2 for n, x in points]
    total = math.fsum(weights)
    mean_n = math.fsum(w * n for w, (n, _) in zip(weights, points, strict=True)) / total
    mean_y = math.fsum(w * n / x for w, (n, x) in zip(weights, points, strict=True)) / total
    square = math.fsum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, points, strict=True))
    product = math.fsum(w * (n - mean_n) * (n / x - mean_y) for w, (n, x) in zip(weights, points, strict=True))
    beta = product / square
    alpha = mean_y - beta * mean_n
    if alpha > 0 and beta >= 0:
        return alpha, beta
    return mean_y / 2, mean_y / 2 / mean_n


def _covariance(points: Sequence[tuple[float, float]], alpha: float, beta: float) -> tuple[float, float, float]:
    """Return how uncertain alpha and beta are, by how far the points are from the curve."""
    slopes = [(n / (alpha + beta * n) ** 2, n) for n, _ in points]
    aa = math.fsum(slope**2 for slope, _ in slopes)
    ab = math.fsum(slope**2 * n for slope, n in slopes)
    bb = math.fsum((slope * n) ** 2 for slope, n in slopes)
    scale = _error(points, alpha, beta) / max(len(points) - 2, 1) / (aa * bb - ab * ab)
    return bb * scale, -ab * scale, aa * scale


def _step(points: Sequence[tuple[float, float]], alpha: float, beta: float) -> tuple[float, float, bool] | None:
    """Do one step of Gauss and Newton, halved until it makes the error smaller; `None` if there is no direction."""
    aa = ab = bb = ga = gb = 0.0
    for n, x in points:
        time = alpha + beta * n
        da, db, residual = -n / time**2, -n * n / time**2, x - n / time
        aa, ab, bb = aa + da * da, ab + da * db, bb + db * db
        ga, gb = ga + da * residual, gb + db * residual
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return None
    change_alpha, change_beta = (bb * ga - ab * gb) / determinant, (aa * gb - ab * ga) / determinant
    error, size = _error(points, alpha, beta), 1.0
    while size > _PRECISION:
        new_alpha, new_beta = alpha + size * change_alpha, beta + size * change_beta
        new_error = _error(points, new_alpha, new_beta)
        if new_error <= error:
            return new_alpha, new_beta, error - new_error <= _PRECISION * error
        size /= 2
    return alpha, beta, True


def _error(points: Sequence[tuple[float, float]], alpha: float, beta: float) -> float:
    """Return the sum of squares; it is infinite where the curve is not positive at a point."""
    if any(alpha + beta * n <= 0 for n, _ in points):
        return math.inf
    return math.fsum((x - n / (alpha + beta * n)) ** 2 for n, x in points)


def _r_squared(points: Sequence[tuple[float, float]], alpha: float, beta: float) -> float:
    mean = math.fsum(x for _, x in points) / len(points)
    total = math.fsum((x - mean) ** 2 for _, x in points)
    return 1 - _error(points, alpha, beta) / total if total > 0 else 0.0


GOOD = 0.05
ACCEPTABLE = 0.15


class LittleCheck(NamedTuple):
    """`deviation` is how much the measured number is above that of the law, relative to it."""

    expected: float
    deviation: float
    grade: Literal["good", "acceptable", "doubtful"]


def check_littles_law(inside: float, rate: float, seconds: float) -> LittleCheck | None:
    """
    Compare the mean number of requests inside with Little's law; `None` if nothing was inside.

    In a steady state it is their rate times their mean time inside. Both sides are measured apart: a large difference
    means that one measurement is wrong, or that the state was not steady.

    Args:
        inside: Mean number of requests, running and waiting.
        rate: Requests that leave in a second.
        seconds: Mean time that a request was inside.
    """
    expected = rate * seconds
    if expected <= 0:
        return None
    deviation = inside / expected - 1
    grade: Literal["good", "acceptable", "doubtful"] = "doubtful"
    if abs(deviation) <= ACCEPTABLE:
        grade = "good" if abs(deviation) <= GOOD else "acceptable"
    return LittleCheck(expected, deviation, grade)
