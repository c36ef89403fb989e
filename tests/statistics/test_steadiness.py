# SPDX-License-Identifier: Apache-2.0
"""The steady window of series with known truth: what settles is kept whole, and what does not is left out or told."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.statistics.steadiness import POINTS, SHAPES, STALL, STATIONARY, kept, window


SEEDS = range(8)


def test_a_stationary_load_is_kept_whole():
    """Of stationary series at least 95 % is kept on average, and a half is cut away of few."""
    found = [kept(name, count, SEEDS) for name in STATIONARY for count in POINTS]

    assert fmean(each.kept for each in found) >= 0.95
    assert fmean(each.half for each in found) <= 0.05


@pytest.mark.parametrize("count", POINTS)
@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith(("warm-up of", "drain"))])
def test_a_warm_up_is_cut(name, count):
    """A beginning or an end that moves the mean is left out: the error is a part of the whole load's."""
    found = kept(name, count, SEEDS)

    assert found.error < 0.6 * found.whole


@pytest.mark.parametrize("count", POINTS)
@pytest.mark.parametrize("name", ["ramp throughout", "queue that grows"])
def test_what_grows_throughout_is_no_steady_state(name, count):
    """A ramp and a growing queue have a problem, always."""
    assert kept(name, count, SEEDS).none == 1


@pytest.mark.parametrize("count", POINTS)
def test_a_stall_is_never_in_the_window(count):
    """The window lies before the stall or after it."""
    for seed in SEEDS:
        found, _ = window("stall in the middle", count, seed)
        assert found.end < STALL[0] * count or found.start >= STALL[1] * count - 1
