# SPDX-License-Identifier: Apache-2.0
"""Two single runs: the interval from blocks and the stated variation between runs."""

from __future__ import annotations

import math
import random

import pytest

from vllm_watch.daemon.statistics.ratio import block_interval


def test_the_interval_is_never_narrower_than_the_floor():
    """Blocks without any variation still leave three times the variation between runs."""
    found = block_interval([100.0] * 10, [105.0] * 10, cv_between_runs=0.03)

    assert found.half == pytest.approx(0.09)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.05, 1.05 * math.exp(-0.09), 1.05 * math.exp(0.09)))
    assert not found.is_different


def test_variation_within_the_runs_widens_it():
    """The two parts are added as squares."""
    generator = random.Random(41)
    a, b = ([generator.gauss(100, 20) for _ in range(10)] for _ in range(2))
    alone, floored = (block_interval(a, b, cv_between_runs=cv).half for cv in (0.0, 0.03))

    assert alone > 0.1
    assert floored == pytest.approx(math.hypot(alone, 0.09))


def test_dependent_blocks_are_worth_fewer():
    """Blocks that rise from the first to the last resemble their neighbours: they leave a wider interval."""
    rising, mixed = [float(each) for each in range(95, 105)], [95.0, 104, 96, 103, 97, 102, 98, 101, 99, 100]

    assert block_interval(rising, rising, 0.0).half > 1.5 * block_interval(mixed, mixed, 0.0).half


def test_a_large_difference_is_found():
    """A factor of 1.5 is outside of the interval."""
    assert block_interval([100.0, 101, 99, 100, 102] * 2, [150.0, 151, 149, 150, 152] * 2, 0.03).is_different


@pytest.mark.parametrize(("a", "b"), [([1.0] * 7, [1.0] * 10), ([0.0] * 8, [1.0] * 8)])
def test_no_interval_of_too_few_blocks(a, b):
    """Fewer than eight blocks, or a mean of 0, have none."""
    assert block_interval(a, b, 0.03) is None
