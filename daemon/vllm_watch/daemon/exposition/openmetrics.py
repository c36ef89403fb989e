# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics with timestamps, for ``promtool tsdb create-blocks-from openmetrics``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import IO, NamedTuple

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.line_starts import BUCKET_LABEL, escaped, label_text
from vllm_watch.daemon.exposition.sample_values import AnySample, HistogramSample, bound_text
from vllm_watch.daemon.exposition.samples import whole_parts
from vllm_watch.daemon.exposition.value_runs import Moments, ValueRuns
from vllm_watch.daemon.state.snapshot import ServerSnapshot


_PLACES = {name: place for place, name in enumerate(SERIES)}

_Metric = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]
"""A family's name, and a label set (a histogram's without ``le``): the series' own labels and the configured ones."""


class _Present(NamedTuple):
    """A part of the last snapshot: what its samples depend on, their runs, and how many lines they are."""

    depends_on: object
    runs: list[ValueRuns]
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
        self._families: dict[str, int] = {}
        """The moment at which each family was first there."""
        self._present: dict[tuple[object, ...], _Present] = {}
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        moment = len(self._moments)
        self._moments.append(snapshot.at)
        configured = tuple(sorted(snapshot.labels.items()))
        before, self._present = self._present, {}
        for part in whole_parts(snapshot):
            name = (configured, *part.name)
            known = before.get(name)
            if known is None or known.depends_on != part.depends_on:
                runs = [self._set(moment, sample, configured) for sample in part.samples()]
                known = _Present(part.depends_on, runs, sum([each.lines for each in runs]))
            self._present[name] = known
            self.samples += known.lines
        for name, known in before.items():
            if self._present.get(name) is not known:
                for runs_before in known.runs:
                    runs_before.end(moment)

    def texts(self) -> Iterator[str]:
        """Yield the file's text in pieces of whole lines: the families by their first moments, then as in the table."""
        runs_of: dict[str, list[tuple[_Metric, ValueRuns]]] = {name: [] for name in self._families}
        for metric, runs in self._runs.items():
            runs_of[metric[0]].append((metric, runs))
        for name in sorted(runs_of, key=lambda each: (self._families[each], _PLACES[each])):
            series = SERIES[name]
            yield f"# TYPE {PREFIX}{series.family} {series.type}\n"
            yield f"# HELP {PREFIX}{series.family} {escaped(series.help)}\n"
            for metric, runs in runs_of[name]:
                yield from runs.texts(self._moments, partial(_series_texts, metric))
        yield "# EOF\n"

    def _set(self, moment: int, sample: AnySample, configured: tuple[tuple[str, str], ...]) -> ValueRuns:
        metric = (sample.name, sample.labels, configured)
        runs = self._runs.get(metric)
        if runs is None:
            runs = self._runs[metric] = ValueRuns(self._spool)
            self._families.setdefault(sample.name, moment)
        if isinstance(sample, HistogramSample):
            bounds, counts, total, _ = sample.histogram
            runs.set(moment, (*counts, counts[-1], total), bounds)
        else:
            runs.set(moment, (sample.value,))
        return runs


def _series_texts(metric: _Metric, bounds: tuple[float, ...]) -> Iterator[str]:
    """Yield the names and labels of a metric's lines; of a histogram those of its buckets, its count and its sum."""
    name, values, configured = metric
    series = SERIES[name]
    labels = [*zip(series.labels, values, strict=True), *configured]
    for bound in bounds:
        yield f"{series.full_name}_bucket{label_text([*labels, (BUCKET_LABEL, bound_text(bound))])}"
    for suffix in ("_count", "_sum") if bounds else ("",):
        yield f"{series.full_name}{suffix}{label_text(labels)}"
