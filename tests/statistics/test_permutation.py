# SPDX-License-Identifier: Apache-2.0
"""The exact permutation test and Holm's correction."""

from __future__ import annotations

import random

import pytest

from vllm_watch.daemon.statistics.ratio import holm_adjusted, permutation_p


def test_sides_apart_have_the_smallest_p():
    """Of five runs a side that do not overlap, 2 of 252 divisions are as extreme."""
    assert permutation_p([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4]) == pytest.approx(2 / 252)


def test_equal_sides_have_the_largest():
    """Of equal values every division is as extreme as the observed one."""
    assert permutation_p([3.0] * 5, [3.0] * 6) == 1


@pytest.mark.parametrize(("a", "b"), [([1.0] * 4, [1.0] * 9), ([1.0] * 12, [1.0] * 13), ([0.0] * 5, [1.0] * 5)])
def test_where_the_test_is_not_done(a, b):
    """It is not done of fewer than five values a side, of too many, or of values of 0."""
    assert permutation_p(a, b) is None


def test_one_in_twenty_is_false():
    """Of 2,000 pairs of equal sides, 3 to 6 % have a p of 5 % or less."""
    generator = random.Random(3)
    false = sum(
        permutation_p(
            [generator.lognormvariate(0, 0.1) for _ in range(5)], [generator.lognormvariate(0, 0.1) for _ in range(5)]
        )
        <= 0.05
        for _ in range(2000)
    )

    assert 0.03 <= false / 2000 <= 0.06


EQUAL = dict.fromkeys("abc", 1 / 3)


def test_holm_multiplies_by_the_tests_that_are_left():
    """The smallest p counts as many times as there are tests, the next one less, and none falls below one before it."""
    found = holm_adjusted({"a": 0.01, "b": 0.04, "c": 0.03}, EQUAL)

    assert found == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_a_weight_is_a_part_of_the_chance():
    """A test with half of the weight counts twice; once it is done, the others share all of the chance."""
    found = holm_adjusted({"a": 0.01, "b": 0.02}, {"a": 0.5, "b": 0.25, "c": 0.25})

    assert found == pytest.approx({"a": 0.02, "b": 0.04})


def test_tests_that_were_not_done_count():
    """A family is fixed beforehand: one test of three counts three times, and a p never exceeds 1."""
    assert holm_adjusted({"a": 0.01}, EQUAL) == pytest.approx({"a": 0.03})
    assert holm_adjusted({"a": 0.5}, EQUAL) == {"a": 1.0}


def test_a_test_that_was_not_planned_is_an_error():
    """A family does not grow."""
    with pytest.raises(KeyError):
        holm_adjusted({"d": 0.5}, EQUAL)
