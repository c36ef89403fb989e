# SPDX-License-Identifier: Apache-2.0
"""Scales have round ends and ticks, and short names still differ."""

from __future__ import annotations

import pytest

from vllm_watch.analysis.rendering.run_facts import short_names
from vllm_watch.analysis.rendering.svg import clock, linear, logarithmic


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((3.0, 97.0), (0, 25, 50, 75, 100)),
        ((0.0,), (0, 1)),
        ((), (0, 1)),
        ((-3.0, 5.0), (-4, -2, 0, 2, 4, 6)),
        ((1e9,), (0, 2.5e8, 5e8, 7.5e8, 1e9)),
        ((float("inf"), 1.0), (0, 0.25, 0.5, 0.75, 1)),
    ],
)
def test_a_linear_scale_is_round_and_has_room(values, ticks):
    """A linear scale has 0 on it, ends at round numbers around all values, and does not care for what is infinite."""
    scale = linear(values)

    assert ticks == pytest.approx(scale.ticks)
    assert (ticks[0], ticks[-1]) == pytest.approx((scale.low, scale.high))


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((42.0, 180.0), (20, 50, 100, 200)),
        ((0.3, 27_000.0), (1, 10, 100, 1000, 10_000)),
        ((5.0,), (5, 10)),
        ((0.0, -1.0), (1, 2, 5, 10)),
    ],
)
def test_a_logarithmic_scale_has_ticks_at_1_2_and_5(values, ticks):
    """A logarithmic scale has ticks at 1, 2 and 5 times powers of ten; over many decades only at these."""
    scale = logarithmic(values)

    assert ticks == pytest.approx(scale.ticks)
    assert scale.low < scale.high
    assert all(scale.low <= value <= scale.high for value in values if value > 0)


@pytest.mark.parametrize(
    ("start", "end", "ticks"),
    [
        (0, 600, (0, 120, 240, 360, 480, 600)),
        (-62, 44, (-60, -30, 0, 30)),
        (0, 7200, (0, 1800, 3600, 5400, 7200)),
        (0, 0, (0, 1)),
        (0, 40 * 86400, (0, 864000, 1728000, 2592000, 3456000)),
    ],
)
def test_time_has_ticks_at_round_times(start, end, ticks):
    """The axis of time is exactly as long as the run, with ticks at whole seconds, minutes, hours or days."""
    scale = clock(start, end)

    assert ticks == pytest.approx(scale.ticks)
    assert scale.low == start


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["x/curve/bench1/result.json", "x/curve/bench2/result.json"], ["bench1", "bench2"]),
        (["a.log", "b.log"], ["a.log", "b.log"]),
        (["x/a", "x/a/b"], ["a", "a/b"]),
        (["curve: bench1", "curve: bench2"], ["bench1", "bench2"]),
        (["same", "same"], ["same", "same"]),
        (["one/result.json"], ["one/result.json"]),
        ([], []),
    ],
)
def test_names_lose_what_they_share(names, short):
    """Paths lose the folders that all of them are in and the file name that all have, but never everything."""
    assert short == short_names(names)
