# SPDX-License-Identifier: Apache-2.0
"""
Reads what rules are evaluated over: recordings and logs through the daemon's own state, and series of a Prometheus.

A series of a Prometheus is asked for as a rule sees it, with what Prometheus knows of its end: so what was stale there
is stale here.
"""

from __future__ import annotations

import json
import math
import re

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from vllm_watch.analysis.backtest.series_grid import SeriesGrid, Subject, from_points, gridded, of_the_daemon, together
from vllm_watch.analysis.loadtest.prometheus_history import Sampling, sampling_of
from vllm_watch.analysis.loadtest.prometheus_source import (
    MAX_POINTS,
    PrometheusQuery,
    nothing_found,
    sampled_at,
    values_of,
)
from vllm_watch.analysis.loadtest.report_sources import find_logs, source_files, source_kind
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.analysis.replay.replay import run_logs, run_recording
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.config.texts import DEFAULT_NAME
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch.daemon.prometheus.api import PrometheusApi
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.errors import FileError, PrometheusError


LEAD_SECONDS = 7200.0
"""How long before the asked time values are read: most rules look back no longer."""

MAX_VALUES = 40_000_000
"""The values that fit into a few gigabytes here and in promtool."""

_VALUES_AT_ONCE = 1_000_000
_MOMENTS_AT_ONCE = 1000
_FEW_MOMENTS = 10
_HOUR = 3600.0
_SHORTEST_GAP = 60.0

_OF_DAEMON = ("up{", "vllm_watch_build_info")
_ENGINE_STATE = "vllm_watch_engine_state{"
_LABELS = tuple(re.compile(rf'[{{,]{name}="((?:[^"\\]|\\.)*)"') for name in ("server", "engine"))


class SubjectOptions(NamedTuple):
    """How files become series: seconds between two scrapes, and the limits of an `slo`."""

    step: float = 5.0
    slo: Mapping[str, float] | None = None


class FileSource(NamedTuple):
    """A recording, or a log with its rotated files."""

    name: str
    paths: tuple[str, ...]
    is_recording: bool


def file_sources(paths: Sequence[str]) -> list[FileSource]:
    """
    Return what some files and folders are: each recording and each log is a source by itself.

    Raises:
        FileError: One of them cannot be read, or is neither.
    """
    kinds = {path: source_kind(Path(path)) for path in source_files(paths)}
    wrong = next((path for path, kind in kinds.items() if kind == "benchmark"), None)
    if wrong is not None:
        raise FileError(f"{wrong}: is a benchmark's result: here a server's log or a recording is needed")
    recordings = [FileSource(path, (path,), is_recording=True) for path, kind in kinds.items() if kind == "recording"]
    logs = find_logs([path for path, kind in kinds.items() if kind == "log"])
    return [
        *recordings,
        *(FileSource(name if name in files else files[0], files, is_recording=False) for name, files in logs.items()),
    ]


def read_file_source(source: FileSource, options: SubjectOptions, progress: Progress = lambda _share: None) -> Subject:
    """
    Return the series of a recording or a log.

    Raises:
        FileError: It cannot be read.
    """
    if source.is_recording:
        return _recording(source.name, options, progress)
    return _log(source.name, source.paths, options, progress)


def read_range(asked: PrometheusQuery, names: Collection[str], progress: Progress = lambda _share: None) -> Subject:
    """
    Return what a Prometheus has of the series of these names.

    Raises:
        PrometheusError: It cannot be reached, rejects something, has nothing in this time, or too much.
    """
    api = PrometheusApi(asked.target)
    try:
        times = TimeRange(asked.times.start - LEAD_SECONDS, asked.times.end)
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
    if not any(series.startswith(_OF_DAEMON) for series in grid.series):
        # Loaded from a file of `vllm-watch backfill`: the daemon is not gone.
        return _subject(asked.source, grid, step)._replace(lead=lead, gaps=gaps)
    return Subject(asked.source, grid, step, lead, has_daemon=True, engines=_engines(grid), gaps=gaps)


def _sampling(api: PrometheusApi, server: str | None, times: TimeRange) -> Sampling | None:
    """Return how often the daemon was scraped, as the first hour shows it, and the first and last time of all."""
    query = sampled_at(server)
    whole = sampling_of(api.range(query, times, max(math.ceil((times.end - times.start) / (MAX_POINTS - 1)), 1)))
    if whole is None:
        return None
    hour = sampling_of(api.range(query, TimeRange(whole.first, min(whole.first + _HOUR, times.end)), 1))
    return whole if hour is None else whole._replace(interval=hour.interval)


