# SPDX-License-Identifier: Apache-2.0
"""Student's t agrees with tables and closed forms."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize(("probability", "degrees", "expected"), TABLE)
def test_quantiles_are_those_of_the_tables(probability, degrees, expected):
    """Each tabulated quantile is met to 1e-9, on both sides of 0, and leads back to its probability."""
    assert expected == pytest.approx(t_quantile(probability, degrees), abs=1e-9)
    assert -expected == pytest.approx(t_quantile(1 - probability, degrees), abs=1e-9)
    assert 1 - probability == pytest.approx(t_tail(expected, degrees), abs=1e-9)


def test_tails_are_exact_where_they_are_tiny():
    """Far out the probability is not lost in rounding."""
    assert 1 / (math.pi * 1e12) == pytest.approx(t_tail(1e12, 1), rel=1e-9)
    assert t_tail(math.inf, 3) == 0


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.5, 0), (0.5, -1)])
def test_impossible_arguments_are_errors(probability, degrees):
    """A probability of 0 or 1 and no degrees of freedom are errors."""
    with pytest.raises(ValueError, match="expected a probability between 0 and 1"):
        t_quantile(probability, degrees)
