# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of many moments as one OpenMetrics file, for ``promtool tsdb create-blocks-from openmetrics``.

The format wants all samples of a family together, and those of a series in the order of their times. Most values stay
the same for a long time: a series is kept as runs of moments between which nothing changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.samples import HistogramSample, bound_text, server_samples
from vllm_watch.daemon.exposition.text_format import escaped, label_text
from vllm_watch.daemon.state.snapshot import ServerSnapshot


MOMENTS_AT_ONCE = 4096
"""How many moments are turned into text at once."""

_PLACES = {name: place for place, name in enumerate(SERIES)}

_Metric = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]
"""A family's name, and a label set (a histogram's without ``le``): the series' own labels and the configured ones."""


class TimeSeriesFile:
    """
    Gathers snapshots and writes them family by family.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then.
    """

    def __init__(self) -> None:
        self._times: list[str] = []
        """The times of all moments as they are written."""
        self._runs: dict[_Metric, _Runs] = {}
        self._families: dict[str, int] = {}
        """The moment at which each family was first there."""
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        moment = len(self._times)
        self._times.append(f"{snapshot.at:.3f}")
        configured = tuple(sorted(snapshot.labels.items()))
        for sample in server_samples(snapshot):
            metric = (sample.name, sample.labels, configured)
            runs = self._runs.get(metric)
            if runs is None:
                runs = self._runs[metric] = _Runs()
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
        for bounds, runs in self._runs[metric].closed():
            names = list(_series_texts(metric, bounds))
            columns = [runs[column :: 2 + len(names)] for column in range(2 + len(names))]
            for start, end, *values in zip(*columns, strict=True):
                lines = [f"{name} {value!r} " for name, value in zip(names, values, strict=True)]
                for first in range(int(start), int(end), MOMENTS_AT_ONCE):
                    yield _repeated(lines, self._times[first : min(first + MOMENTS_AT_ONCE, int(end))])


class _Runs:
    """
    The values of series that are there together: of one, or of the buckets, the count and the sum of a histogram.

    A run is its first moment, the one after its last, and its values.
    """

    __slots__ = ("_end", "_parts", "_start", "_values")

    def __init__(self) -> None:
        self._parts: list[tuple[tuple[float, ...], array[float]]] = []
        """The bounds of buckets, and the runs with these but for the last one, which may go on."""
        self._values: tuple[float, ...] = ()
        self._start = self._end = 0

    @property
    def lines(self) -> int:
        """How many series they are."""
        return len(self._values)

    def set(self, moment: int, values: tuple[float, ...], bounds: tuple[float, ...] = ()) -> None:
        """Take in the values at a moment, and the bounds of buckets; at moments that are left out nothing is there."""
        has_same_bounds = bool(self._parts) and bounds == self._parts[-1][0]
        if moment != self._end or values != self._values or not has_same_bounds:
            self.closed()
            if not has_same_bounds:
                self._parts.append((bounds, array("d")))
            self._start, self._values = moment, values
        self._end = moment + 1

    def closed(self) -> Sequence[tuple[tuple[float, ...], array[float]]]:
        """Return all runs in the order of time, with the bounds of their buckets."""
        if self._start < self._end:
            self._parts[-1][1].extend((self._start, self._end, *self._values))
            self._start = self._end
        return self._parts


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
