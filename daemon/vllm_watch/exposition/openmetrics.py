# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics with timestamps, for ``promtool tsdb create-blocks-from openmetrics``."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import IO, NamedTuple

from vllm_watch.catalog.series import PREFIX, SERIES
from vllm_watch.exposition.line_starts import BUCKET_LABEL, escaped, label_text
from vllm_watch.exposition.samples import AnySample, HistogramSample, bound_text, sample_parts
from vllm_watch.exposition.value_runs import Moments, ValueRuns
from vllm_watch.state.snapshot import ServerSnapshot


_PLACES = {name: place for place, name in enumerate(SERIES)}
"""The order of families that are first there at the same moment."""


class _Metric(NamedTuple):
    """A label set of a family (a histogram's without ``le``): the series' own labels, and the configured ones."""

    name: str
    labels: tuple[str, ...]
    configured: tuple[tuple[str, str], ...]


class _Present(NamedTuple):
    """The samples of a part as they are now, what they depend on, and how many lines they are."""

    depends_on: object
    samples: list[tuple[_Metric, AnySample]]
    lines: int


class TimeSeriesFile:
    """
    Gathers snapshots of many moments and writes them family by family, as the format demands.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then. Memory grows with the number of
    series, not with the time. Only the parts of a snapshot that differ from the one before are looked at.

    Args:
        spool: An empty file that can be written and read, for what memory should not hold. Without one memory holds
            it.
    """

    def __init__(self, spool: IO[bytes] | None = None) -> None:
        self._spool = spool or BytesIO()
        self._moments = Moments(self._spool)
        self._runs: dict[_Metric, ValueRuns] = {}
        self._families: dict[str, list[ValueRuns]] = {}
        self._names: dict[tuple[_Metric, tuple[float, ...]], tuple[str, ...]] = {}
        self._present: dict[tuple[object, ...], _Present] = {}
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        moment = len(self._moments)
        self._moments.append(snapshot.at)
        configured = tuple(sorted(snapshot.labels.items()))
        before, self._present = self._present, {}
        changed = []
        for part in sample_parts(snapshot):
            name = (configured, *part.name)
            known = before.get(name)
            if known is None or known.depends_on != part.depends_on:
                samples = [(_Metric(sample.name, sample.labels, configured), sample) for sample in part.samples()]
                known = _Present(part.depends_on, samples, sum(_lines(sample) for _, sample in samples))
                changed.append(known)
            self._present[name] = known
            self.samples += known.lines
        self._set(moment, [pair for each in changed for pair in each.samples])
        for name, known in before.items():
            if self._present.get(name) is not known:
                for metric, _ in known.samples:
                    self._runs[metric].end(moment)

    def texts(self) -> Iterator[str]:
        """Yield the file's text in pieces of whole lines."""
        for name, runs in self._families.items():
            series = SERIES[name]
            yield f"# TYPE {PREFIX}{series.family} {series.type}\n"
            yield f"# HELP {PREFIX}{series.family} {escaped(series.help)}\n"
            for each in runs:
                yield from each.texts(self._moments)
        yield "# EOF\n"

    def _set(self, moment: int, samples: list[tuple[_Metric, AnySample]]) -> None:
        new = dict.fromkeys(metric for metric, _ in samples if metric not in self._runs)
        for metric in sorted(new, key=lambda each: _PLACES[each.name]):
            runs = self._runs[metric] = ValueRuns(self._spool)
            self._families.setdefault(metric.name, []).append(runs)
        for metric, sample in samples:
            if isinstance(sample, HistogramSample):
                bounds, counts, total = sample.histogram
                self._runs[metric].set(moment, self._series(metric, bounds), (*counts, counts[-1], total))
            else:
                self._runs[metric].set(moment, self._series(metric), (sample.value,))

    def _series(self, metric: _Metric, bounds: tuple[float, ...] = ()) -> tuple[str, ...]:
        """Return the names and labels of a metric's lines; of a histogram those of its buckets, count and sum."""
        known = self._names.get((metric, bounds))
        if known is None:
            known = self._names[metric, bounds] = tuple(_series_texts(metric, bounds))
        return known


def _series_texts(metric: _Metric, bounds: tuple[float, ...]) -> Iterator[str]:
    series = SERIES[metric.name]
    labels = [*zip(series.labels, metric.labels, strict=True), *metric.configured]
    for bound in bounds:
        yield f"{series.full_name}_bucket{label_text([*labels, (BUCKET_LABEL, bound_text(bound))])}"
    for suffix in ("_count", "_sum") if bounds else ("",):
        yield f"{series.full_name}{suffix}{label_text(labels)}"


def _lines(sample: AnySample) -> int:
    """Return how many lines a sample is: a histogram's are its buckets, its count and its sum."""
    return len(sample.histogram.bounds) + 2 if isinstance(sample, HistogramSample) else 1
