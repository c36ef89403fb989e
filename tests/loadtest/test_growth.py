# SPDX-License-Identifier: Apache-2.0
"""What counters and histograms grew by, also across a restart, and unknown where it is not known."""

from __future__ import annotations

import math

import pytest

from vllm_watch.analysis.loadtest.server_history import Growth, Point
from vllm_watch_parsers.scrape import Histogram


def points(*counters, name="generation_tokens_total"):
    """Return points with these values of one counter; `None` where nothing was read."""
    return [
        Point(float(at), "serving", {}, {} if value is None else {name: float(value), "other": 1.0}, {})
        for at, value in enumerate(counters)
    ]


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ((5, 7, 12), 7),
        ((5, 7, 2, 4), 6),
        ((None, 5, 9), 4),
        ((5, None, 9), 4),
        ((5,), None),
        ((None, None), None),
        ((3, 3), 0),
    ],
)
def test_a_counter_grows(values, grown):
    """A fall is a reset; what was there before the first point that has it is not counted."""
    assert Growth(points(*values)).counter("generation_tokens_total") == grown


def test_a_counter_that_appears_later_counts_from_zero():
    """Where other counters are there already, a new one has counted from 0."""
    first, last = points(1, 1)
    last = last._replace(counters={**last.counters, "new": 4.0})

    assert Growth([first, last]).counter("new") == 4


def test_labels_are_told_apart():
    """Each value of a label is its own."""
    first = Point(0.0, "serving", {}, {"finished.stop": 1.0, "finished.abort": 0.0, "finished_other": 1.0}, {})
    last = first._replace(counters={"finished.stop": 5.0, "finished.abort": 1.0, "finished_other": 9.0})

    assert Growth([first, last]).labelled("finished") == {"stop": 4, "abort": 1}


def test_a_histogram_is_what_was_observed_between():
    """Counts and sums are differences, and after a reset what was counted since."""
    bounds = (1.0, math.inf)

    def at(*histogram):
        return Point(0.0, "serving", {}, {"x": 1.0}, {"h": Histogram(bounds, *histogram)})

    grown = Growth([at((1.0, 2.0), 5.0), at((3.0, 5.0), 9.0), at((0.0, 1.0), 2.0)]).histogram("h")

    assert grown == Histogram(bounds, (2.0, 4.0), 6.0)
    assert Growth([at((1.0, 2.0), 5.0), at((1.0, 2.0), 5.0)]).histogram("h") is None


def test_a_ratio_is_at_most_one():
    """Counters are read one after the other: hits may be ahead of queries."""
    first = Point(0.0, "serving", {}, {"hits": 0.0, "queries": 0.0}, {})

    assert Growth([first, first._replace(counters={"hits": 11.0, "queries": 10.0})]).ratio("hits", "queries") == 1
    assert Growth([first, first]).ratio("hits", "queries") is None


def test_no_mean_of_estimated_sums():
    """A histogram whose sum Ray has estimated has no mean, whatever it is added to."""
    bounds = (1.0, math.inf)
    points = [
        Point(at, "serving", {}, {"x": 1.0}, {"h": Histogram(bounds, (0.0, count), count, is_estimate=True)})
        for at, count in ((0.0, 5.0), (10.0, 9.0))
    ]
    growth = Growth(points).histogram("h")

    assert (growth.observations, growth.is_estimate, growth.mean) == (4, True, None)
    assert growth._replace(is_estimate=False).mean == 1.0
