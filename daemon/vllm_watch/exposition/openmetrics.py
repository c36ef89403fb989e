# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics with timestamps, for ``promtool tsdb create-blocks-from openmetrics``."""

from __future__ import annotations

import heapq

from array import array
from collections.abc import Iterator
from io import SEEK_END, BytesIO
from typing import IO

from vllm_watch.catalog.series import PREFIX, SERIES, Series
from vllm_watch.exposition.line_starts import BUCKET_LABEL, escaped, label_text
from vllm_watch.exposition.samples import AnySample, PlainSample, bound_text, by_series, server_samples
from vllm_watch.state.snapshot import ServerSnapshot


POINTS_IN_MEMORY = 512
"""So many points of a series are gathered before they go into the spool."""


class _Points:
    """One series' times and values: the newest in memory, those before them in the spool, in pieces of one size."""

    __slots__ = ("_pending", "_pieces", "_spool", "text")

    def __init__(self, text: str, spool: IO[bytes]) -> None:
        self.text = text
        self._spool = spool
        self._pieces = array("Q")
        self._pending = array("d")

    def append(self, at: float, value: float) -> None:
        self._pending.append(at)
        self._pending.append(value)
        if len(self._pending) >= 2 * POINTS_IN_MEMORY:
            self._pieces.append(self._spool.seek(0, SEEK_END))
            self._spool.write(self._pending.tobytes())
            self._pending = array("d")

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for place in self._pieces:
            self._spool.seek(place)
            piece = array("d", self._spool.read(2 * POINTS_IN_MEMORY * self._pending.itemsize))
            yield from zip(piece[::2], piece[1::2], strict=True)
        yield from zip(self._pending[::2], self._pending[1::2], strict=True)


_Labels = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""A label set (a histogram's without ``le``): the values of the series' own labels, and the configured labels."""

_Group = dict[tuple[str, str | None], _Points]
"""The points of one label set, by the name that is written and the bound of a bucket."""


class TimeSeriesFile:
    """
    Gathers snapshots of many moments and writes them family by family, as the format demands.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then. Memory grows with the number of
    series, not with the time.

    Args:
        spool: An empty file that can be written and read, for what memory should not hold: 16 bytes a sample.
            Without one memory holds it.
    """

    def __init__(self, spool: IO[bytes] | None = None) -> None:
        self._spool = spool or BytesIO()
        self._groups: dict[str, dict[_Labels, _Group]] = {}
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        configured = tuple(sorted(snapshot.labels.items()))
        for series, samples in by_series(server_samples(snapshot)):
            groups = self._groups.setdefault(series.name, {})
            for sample in samples:
                group = groups.setdefault((sample.labels, configured), {})
                for name, bound, value in _written(series, sample):
                    if (name, bound) not in group:
                        group[name, bound] = self._new_points(series, name, bound, (sample.labels, configured))
                    group[name, bound].append(snapshot.at, value)
                    self.samples += 1

    def lines(self) -> Iterator[str]:
        """Yield the file's lines, each with its end."""
        for name, groups in self._groups.items():
            series = SERIES[name]
            yield f"# TYPE {PREFIX}{series.family} {series.type}\n"
            yield f"# HELP {PREFIX}{series.family} {escaped(series.help)}\n"
            for group in groups.values():
                yield from _group_lines(group)
        yield "# EOF\n"

    def _new_points(self, series: Series, name: str, bound: str | None, labels: _Labels) -> _Points:
        values, configured = labels
        bucket = () if bound is None else ((BUCKET_LABEL, bound),)
        text = label_text([*zip(series.labels, values, strict=True), *configured, *bucket])
        return _Points(name + text, self._spool)


def _group_lines(group: _Group) -> Iterator[str]:
    """Yield a group's samples moment by moment: all buckets of one moment are together."""
    texts = [points.text for points in group.values()]
    for at, number, value in heapq.merge(*(_numbered(number, points) for number, points in enumerate(group.values()))):
        yield f"{texts[number]} {value!r} {at:.3f}\n"


def _numbered(number: int, points: _Points) -> Iterator[tuple[float, int, float]]:
    return ((at, number, value) for at, value in points)


def _written(series: Series, sample: AnySample) -> Iterator[tuple[str, str | None, float]]:
    """Yield what is written of a sample, with the bound of a bucket: a histogram's buckets, its count and its sum."""
    name = series.full_name
    if isinstance(sample, PlainSample):
        yield name, None, sample.value
        return
    histogram = sample.histogram
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f"{name}_bucket", bound_text(bound), count
    yield f"{name}_count", None, histogram.counts[-1]
    yield f"{name}_sum", None, histogram.sum
