# SPDX-License-Identifier: Apache-2.0
"""Numbers are short, exact enough, and never look known when they are not."""

from __future__ import annotations

import math

import pytest

from vllm_watch.daemon.catalog import number_texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.12345, "0.123"),
        (9.996, "10.0"),
        (45.64, "45.6"),
        (999.6, "1,000"),
        (2116.31, "2,120"),
        (1_234_567, "1,230,000"),
        (-3.1415, "-3.14"),
        (0.00001234, "1.23e-05"),
        (None, "\N{EN DASH}"),
        (math.nan, "\N{EN DASH}"),
        (math.inf, "\N{EN DASH}"),
    ],
)
def test_three_significant_digits(value, text):
    """A measured number has three significant digits and its thousands apart; what is unknown or infinite is a dash."""
    assert text == number_texts.significant(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2048.0, "2,048"), (50.0, "50"), (0.25, "0.25"), (102.2027, "102"), (100.00000000000001, "100"), (812.3, "812")],
)
def test_a_bound_is_shown_as_it_was_chosen(value, text):
    """A bucket's bound has no digits that nobody chose, and loses none."""
    assert text == number_texts.limit(value)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (250.0, 500.0, "250 to 500"),
        (500.0, None, ">500"),
        (None, 250.0, "<250"),
        (50.0, 50.0, "50"),
        (None, None, "\N{EN DASH}"),
    ],
)
def test_an_interval_says_which_end_is_open(low, high, text):
    """An interval has both bounds, or says that it has no upper or no lower one."""
    assert text == number_texts.spread(low, high)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.35, "350 ms"),
        (3.78016, "3.78 s"),
        (24.0, "24 s"),
        (59.97, "1 min"),
        (500, "8 min 20 s"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (-3.0, "-3 s"),
        (None, "\N{EN DASH}"),
    ],
)
def test_a_duration_has_the_units_that_suit_it(seconds, text):
    """A duration is in at most two units, the larger first."""
    assert text == number_texts.duration(seconds)


def test_counts_ratios_and_differences():
    """A count has all its digits, a ratio is per cent, a difference has its sign."""
    assert ("16,087", "87.5", "+12.3", "-4.00", "0") == (
        number_texts.count(16087),
        number_texts.percent(0.875),
        number_texts.signed(12.34),
        number_texts.signed(-4),
        number_texts.signed(0),
    )
    assert ["\N{EN DASH}"] * 3 == [number_texts.count(None), number_texts.percent(None), number_texts.signed(math.nan)]


@pytest.mark.parametrize(
    ("at", "text"), [(1795324400.0, "2026-11-22 05:13:20"), (1e30, "\N{EN DASH}"), (None, "\N{EN DASH}")]
)
def test_a_moment_is_in_utc(at, text):
    """A moment is a date and time of UTC, and a dash where no calendar has it."""
    assert text == number_texts.moment(at)
