# SPDX-License-Identifier: Apache-2.0
"""
The values of series over many moments, as runs of moments between which nothing changes.

Most values of a server stay the same for a long time. A run is kept as two numbers and its values, and written as one
text that is repeated with each time. Memory holds the newest of each series; the others are in a spool, a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
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

    def times(self, start: int, end: int) -> Iterator[Sequence[str]]:
        """Yield the times of the moments from one number to before another, in pieces."""
        while start < end:
            piece, first = divmod(start, MOMENTS_IN_MEMORY)
            found = self._piece(piece)[first : first + end - start]
            yield found
            start += len(found)

    def _piece(self, number: int) -> list[str]:
        if number == len(self._places):
            return self._newest
        if self._read[0] != number:
            self._spool.seek(self._places[number])
            self._read = number, [self._spool.readline()[:-1].decode() for _ in range(MOMENTS_IN_MEMORY)]
        return self._read[1]


class _Piece(NamedTuple):
    """Where runs are in the spool, how many numbers they are, and which series they are of."""

    place: int
    size: int
    series: tuple[str, ...]


class ValueRuns:
    """
    The values of series that are there together: of one, or of the buckets, the count and the sum of a histogram.

    Args:
        spool: What memory does not hold goes there.
    """

    __slots__ = ("_pending", "_pieces", "_seen", "_series", "_spool", "_start", "_values")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._pieces: list[_Piece] = []
        self._pending = array("d")
        self._series: tuple[str, ...] = ()
        self._values: tuple[float, ...] | None = None
        self._start = self._seen = 0

    def set(self, moment: int, series: tuple[str, ...], values: tuple[float, ...]) -> None:
        """Take in the values at a moment, and their series as they are written; they stay so until the next call."""
        self._seen = moment
        if self._values == values and self._series == series:
            return
        self._close(moment)
        if self._series != series:
            self._spool_pending()
            self._series = series
        self._start, self._values = moment, values

    def end(self, moment: int) -> None:
        """Take in that the series are gone, unless they were set at the same moment."""
        if self._seen != moment:
            self._close(moment)

    def texts(self, moments: Moments) -> Iterator[str]:
        """Yield the samples' lines moment by moment, until the last one of all moments."""
        for series, run in self._runs(len(moments)):
            start, end = int(run[0]), int(run[1])
            parts = [f"\n{name} {value!r} " for name, value in zip(series, run[_BOUNDS_OF_RUN:], strict=True)]
            parts[0] = parts[0][1:]
            for times in moments.times(start, end):
                if len(parts) == 1:
                    yield parts[0] + f"\n{parts[0]}".join(times) + "\n"
                else:
                    yield "".join([time.join([*parts, "\n"]) for time in times])

    def _close(self, moment: int) -> None:
        if self._values is None:
            return
        self._pending.extend((self._start, moment, *self._values))
        self._values = None
        if len(self._pending) >= RUNS_IN_MEMORY * (_BOUNDS_OF_RUN + len(self._series)):
            self._spool_pending()

    def _spool_pending(self) -> None:
        if self._pending:
            self._pieces.append(_Piece(self._spool.seek(0, SEEK_END), len(self._pending), self._series))
            self._spool.write(self._pending.tobytes())
            self._pending = array("d")

    def _runs(self, end: int) -> Iterator[tuple[tuple[str, ...], array[float]]]:
        for place, size, series in self._pieces:
            self._spool.seek(place)
            numbers = array("d", self._spool.read(size * self._pending.itemsize))
            yield from _of_size(numbers, series)
        yield from _of_size(self._pending, self._series)
        if self._values is not None:
            yield self._series, array("d", (self._start, end, *self._values))


def _of_size(numbers: array[float], series: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], array[float]]]:
    size = _BOUNDS_OF_RUN + len(series)
    return ((series, numbers[at : at + size]) for at in range(0, len(numbers), size))
