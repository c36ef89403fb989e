# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of many moments as one OpenMetrics file, for ``promtool tsdb create-blocks-from openmetrics``.

The format wants all samples of a family together, and those of a series in the order of their times. Most values stay
the same for a long time: a series is kept as runs of moments between which nothing changes. Memory holds the newest
runs of each series; the others are in a spool, a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from io import SEEK_END, BytesIO
from typing import IO, NamedTuple

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.samples import HistogramSample, bound_text, server_samples
from vllm_watch.daemon.exposition.text_format import escaped, label_text
from vllm_watch.daemon.state.snapshot import ServerSnapshot


RUNS_IN_MEMORY = 256
"""How many runs of a series are gathered before they go into the spool."""

MOMENTS_AT_ONCE = 4096
"""How many moments are turned into text at once."""

_PLACES = {name: place for place, name in enumerate(SERIES)}

_Metric = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]
"""A family's name, and a label set (a histogram's without ``le``): the series' own labels and the configured ones."""


class TimeSeriesFile:
    """
    Gathers snapshots and writes them family by family.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then.

    Args:
        spool: An empty file that can be written and read, for what memory should not hold. Without one memory holds
            it.
    """

    def __init__(self, spool: IO[bytes] | None = None) -> None:
        self._spool = spool or BytesIO()
        self._moments = _Moments()
        self._runs: dict[_Metric, _Runs] = {}
        self._families: dict[str, int] = {}
        """The moment at which each family was first there."""
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        moment = self._moments.append(snapshot.at)
        configured = tuple(sorted(snapshot.labels.items()))
        for sample in server_samples(snapshot):
            metric = (sample.name, sample.labels, configured)
            runs = self._runs.get(metric)
            if runs is None:
                runs = self._runs[metric] = _Runs(self._spool)
                self._families.setdefault(sample.name, moment)
            if isinstance(sample, HistogramSample):
                bounds, counts, total, _ = sample.histogram
                runs.set(moment, (*counts, counts[-1], total), bounds)
            else:
                runs.set(moment, (sample.value,))
            self.samples += runs.lines

    def texts(self) -> Iterator[str]:
        """Yield the file's text in pieces of whole lines: the families by their first moments, then as in the table."""
        metrics_of: dict[str, list[_Metric]] = {name: [] for name in self._families}
        for metric in self._runs:
            metrics_of[metric[0]].append(metric)
        for name in sorted(metrics_of, key=lambda name: (self._families[name], _PLACES[name])):
            series = SERIES[name]
            yield f"# TYPE {PREFIX}{series.family} {series.type}\n"
            yield f"# HELP {PREFIX}{series.family} {escaped(series.help)}\n"
            for metric in metrics_of[name]:
                yield from self._texts_of(metric)
        yield "# EOF\n"

    def _texts_of(self, metric: _Metric) -> Iterator[str]:
        """Yield the lines of a series moment by moment, those of a histogram's buckets together."""
        for bounds, runs in self._runs[metric].all():
            names = list(_series_texts(metric, bounds))
            columns = [runs[column :: 2 + len(names)] for column in range(2 + len(names))]
            for start, end, *values in zip(*columns, strict=True):
                lines = [f"{name} {value!r} " for name, value in zip(names, values, strict=True)]
                for times in self._moments.texts(int(start), int(end)):
                    yield _repeated(lines, times)


class _Moments:
    """The times of all moments, by the number of the moment."""

    def __init__(self) -> None:
        self._times = array("d")
        self._texts: tuple[int, list[str]] = (-1, [])
        """The last ones that were made, and which they are."""

    def append(self, at: float) -> int:
        """Take in a moment, in seconds since the epoch; return its number."""
        self._times.append(at)
        return len(self._times) - 1

    def texts(self, start: int, end: int) -> Iterator[Sequence[str]]:
        """Yield the times of the moments from one number to before another as they are written, in pieces."""
        while start < end:
            number, first = divmod(start, MOMENTS_AT_ONCE)
            if self._texts[0] != number:
                times = self._times[number * MOMENTS_AT_ONCE : (number + 1) * MOMENTS_AT_ONCE]
                self._texts = number, [f"{at:.3f}" for at in times]
            piece = self._texts[1][first : first + end - start]
            yield piece
            start += len(piece)


class _Piece(NamedTuple):
    """Runs in the spool: the bounds of their buckets, where they are, and how many bytes they take."""

    bounds: tuple[float, ...]
    place: int
    size: int


class _Runs:
    """
    The values of series that are there together: of one, or of the buckets, the count and the sum of a histogram.

    A run is its first moment, the one after its last, and its values.
    """

    __slots__ = ("_bounds", "_end", "_pending", "_pieces", "_spool", "_start", "_values")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._pieces: list[_Piece] = []
        self._pending = array("d")
        """The runs that are not in the spool but for the last one, which may go on."""
        self._bounds: tuple[float, ...] = ()
        self._values: tuple[float, ...] = ()
        self._start = self._end = 0

    @property
    def lines(self) -> int:
        """How many series they are."""
        return len(self._values)

    def set(self, moment: int, values: tuple[float, ...], bounds: tuple[float, ...] = ()) -> None:
        """Take in the values at a moment, and the bounds of buckets; at moments that are left out nothing is there."""
        if moment != self._end or values != self._values or bounds != self._bounds:
            self._close()
            if bounds != self._bounds or len(self._pending) >= RUNS_IN_MEMORY * (2 + len(values)):
                self._spool_pending()
            self._start, self._values, self._bounds = moment, values, bounds
        self._end = moment + 1

    def all(self) -> Iterator[tuple[tuple[float, ...], array[float]]]:
        """Yield runs in the order of time, with the bounds of their buckets."""
        self._close()
        self._start = self._end
        for bounds, place, size in self._pieces:
            self._spool.seek(place)
            yield bounds, array("d", self._spool.read(size))
        yield self._bounds, self._pending

    def _close(self) -> None:
        if self._start < self._end:
            self._pending.extend((self._start, self._end, *self._values))

    def _spool_pending(self) -> None:
        if self._pending:
            runs = self._pending.tobytes()
            self._pieces.append(_Piece(self._bounds, self._spool.seek(0, SEEK_END), len(runs)))
            self._spool.write(runs)
            self._pending = array("d")


def _series_texts(metric: _Metric, bounds: tuple[float, ...]) -> Iterator[str]:
    """Yield the names and labels of a metric's lines; of a histogram those of its buckets, its count and its sum."""
    name, values, configured = metric
    series = SERIES[name]
    labels = [*zip(series.labels, values, strict=True), *configured]
    for bound in bounds:
        yield f"{series.full_name}_bucket{label_text([*labels, ('le', bound_text(bound))])}"
    for suffix in ("_count", "_sum") if bounds else ("",):
        yield f"{series.full_name}{suffix}{label_text(labels)}"


def _repeated(lines: Sequence[str], times: Sequence[str]) -> str:
    """Return lines that lack only their time, once for each time."""
    if len(lines) == 1:  # Nearly all.
        return lines[0] + f"\n{lines[0]}".join(times) + "\n"
    parts = [lines[0], *[f"\n{line}" for line in lines[1:]], "\n"]
    return "".join([time.join(parts) for time in times])
