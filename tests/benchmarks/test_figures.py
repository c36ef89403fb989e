# SPDX-License-Identifier: Apache-2.0
"""The comparison of a run's figures with those that are kept."""

from __future__ import annotations

import msgspec
import pytest

from tests.benchmarks.__main__ import BENCHMARKS, KEPT, LONG
from tests.benchmarks.figures import Change, Figure, Kept, compare


def figure(value, better="lower", **more):
    """Return a figure in seconds."""
    return Figure("start", value, "s", better, **more)


@pytest.mark.parametrize(
    ("now", "before", "slower", "change"),
    [
        (figure(1.0), 1.0, 1.0, Change("same", 1.0)),
        (figure(1.2), 1.0, 1.0, Change("same", 1.2)),
        (figure(1.25), 1.0, 1.0, Change("worse", 1.25)),
        (figure(0.5), 1.0, 1.0, Change("better", 0.5)),
        (figure(8.0, "higher"), 10.0, 1.0, Change("worse", 0.8)),
        (figure(9.0, "higher"), 10.0, 1.0, Change("same", 0.9)),
        (figure(20.0, "higher"), 10.0, 1.0, Change("better", 2.0)),
        (figure(0.0), 0.0, 1.0, Change("same")),
        (figure(0.1), 0.0, 1.0, Change("worse")),
        (figure(0.0), 0.1, 1.0, Change("better", 0.0)),
        (figure(0.0, "higher"), 3.0, 1.0, Change("worse", 0.0)),
        (figure(3.0, "higher"), 0.0, 1.0, Change("better")),
        (figure(2.0, is_processor=True), 1.0, 2.0, Change("same", 1.0)),
        (figure(1.0, is_processor=True), 1.0, 0.5, Change("worse", 2.0)),
        (figure(2.0), 1.0, 2.0, Change("worse", 2.0)),
        (figure(3.0, noise=2.0), 1.0, 1.0, Change("same", 3.0)),
        (figure(3.5, noise=2.0), 1.0, 1.0, Change("worse", 3.5)),
        (figure(None), 1.0, 1.0, Change("gone")),
        (figure(1.0), None, 1.0, Change("new")),
        (figure(None), None, 1.0, None),
        (figure(1.0, None), 1.0, 1.0, None),
    ],
)
def test_more_than_a_fifth_is_told(now, before, slower, change):
    """A fifth and more than its noise is a change, in both directions; processor time is that of this machine."""
    assert change == compare(now, before, slower)


@pytest.mark.parametrize(
    ("value", "better", "goal", "misses"),
    [
        (1.0, "lower", 1.0, False), (1.1, "lower", 1.0, True), (6.0, "higher", 6.0, False), (5.9, "higher", 6.0, True),
        (None, "lower", 1.0, False),
    ],
)  # fmt: skip
def test_a_goal(value, better, goal, misses):
    """A goal is missed on its wrong side only; without a value nothing is known."""
    assert misses == figure(value, better, goal=goal).misses_goal


def test_the_file_is_of_what_there_is():
    """The file of kept figures can be read, and has every benchmark that a whole run has."""
    kept = msgspec.json.decode(KEPT.read_bytes(), type=Kept)

    assert set(BENCHMARKS) - LONG == set(kept.benchmarks)
    assert all(benchmark.figures for benchmark in kept.benchmarks.values())
