# SPDX-License-Identifier: Apache-2.0
"""By how much counters and histograms grow over some points of a history, also where the server was started again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vllm_watch.analysis.loadtest.history import Point
from vllm_watch_parsers.scrape import Histogram


class Growth:
    """
    What was counted between the first and the last of some points, in order of time.

    A counter that falls was reset: what it counts afterwards is added, as Prometheus does. What was counted between the
    last point of one life and its end is unknown.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = [point for point in points if point.counters]

    @property
    def seconds(self) -> float:
        """The time between the first and the last point that have counters; 0 if there are not two."""
        return self._points[-1].at - self._points[0].at if self._points else 0.0

    def counter(self, name: str) -> float | None:
        """Return how much a counter grew; `None` if the last point does not have it, or there are not two points."""
        if len(self._points) < 2 or name not in self._points[-1].counters:
            return None
        # Some counters appear with what they count first.
        values = [point.counters.get(name, 0.0) for point in self._points]
        return sum(new - old if new >= old else new for old, new in pairwise(values))

    def labelled(self, prefix: str) -> dict[str, float]:
        """Return how much each counter of one name grew, by its label's value."""
        names = self._points[-1].counters if self._points else ()
        start = prefix + "."
        grown = {name.removeprefix(start): self.counter(name) for name in names if name.startswith(start)}
        return {label: value for label, value in grown.items() if value is not None}

    def ratio(self, part: str, whole: str) -> float | None:
        """Return the ratio of two counters' growth, `None` if the whole did not grow."""
        some, every = self.counter(part), self.counter(whole)
        # Counters are read one after the other while they grow: a part may be ahead of the whole.
        return None if some is None or not every else min(some / every, 1.0)

    def histogram(self, name: str) -> Histogram | None:
        """Return what was observed, `None` if nothing was, or buckets changed."""
        found = [each for point in self._points if (each := point.histograms.get(name)) is not None]
        if len(self._points) < 2 or not found or len({each.bounds for each in found}) != 1:
            return None
        # A histogram that only appears later has counted from 0.
        first = self._points[0].histograms.get(name) or _empty(found[0])
        observed = _empty(first)
        for old, new in pairwise([first, *found]):
            observed = _add(observed, new if new.observations < old.observations else _less(new, old))
        return observed if observed.observations > 0 else None


def _empty(histogram: Histogram) -> Histogram:
    return histogram._replace(counts=(0.0,) * len(histogram.bounds), sum=0.0)


def _add(one: Histogram, other: Histogram) -> Histogram:
    counts = tuple(left + right for left, right in zip(one.counts, other.counts, strict=True))
    return Histogram(one.bounds, counts, one.sum + other.sum, one.is_estimate or other.is_estimate)


def _less(new: Histogram, old: Histogram) -> Histogram:
    counts = tuple(max(after - before, 0.0) for before, after in zip(old.counts, new.counts, strict=True))
    return Histogram(new.bounds, counts, max(new.sum - old.sum, 0.0), new.is_estimate)
