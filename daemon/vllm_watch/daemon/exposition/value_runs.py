# SPDX-License-Identifier: Apache-2.0
"""
The values of series over many moments, as runs of moments between which nothing changes.

Most values of a server stay the same for a long time. A run is kept as two numbers and its values, and written as one
text that is repeated with each time. Memory holds the newest of each series; the others are in a spool, a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import SEEK_END
from typing import IO, NamedTuple


RUNS_IN_MEMORY = 256
"""So many runs of a series are gathered before they go into the spool."""

MOMENTS_IN_MEMORY = 4096
"""So many moments are gathered before they go into the spool, and read again at once."""

_BOUNDS_OF_RUN = 2


class Moments:
    """The times of all moments as they are written, by the number of the moment."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._places = array("Q")
        self._newest: list[str] = []
        self._read: tuple[int, list[str]] = (-1, [])
        """The piece of the spool that was read last, and its number."""

    def __len__(self) -> int:
        """Return how many moments there are."""
        return len(self._places) * MOMENTS_IN_MEMORY + len(self._newest)

    def append(self, at: float) -> None:
        """Take in a moment, in seconds since the epoch."""
        if len(self._newest) == MOMENTS_IN_MEMORY:
            self._places.append(self._spool.seek(0, SEEK_END))
            self._spool.write("".join(f"{text}\n" for text in self._newest).encode())
            self._newest = []
        self._newest.append(f"{at:.3f}")

    def times(self, start: int, end: int) -> list[Sequence[str]]:
        """Return the times of the moments from one number to before another, in pieces."""
        found: list[Sequence[str]] = []
        while start < end:
            number, first = divmod(start, MOMENTS_IN_MEMORY)
            found.append(self._piece(number)[first : first + end - start])
            start += len(found[-1])
        return found

    def _piece(self, number: int) -> list[str]:
        if number == len(self._places):
            return self._newest
        if self._read[0] != number:
            self._spool.seek(self._places[number])
            self._read = number, [self._spool.readline()[:-1].decode() for _ in range(MOMENTS_IN_MEMORY)]
        return self._read[1]


class _Piece(NamedTuple):
    """Where runs are in the spool, how many numbers they are, how many each is, and the bounds of their buckets."""

    place: int
    numbers: int
    size: int
    bounds: tuple[float, ...]


class ValueRuns:
    """
    The values of series that are there together: of one, or of the buckets, the count and the sum of a histogram.

    Args:
        spool: What memory does not hold goes there.
    """

    __slots__ = ("_bounds", "_is_present", "_pending", "_pieces", "_seen", "_spool", "_start", "_values")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._pieces: list[_Piece] = []
        self._pending = array("d")
        self._bounds: tuple[float, ...] = ()
        self._values: tuple[float, ...] = ()
        self._is_present = False
        self._start = self._seen = 0

    @property
    def lines(self) -> int:
        """How many series they are."""
        return len(self._values)

    def set(self, moment: int, values: tuple[float, ...], bounds: tuple[float, ...] = ()) -> None:
        """Take in the values at a moment, and the bounds of buckets; they stay so until the next call."""
        self._seen = moment
        if self._is_present and values == self._values and bounds == self._bounds:
            return
        self._close(moment)
        if bounds != self._bounds:
            self._spool_pending()
            self._bounds = bounds
        self._start, self._values, self._is_present = moment, values, True

    def end(self, moment: int) -> None:
        """Take in that the series are gone, unless they were set at the same moment."""
        if self._seen != moment:
            self._close(moment)

    def texts(self, moments: Moments, names: Callable[[tuple[float, ...]], Iterable[str]]) -> Iterator[str]:
        """
        Yield the samples' lines moment by moment, until the last one of all moments.

        Args:
            moments: The times.
            names: Returns the series' names and labels as they are written, by the bounds of their buckets.
        """
        for runs, size, bounds in self._all_runs(len(moments)):
            series = [f"{name} " for name in names(bounds)]
            if len(series) == 1:  # Nearly all.
                yield from _lines_of_one(series[0], runs, moments)
                continue
            for start, end, *values in zip(*[runs[column::size] for column in range(size)], strict=True):
                lines = [f"{name}{value!r} " for name, value in zip(series, values, strict=True)]
                for times in moments.times(int(start), int(end)):
                    yield _repeated(lines, times)

    def _close(self, moment: int) -> None:
        if not self._is_present:
            return
        self._pending.extend((self._start, moment, *self._values))
        self._is_present = False
        if len(self._pending) >= RUNS_IN_MEMORY * self._size:
            self._spool_pending()

    @property
    def _size(self) -> int:
        """How many numbers a run is: its first moment, the one after its last, and its values."""
        return _BOUNDS_OF_RUN + len(self._values)

    def _spool_pending(self) -> None:
        if self._pending:
            place = self._spool.seek(0, SEEK_END)
            self._pieces.append(_Piece(place, len(self._pending), self._size, self._bounds))
            self._spool.write(self._pending.tobytes())
            self._pending = array("d")

    def _all_runs(self, end: int) -> Iterator[tuple[array[float], int, tuple[float, ...]]]:
        """Yield the numbers of runs, how many each run is, and the bounds of their buckets."""
        for place, numbers, size, bounds in self._pieces:
            self._spool.seek(place)
            yield array("d", self._spool.read(numbers * self._pending.itemsize)), size, bounds
        last = (self._start, end, *self._values) if self._is_present else ()
        yield self._pending + array("d", last), self._size, self._bounds


def _lines_of_one(name: str, runs: array[float], moments: Moments) -> Iterator[str]:
    """Yield the lines of one series, whose runs are three numbers each."""
    for start, end, value in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
        line = f"{name}{value!r} "
        for times in moments.times(int(start), int(end)):
            yield line + f"\n{line}".join(times) + "\n"


def _repeated(lines: Sequence[str], times: Sequence[str]) -> str:
    """Return lines that lack only their time, once for each time."""
    parts = [lines[0], *[f"\n{line}" for line in lines[1:]], "\n"]
    return "".join([time.join(parts) for time in times])
