# SPDX-License-Identifier: Apache-2.0
"""Percentiles, their bounds, and how many values they need."""

from __future__ import annotations

import random

import pytest

from vllm_watch.statistics.autocorrelation import autocorrelation, effective_count
from vllm_watch.statistics.percentiles import min_count, percentile, percentile_interval


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


def test_two_sided_bounds_of_p99_exist_from_368_values():
    """Of 367 values there is a lower bound only."""
    assert percentile_interval(range(367), 0.99).high is None
    assert percentile_interval(range(368), 0.99).high == 367


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1000, 98.3, 99.7), (2000, 98.6, 99.5), (5000, 98.7, 99.3), (20_000, 98.86, 99.14)]
)
def test_the_bounds_of_p99_in_percentiles(count, low, high):
    """The interval of P99 covers so many percentiles of the values, by the exact binomial and by the normal one."""
    found = percentile_interval(range(count), 0.99)

    assert [low, high] == pytest.approx([(found.low + 1) / count * 100, (found.high + 1) / count * 100], abs=0.1)


@pytest.mark.parametrize(("quantile", "count"), [(0.5, 40), (0.9, 200), (0.99, 500)])
def test_intervals_of_percentiles_cover_the_truth(quantile, count):
    """Of 1,000 samples at least 94 % of the intervals hold the true percentile: order statistics are conservative."""
    generator = random.Random(5)
    held = 0
    for _ in range(1000):
        found = percentile_interval(sorted(generator.random() for _ in range(count)), quantile)
        held += found.low <= quantile <= found.high

    assert 940 <= held


def test_dependent_values_are_worth_fewer():
    """A lag-1 autocorrelation of one half leaves a third of the values, and a wider interval."""
    generator = random.Random(6)
    values = [0.0]
    for _ in range(20_000):
        values.append(0.5 * values[-1] + generator.gauss(0, 1))
    effective = effective_count(values)
    plain, corrected = (percentile_interval(sorted(values), 0.9, worth) for worth in (None, effective))

    assert autocorrelation(values) == pytest.approx(0.5, abs=0.02)
    assert effective == pytest.approx(20_000 / 3, rel=0.05)
    assert (corrected.high - corrected.low) / (plain.high - plain.low) == pytest.approx(3**0.5, rel=0.15)


def test_alternating_values_are_worth_no_more():
    """A negative autocorrelation is not taken as more knowledge; constant values have none."""
    assert effective_count([1.0, 2.0] * 50) == 100
    assert autocorrelation([0.1] * 50) == 0
    assert autocorrelation([1.0]) == 0


def test_no_values_have_no_bounds():
    """Of nothing nothing is known; of one value P50 has no bound."""
    assert percentile_interval([], 0.5) == (None, None)
    assert percentile_interval([3.0], 0.5) == (None, None)
    assert percentile_interval([3.0, 4.0], 0.5, effective=0.2) == (None, None)
