# SPDX-License-Identifier: Apache-2.0
"""
Series of a Prometheus with a value for every scrape.

Each is asked for as a rule sees it, with what Prometheus knows of its end: so what was stale there is stale here.
"""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.backtest.series_grid import SeriesGrid, from_points
from vllm_watch.analysis.loadtest.prometheus_history import Sampling, sampling_of
from vllm_watch.analysis.loadtest.prometheus_queries import sampled_at, values_of
from vllm_watch.analysis.loadtest.prometheus_source import MAX_POINTS, nothing_found
from vllm_watch.analysis.replay.replay import Progress
from vllm_watch.daemon.config.times import TimeRange
from vllm_watch.daemon.exposition.text_format import label_text
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch.daemon.prometheus.api import PrometheusApi, PrometheusTarget
from vllm_watch.daemon.support.errors import PrometheusError


LEAD_SECONDS = 7200.0
"""How long before the asked time values are read: most rules look back no longer."""

MAX_VALUES = 40_000_000
"""So many values fit into a few gigabytes here and in promtool."""

_VALUES_AT_ONCE = 1_000_000
_MOMENTS_AT_ONCE = 1000
_FEW_MOMENTS = 10
_HOUR = 3600.0
_SHORTEST_GAP = 60.0


class PrometheusRange(NamedTuple):
    """Which server's series, or all servers', from when to when, and for how many seconds before that."""

    target: PrometheusTarget
    server: str | None
    times: TimeRange
    lead: float = LEAD_SECONDS

    @property
    def source(self) -> str:
        """What is read, as a result names it."""
        return f"{self.target.url.rstrip('/')}: {'all servers' if self.server is None else self.server}"


class PrometheusGrid(NamedTuple):
    """The series, seconds between two of their values, how many of the first are lead, and when nothing was scraped."""

    grid: SeriesGrid
    step: float
    lead: int
    gaps: tuple[TimeRange, ...]


def read_prometheus_grid(
    asked: PrometheusRange, names: Collection[str], progress: Progress = lambda _share: None
) -> PrometheusGrid:
    """
    Read series.

    Args:
        asked: Of what, and when.
        names: The names of the series.
        progress: Called with the share that is done.

    Raises:
        PrometheusError: It cannot be reached, rejects something, has nothing in this time, or too much.
    """
    api = PrometheusApi(asked.target)
    try:
        times = TimeRange(asked.times.start - asked.lead, asked.times.end)
        sampling = _sampling(api, asked.server, times)
        if sampling is None or sampling.last < asked.times.start:
            raise PrometheusError(f"{asked.source}: {nothing_found(api, asked.server, asked.times)}")
        step = max(round(sampling.interval), 1)
        first = TimeRange(sampling.first, min(sampling.last + step, times.end))
        grid = _read(api, asked._replace(times=first), values_of(names, asked.server), step, progress)
        gaps = tuple(_gaps(api, asked, grid, step))
    finally:
        api.close()
    lead = max(math.ceil((asked.times.start - grid.started) / step), 0)
    return PrometheusGrid(grid, step, lead, gaps)


def _sampling(api: PrometheusApi, server: str | None, times: TimeRange) -> Sampling | None:
    """Return how often the daemon was scraped, as the first hour shows it, and the first and last time of all."""
    query = sampled_at(server)
    whole = sampling_of(api.range(query, times, max(math.ceil((times.end - times.start) / (MAX_POINTS - 1)), 1)))
    if whole is None:
        return None
    hour = sampling_of(api.range(query, TimeRange(whole.first, min(whole.first + _HOUR, times.end)), 1))
    return whole if hour is None else whole._replace(interval=hour.interval)


def _read(api: PrometheusApi, asked: PrometheusRange, query: str, step: float, progress: Progress) -> SeriesGrid:
    started = asked.times.start
    steps = math.floor((asked.times.end - started) / step) + 1
    points: dict[str, dict[int, str]] = defaultdict(dict)
    texts: dict[float, str] = {}
    done, size = 0, _FEW_MOMENTS
    while done < steps:
        size = min(size, steps - done)
        # Half an interval after a scrape, small delays of scrapes change nothing.
        first = started + (done + 0.5) * step
        found = api.range(query, TimeRange(first, first + (size - 1) * step), step)
        for name, at, value in _points(found):
            points[name][round((at - started) / step - 0.5)] = texts.setdefault(value, repr(value))
        done += size
        size = max(min(_VALUES_AT_ONCE // max(len(found), 1), _MOMENTS_AT_ONCE), _FEW_MOMENTS)
        if len(points) * steps > MAX_VALUES:
            raise PrometheusError(
                f"{asked.source}: {len(points)} series at {steps} moments are too many: "
                "give a shorter time, or --server NAME"
            )
        progress(done / steps)
    return SeriesGrid(started, steps, {name: from_points(each, steps) for name, each in points.items()})


def _points(found: Sequence[PromSeries]) -> Iterator[tuple[str, float, float]]:
    for series in found:
        labels = dict(series.labels)
        name = labels.pop("__name__", "")
        text = name + label_text(sorted(labels.items()))
        for at, value in series.values:
            yield text, at, value


def _gaps(api: PrometheusApi, asked: PrometheusRange, grid: SeriesGrid, step: float) -> Iterator[TimeRange]:
    """Yield when nothing was scraped."""
    seconds = grid.steps * step
    coarse = max(math.ceil(seconds / (MAX_POINTS - 1)), step)
    sampled = api.range(sampled_at(asked.server), TimeRange(grid.started, grid.started + seconds), coarse)
    moments = sorted({value for series in sampled for _, value in series.values} | {asked.times.end})
    for earlier, later in pairwise(moments):
        if later - earlier > max(_SHORTEST_GAP, 3 * coarse) and later > asked.times.start:
            yield TimeRange(earlier, later)
