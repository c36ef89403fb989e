# SPDX-License-Identifier: Apache-2.0
"""Percentiles, how many values they need, and how many independent ones dependent values are worth."""

from __future__ import annotations

import random

import pytest

from vllm_watch.daemon.statistics.percentiles import min_count, percentile
from vllm_watch.daemon.statistics.trend import autocorrelation, effective_count


@pytest.mark.parametrize(
    ("quantile", "confidence", "expected"),
    [(0.9, 0.95, 29), (0.95, 0.95, 59), (0.99, 0.95, 299), (0.999, 0.95, 2995), (0.99, 0.99, 459)],
)
def test_how_many_values_a_percentile_needs(quantile, confidence, expected):
    """So many values are needed until the highest of them is above the percentile with confidence."""
    assert expected == min_count(quantile, confidence)


def test_percentiles_are_linear_between_neighbours():
    """Percentiles are those of numpy's default method."""
    assert percentile([10.0, 20.0, 40.0], 0.5) == 20
    assert percentile([10.0, 20.0, 40.0], 0.75) == 30
    assert [percentile([5.0], each) for each in (0.0, 0.99, 1.0)] == [5, 5, 5]


def test_dependent_values_are_worth_fewer():
    """A lag-1 autocorrelation of one half leaves a third of the values."""
    generator = random.Random(6)
    values = [0.0]
    for _ in range(20_000):
        values.append(0.5 * values[-1] + generator.gauss(0, 1))
    effective = effective_count(values)

    assert autocorrelation(values) == pytest.approx(0.5, abs=0.02)
    assert effective == pytest.approx(20_000 / 3, rel=0.05)
