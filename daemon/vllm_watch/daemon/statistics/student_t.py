# SPDX-License-Identifier: Apache-2.0
"""
Student's t distribution, for any positive degrees of freedom.

The distribution function is the regularized incomplete beta function, evaluated by its continued fraction (DLMF
8.17.22) with Lentz's method. Both functions are exact to about twelve digits.
"""

from __future__ import annotations

import math


_PRECISION = 1e-15
_TERMS = 10_000
_TINY = 1e-300
_STEPS = 100


def t_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above `t`, which is 0 or more. It is exact also where it is tiny."""
    if math.isinf(t):
        return 0.0
    if t * t < degrees:  # The fraction of the other end converges faster.
        return 0.5 - 0.5 * _incomplete_beta(t * t / (degrees + t * t), 0.5, degrees / 2)
    return 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def t_quantile(probability: float, degrees: float) -> float:
    """
    Return the value that is exceeded with a probability of 1 less `probability`.

    Raises:
        ValueError: The probability is not between 0 and 1, or the degrees of freedom are not positive.
    """
    if not 0 < probability < 1 or not degrees > 0:
        raise ValueError(f"expected a probability between 0 and 1 and more than 0 degrees, not {probability, degrees}")
    tail = min(probability, 1 - probability)
    low, high = 0.0, 1.0
    while t_tail(high, degrees) > tail:
        low, high = high, high * 2
    t = (low + high) / 2
    for _ in range(_STEPS):  # Newton's steps, or halving where one would leave the bracket.
        excess = t_tail(t, degrees) - tail
        low, high = (t, high) if excess > 0 else (low, t)
        step = t + excess / _density(t, degrees)
        nearer = step if low < step < high else (low + high) / 2
        if abs(nearer - t) <= _PRECISION * (1 + t):
            break
        t = nearer
    return t if probability > 0.5 else -t


def _density(t: float, degrees: float) -> float:
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function from its front (Lentz)."""
    c, d = 1.0, _reciprocal(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = _reciprocal(1 + term * d)
            c = 1 + term / c or _TINY
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _reciprocal(value: float) -> float:
    return 1 / (value or _TINY)