def _read(api: PrometheusApi, asked: PrometheusQuery, query: str, step: float, progress: Progress) -> SeriesGrid:
    started = asked.times.start
    steps = math.floor((asked.times.end - started) / step) + 1
    points: dict[str, dict[int, str]] = defaultdict(dict)
    texts: dict[float, str] = {}
    done, size = 0, _FEW_MOMENTS
    while done < steps:
        size = min(size, steps - done)
        # Half an interval after a scrape, small delays of scrapes change nothing.
        first = started + (done + 0.5) * step
        answer = api.range(query, TimeRange(first, first + (size - 1) * step), step)
        for name, at, value in _points(answer):
            points[name][round((at - started) / step - 0.5)] = texts.setdefault(value, repr(value))
        done += size
        size = max(min(_VALUES_AT_ONCE // max(len(answer), 1), _MOMENTS_AT_ONCE), _FEW_MOMENTS)
        if len(points) * steps > MAX_VALUES:
            raise PrometheusError(
                f"{asked.source}: {len(points)} series at {steps} moments are too many: "
                "give a shorter time, or name one server"
            )
        progress(done / steps)
    return SeriesGrid(started, steps, {name: from_points(each, steps) for name, each in points.items()})


def _points(answer: Sequence[PromSeries]) -> Iterator[tuple[str, float, float]]:
    for series in answer:
        labels = sorted((name, value) for name, value in series.labels.items() if name != "__name__")
        # A string of PromQL has Go's escapes, and JSON's are among them.
        inner = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels)
        text = f"{series.labels.get('__name__', '')}{{{inner}}}" if inner else series.labels.get("__name__", "")
        for at, value in series.values:
            yield text, at, value


def _gaps(api: PrometheusApi, asked: PrometheusQuery, grid: SeriesGrid, step: float) -> Iterator[TimeRange]:
    seconds = grid.steps * step
    coarse = max(math.ceil(seconds / (MAX_POINTS - 1)), step)
    sampled = api.range(sampled_at(asked.server), TimeRange(grid.started, grid.started + seconds), coarse)
    moments = sorted({value for series in sampled for _, value in series.values} | {asked.times.end})
    for earlier, later in pairwise(moments):
        if later - earlier > max(_SHORTEST_GAP, 3 * coarse) and later > asked.times.start:
            yield TimeRange(earlier, later)


def _recording(path: str, options: SubjectOptions, progress: Progress) -> Subject:
    recording = Recording(Path(path))
    grids = []
    for number, server in enumerate(recording.servers):

        def part(share: float, before: int = number) -> None:
            progress((before + share) / len(recording.servers))

        grids.append(_gridded(path, _recorded(recording, server, options, part), options.step))
    warnings = () if recording.broken_off is None else (recording.broken_off,)
    return _subject(path, together(grids), options.step)._replace(warnings=warnings)


def _recorded(
    recording: Recording, server: str, options: SubjectOptions, progress: Progress
) -> Iterator[ServerSnapshot]:
    settings = recording.sources[server].settings(server)._replace(slo=options.slo or {})
    return run_recording(recording, ServerState(settings), options.step, progress, server)


def _log(name: str, paths: Sequence[str], options: SubjectOptions, progress: Progress) -> Subject:
    settings = ServerSettings(DEFAULT_NAME, has_log=True, metrics_interval=None, slo=options.slo or {})
    grid = _gridded(name, run_logs(paths, ServerState(settings), options.step, progress), options.step)
    return _subject(name, grid, options.step)


def _gridded(name: str, snapshots: Iterator[ServerSnapshot], step: float) -> SeriesGrid:
    grid = gridded(snapshots, step)
    if grid is None:
        raise FileError(f"{name}: no line of a vLLM server's log is in it, and it is no recording")
    return grid


def _subject(name: str, grid: SeriesGrid, step: float) -> Subject:
    """Return what has no series of the daemon itself: it gets those of one that is well, which no rule misses."""
    series = {**of_the_daemon(grid.steps), **grid.series}
    return Subject(name, grid._replace(series=series), step, engines=_engines(grid))


def _engines(grid: SeriesGrid) -> int:
    engines: dict[str, set[str]] = defaultdict(set)
    for series in grid.series:
        if series.startswith(_ENGINE_STATE):
            server, engine = (label[1] if (label := pattern.search(series)) else "" for pattern in _LABELS)
            engines[server].add(engine)
    return max(map(len, engines.values()), default=0)
