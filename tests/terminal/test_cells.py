# SPDX-License-Identifier: Apache-2.0
"""Cells: numbers, ages, bars and sparklines say what they should."""

from __future__ import annotations

import pytest

from vllm_watch.cli.terminal.cells import STATE_SYMBOLS, age, bar, columns, fit, latency_text, sparkline
from vllm_watch.daemon.catalog.states import ENGINE_STATES


def test_what_is_not_known_is_a_dash_and_no_bar():
    """It is never 0."""
    assert (age(None), latency_text(None, in_seconds=False), bar(None, 4)) == ("–", "–", "    ")  # noqa: RUF001


@pytest.mark.parametrize(("ratio", "drawn"), [(0, "░░░░"), (0.5, "██░░"), (0.6, "██▍░"), (1.2, "████")])
def test_bars(ratio, drawn):
    """A bar is as full as its ratio, and never longer than its room."""
    assert bar(ratio, 4) == drawn


def test_sparklines():
    """The latest value is at the right; only 0 is as low as nothing, and a gap is where nothing is known."""
    assert sparkline([None, 0, 1, 80, 8], 6, 80) == "  ▁▂█▂"
    assert sparkline([1, 1], 2, 2) == "▅▅"
    assert sparkline([], 3, 0) == "   "


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "now"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (1e6, "11 d")])
def test_ages(seconds, text):
    """An age is in its largest unit."""
    assert age(seconds) == text


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
    written = [latency_text(seconds, in_seconds=unit, digits=digits) for unit in (False, True) for digits in (3, 2)]

    assert [ms, rough_ms, long, rough_long] == written


@pytest.mark.parametrize("text", ["short", "a longer text", "模型模型模型", "a\x1b[2Jb\u202e", ""])
def test_texts_fit(text):
    """A text has exactly its columns, whatever is in it, and nothing that a terminal acts on."""
    for width in range(12):
        assert columns(fit(text, width)) == width
        assert fit(text, width).isprintable()


def test_every_state_has_its_mark():
    """States differ without colours."""
    assert len(set(STATE_SYMBOLS.values())) == len(STATE_SYMBOLS) == len(ENGINE_STATES)
