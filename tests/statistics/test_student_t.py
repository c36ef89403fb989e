# SPDX-License-Identifier: Apache-2.0
"""Student's t agrees with tables and closed forms."""

from __future__ import annotations

import math

from statistics import NormalDist

import pytest

from vllm_watch.daemon.statistics.student_t import t_quantile, t_tail


TABLE = (
    (0.975, 1, 12.7062047364),
    (0.975, 2, 4.3026527297),
    (0.975, 3, 3.1824463053),
    (0.975, 4, 2.7764451052),
    (0.975, 5, 2.5705818366),
    (0.975, 8, 2.3060041350),
    (0.975, 10, 2.2281388520),
    (0.975, 18, 2.1009220402),
    (0.975, 30, 2.0422724563),
    (0.975, 120, 1.9799304051),
    (0.95, 1, 6.3137515147),
    (0.95, 5, 2.0150483733),
    (0.99, 10, 2.7637694581),
    (0.995, 8, 3.3553873313),
    (0.9995, 4, 8.6103015814),
)
"""Probability, degrees of freedom, and the quantile of printed tables."""
CLOSED = {
    1: lambda t: 0.5 + math.atan(t) / math.pi,
    2: lambda t: 0.5 + t / (2 * math.sqrt(2 + t * t)),
    3: lambda t: 0.5 + (math.atan(t / math.sqrt(3)) + t * math.sqrt(3) / (3 + t * t)) / math.pi,
    4: lambda t: 0.5 + 3 / 8 * t / math.sqrt(1 + t * t / 4) * (1 - t * t / (1 + t * t / 4) / 12),
}
"""The distribution function where it has a closed form."""


@pytest.mark.parametrize(("probability", "degrees", "expected"), TABLE)
def test_quantiles_are_those_of_the_tables(probability, degrees, expected):
    """Each tabulated quantile is met to 1e-9, on both sides of 0, and leads back to its probability."""
    assert expected == pytest.approx(t_quantile(probability, degrees), abs=1e-9)
    assert -expected == pytest.approx(t_quantile(1 - probability, degrees), abs=1e-9)
    assert 1 - probability == pytest.approx(t_tail(expected, degrees), abs=1e-9)


@pytest.mark.parametrize("degrees", CLOSED)
@pytest.mark.parametrize("t", [0.0, 0.1, 0.3, 1.0, 1.9, 4.0, 100.0])
def test_the_distribution_is_that_of_the_closed_form(degrees, t):
    """With one to four degrees of freedom the probability is that of the formula."""
    assert 1 - CLOSED[degrees](t) == pytest.approx(t_tail(t, degrees), abs=1e-12)


def test_degrees_of_freedom_need_not_be_whole():
    """Between two whole numbers the quantile is between theirs, and falls as the degrees grow."""
    quantiles = [t_quantile(0.975, degrees) for degrees in (1, 1.3, 2, 7.5, 8, 1e3, 1e6)]

    assert sorted(quantiles, reverse=True) == quantiles
    assert NormalDist().inv_cdf(0.975) == pytest.approx(quantiles[-1], abs=1e-5)


def test_tails_are_exact_where_they_are_tiny():
    """Far out the probability is not lost in rounding."""
    assert 1 / (math.pi * 1e12) == pytest.approx(t_tail(1e12, 1), rel=1e-9)
    assert t_tail(math.inf, 3) == 0


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.5, 0), (0.5, -1)])
def test_impossible_arguments_are_errors(probability, degrees):
    """A probability of 0 or 1 and no degrees of freedom are errors."""
    with pytest.raises(ValueError, match="expected a probability between 0 and 1"):
        t_quantile(probability, degrees)
