# SPDX-License-Identifier: Apache-2.0
"""Cells: numbers, ages, bars and sparklines say what they should, also in ASCII."""

from __future__ import annotations

import math

import pytest

from vllm_watch.cli.terminal.cells import ASCII, UNICODE, Cells, columns
from vllm_watch.daemon.catalog.states import ENGINE_STATES


CELLS, PLAIN = Cells(), Cells(ASCII)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.34, "12.3"),
        (512, "512"),
        (9994, "9.99k"),
        (12_345, "12.3k"),
        (999_600, "1.00M"),
        (3.2e15, "3200T"),
    ],
)
def test_tokens(value, text):
    """A number of tokens has three digits and at most five columns."""
    assert CELLS.tokens(value) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_not_known_is_a_dash(value):
    """It is never 0, and in ASCII it is a hyphen."""
    written = [
        (cells.tokens(value), cells.number(value), cells.count(value), cells.percent(value), cells.age(value))
        for cells in (CELLS, PLAIN)
    ]

    assert written == [(UNICODE.dash,) * 5, ("-",) * 5]
    assert (CELLS.bar(value, 4), PLAIN.duration(value)) == ("    ", "-")


@pytest.mark.parametrize(
    ("ratio", "bar", "plain", "percent"),
    [
        (0, "░░░░", "....", "0.0"),
        (0.5, "██░░", "##..", "50.0"),
        (0.6, "██▍░", "##..", "60.0"),
        (1.2, "████", "####", "120"),
    ],
)
def test_bars(ratio, bar, plain, percent):
    """A bar is as full as its ratio, and never longer than its room."""
    assert (CELLS.bar(ratio, 4), PLAIN.bar(ratio, 4), CELLS.percent(ratio)) == (bar, plain, percent)


def test_sparklines():
    """The latest value is at the right; only 0 is as low as nothing, and a gap is where nothing is known."""
    assert CELLS.sparkline([None, 0, 1, 80, 8], 6) == "  ▁▂█▂"
    assert PLAIN.sparkline([5, 5, 10], 2) == "=#"
    assert CELLS.sparkline([1, 1], 2, top=2) == "▅▅"
    assert CELLS.sparkline([], 3) == "   "


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "now"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (1e6, "11 d")])
def test_ages(seconds, text):
    """An age is in its largest unit."""
    assert CELLS.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "ms", "rough_ms", "long", "rough_long"),
    [
        (0, "0", "0", "0s", "0s"),
        (0.0286, "28.6", "29", "0.029s", "0.029s"),
        (1.25, "1,250", "1,200", "1.25s", "1.2s"),
        (9.996, "10,000", "10,000", "10.0s", "10s"),
        (147.3, "147,000", "150,000", "147s", "150s"),
    ],
)
def test_latencies(seconds, ms, rough_ms, long, rough_long):
    """A latency is in milliseconds, or in seconds with the unit; one that is roughly known has two digits."""
    written = [CELLS.latency(seconds, in_seconds=unit, digits=digits) for unit in (False, True) for digits in (3, 2)]

    assert [ms, rough_ms, long, rough_long] == written


@pytest.mark.parametrize("text", ["short", "a longer text", "模型模型模型", "a\x1b[2Jb\u202e", ""])
def test_texts_fit(text):
    """A text has exactly its columns, whatever is in it, and nothing that a terminal acts on."""
    for width in range(12):
        assert columns(CELLS.fit(text, width)) == width
        assert CELLS.fit(text, width).isprintable()


def test_every_state_has_its_mark():
    """States differ without colours, also in ASCII."""
    for glyphs in (UNICODE, ASCII):
        assert len({glyphs.states[state] for state in ENGINE_STATES}) == len(ENGINE_STATES)
    assert "".join(ASCII.states.values()).isascii()
