# SPDX-License-Identifier: Apache-2.0
"""The interval of the ratio of two sides: its estimate, its bounds, and what it can detect."""

from __future__ import annotations

import math
import random

import pytest

from vllm_watch.daemon.statistics.ratio import (
    coefficient_of_variation,
    detectable_difference,
    geometric_mean,
    needed_runs,
    ratio_interval,
)


def runs(generator, mean, cv, number):
    """Return the values of so many runs, with lognormal noise."""
    return [mean * math.exp(generator.gauss(0, cv)) for _ in range(number)]


def test_the_estimate_is_the_ratio_of_the_geometric_means():
    """The ratio is that of the geometric means, whatever the numbers of runs."""
    found = ratio_interval([8.0, 12.5], [20.0, 20.0, 30.0])

    assert geometric_mean([8.0, 12.5]) == pytest.approx(10.0)
    assert found.ratio == pytest.approx((20 * 20 * 30) ** (1 / 3) / 10)
    assert found.low < found.ratio < found.high


def test_swapping_the_sides_inverts_the_ratio():
    """The interval of a to b is the inverse of that of b to a, with the same p."""
    a, b = [10.0, 11.0, 10.4], [12.0, 12.6]
    there, back = ratio_interval(a, b), ratio_interval(b, a)

    assert there.low == pytest.approx(1 / back.high)
    assert there.high == pytest.approx(1 / back.low)
    assert there.p == pytest.approx(back.p)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1.0], [2.0]), ([1.0, 2.0], []), ([0.0, 1.0], [1.0, 2.0]), ([10.0, 10.0], [11.0, 11.0, 11.0])],
    ids=["one-run", "no-run", "zero", "no-variation"],
)
def test_no_interval_without_knowledge(a, b):
    """Of one run, of values of 0, and of runs that are all the same nothing is known about their variation."""
    assert ratio_interval(a, b) is None


def test_one_run_is_taken_to_vary_as_the_other_side():
    """The interval of one run to five covers the truth in 93 to 97 % of 2,000 pairs."""
    generator = random.Random(10)
    found = [ratio_interval(runs(generator, 100, 0.05, 5), runs(generator, 90, 0.05, 1)) for _ in range(2000)]

    assert 0.93 <= sum(each.low <= 0.9 <= each.high for each in found) / 2000 <= 0.97
    assert {4} == {each.degrees for each in found}


@pytest.mark.parametrize(
    ("number", "in_eight_of_ten", "in_nine_of_ten", "family_eight", "family_nine"),
    [
        (2, 5.4, 6.2, 12.0, 12.8),
        (3, 3.0, 3.5, 4.7, 5.2),
        (5, 2.0, 2.3, 2.8, 3.1),
        (10, 1.3, 1.5, 1.7, 1.9),
        (20, 0.9, 1.05, 1.15, 1.3),
    ],
)
def test_what_can_be_detected(number, in_eight_of_ten, in_nine_of_ten, family_eight, family_nine):
    """At a CV of 0.1 % the smallest difference is so many times the CV, alone and in a family of six."""
    found = [
        math.log1p(detectable_difference(0.001, number, confidence, power)) * 1000
        for confidence in (0.95, 1 - 0.05 / 6)
        for power in (0.8, 0.9)
    ]

    assert [in_eight_of_ten, in_nine_of_ten, family_eight, family_nine] == pytest.approx(found, rel=0.06)


@pytest.mark.parametrize(("left", "right"), [(2, 2), (3, 3), (5, 5), (2, 5), (2, 10), (3, 10)])
def test_intervals_cover_the_truth(left, right):
    """Of 2,000 pairs of sides with a known ratio, 93.5 to 96.5 % of the 95 % intervals hold it, however many runs."""
    generator = random.Random(7)
    held = 0
    for _ in range(2000):
        found = ratio_interval(runs(generator, 100, 0.05, left), runs(generator, 110, 0.05, right))
        held += found.low <= 1.1 <= found.high

    assert 0.935 <= held / 2000 <= 0.965


@pytest.mark.parametrize("cv", [0.005, 0.03, 0.1, 0.3])
def test_how_many_runs_are_needed(cv):
    """So many runs a side find 10 %, and one less do not; two are the fewest."""
    number = needed_runs(cv, 0.1)

    assert detectable_difference(cv, number) <= 0.1
    assert number == 2 or detectable_difference(cv, number - 1) > 0.1
    assert needed_runs(cv, cv / 1e4) is None


def test_the_coefficient_of_variation_is_that_of_the_runs():
    """It is the standard deviation of the logarithms, and unknown of one run."""
    generator = random.Random(9)

    assert coefficient_of_variation(runs(generator, 50, 0.03, 4000)) == pytest.approx(0.03, rel=0.05)
    assert coefficient_of_variation([1.0]) is None
    assert geometric_mean([]) is None
