# SPDX-License-Identifier: Apache-2.0
"""Some of the time in which a server worked, in one piece or in many, and what was observed in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from vllm_watch.analysis.loadtest.server_history import Growth, Point, added
from vllm_watch_parsers.scrape import Histogram


Holds: TypeAlias = Callable[[Point, Point], bool]
"""Whether something holds between two points that follow each other; a gauge counts for the time before its point."""


class Window(NamedTuple):
    """Time in pieces: each is at least two points that follow each other, whose intervals all count."""

    pieces: tuple[tuple[Point, ...], ...]

    @property
    def seconds(self) -> float:
        """How long it is, without what is between its pieces."""
        return sum(piece[-1].at - piece[0].at for piece in self.pieces)

    @property
    def start(self) -> float | None:
        """When the first piece begins, in seconds since the epoch; `None` of no time."""
        return min((piece[0].at for piece in self.pieces), default=None)

    @property
    def end(self) -> float | None:
        """When the last piece ends."""
        return max((piece[-1].at for piece in self.pieces), default=None)

    def where(self, holds: Holds) -> Window:
        """Return the part in which something holds."""
        return Window(tuple(found for piece in self.pieces for found in _runs(piece, holds)))

    def share(self, holds: Holds) -> float:
        """Return for which share of the time something holds; 0 of no time."""
        return self.where(holds).seconds / self.seconds if self.seconds else 0.0

    def halves(self) -> tuple[Window, Window]:
        """Return the first half of the time and the second one."""
        half, done = self.seconds / 2, 0.0
        parts: tuple[list[tuple[Point, ...]], list[tuple[Point, ...]]] = ([], [])
        for piece in self.pieces:
            for old, new in pairwise(piece):
                parts[done >= half].append((old, new))
                done += new.at - old.at
        first, second = (Window(tuple(_joined(part))) for part in parts)
        return first, second

    def mean(self, gauge: str) -> float | None:
        """Return a gauge's mean over the time at which it is known; `None` if it never is."""
        known = [(new.gauges[gauge], new.at - old.at) for old, new in self._intervals() if gauge in new.gauges]
        seconds = sum(each for _, each in known)
        return sum(value * each for value, each in known) / seconds if seconds else None

    def highest(self, gauge: str) -> float | None:
        """Return a gauge's highest value."""
        return max((new.gauges[gauge] for _, new in self._intervals() if gauge in new.gauges), default=None)

    def increase(self, counter: str) -> float | None:
        """Return how much a counter grew; `None` if it is not known in any piece."""
        known = [each for piece in self.pieces if (each := Growth(piece).counter(counter)) is not None]
        return sum(known) if known else None

    def labelled(self, counter: str) -> dict[str, float]:
        """Return how much each counter of one name grew, by its label's value."""
        found: dict[str, float] = defaultdict(float)
        for piece in self.pieces:
            for label, value in Growth(piece).labelled(counter).items():
                found[label] += value
        return dict(found)

    def mean_positions(self) -> tuple[float, ...]:
        """Return the mean acceptance at each position over the time; none if their number is not always the same."""
        known = [
            ([each for each in new.position_acceptance if each is not None], new.at - old.at)
            for old, new in self._intervals()
            if new.position_acceptance
        ]
        seconds = sum(each for _, each in known)
        if len({len(shares) for shares, _ in known}) != 1 or not seconds:
            return ()
        weighted = [[share * each for share in shares] for shares, each in known]
        return tuple(sum(column) / seconds for column in zip(*weighted, strict=True))

    def histogram(self, name: str) -> Histogram | None:
        """Return what was observed; `None` if nothing was, or buckets changed."""
        known = [each for piece in self.pieces if (each := Growth(piece).histogram(name)) is not None]
        return reduce(added, known) if known and len({each.bounds for each in known}) == 1 else None

    def _intervals(self) -> Iterator[tuple[Point, Point]]:
        return (interval for piece in self.pieces for interval in pairwise(piece))


def joined(windows: Iterable[Window]) -> Window:
    """Return several windows as one, in order of time."""
    pieces = (piece for window in windows for piece in window.pieces)
    return Window(tuple(sorted(pieces, key=lambda piece: piece[0].at)))


def _runs(piece: Sequence[Point], holds: Holds) -> Iterator[tuple[Point, ...]]:
    return _joined([interval for interval in pairwise(piece) if holds(*interval)])


def _joined(pieces: Sequence[tuple[Point, ...]]) -> Iterator[tuple[Point, ...]]:
    """Yield pieces, those as one of which each begins with the point that the one before ends with."""
    whole: list[Point] = []
    for piece in pieces:
        if whole and whole[-1] is piece[0]:
            whole += piece[1:]
            continue
        if whole:
            yield tuple(whole)
        whole = list(piece)
    if whole:
        yield tuple(whole)
