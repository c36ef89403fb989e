# SPDX-License-Identifier: Apache-2.0
"""Reads what rules are evaluated over: recordings and logs through the daemon's own state, and a Prometheus."""

from __future__ import annotations

import re
import tempfile

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import NamedTuple

from vllm_watch.analysis.backtest.prometheus_grid import PrometheusRange, read_prometheus_grid
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, gridded, of_the_daemon, together
from vllm_watch.analysis.backtest.subject import Subject
from vllm_watch.analysis.loadtest.log_parts import find_logs
from vllm_watch.analysis.loadtest.source_kind import source_kind
from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.analysis.replay.replay import Progress, run_logs, run_recording
from vllm_watch.daemon.config.texts import DEFAULT_NAME
from vllm_watch.daemon.state.server import ServerSettings, ServerState
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.errors import FileError
from vllm_watch.daemon.support.garbage import no_search_for_cycles


_OF_DAEMON = ("up{", "vllm_watch_build_info")
_ENGINE_STATE = "vllm_watch_engine_state{"
_LABELS = tuple(re.compile(rf'[{{,]{name}="((?:[^"\\]|\\.)*)"') for name in ("server", "engine"))


class SubjectOptions(NamedTuple):
    """
    How files become series.

    Args:
        step: Seconds between two scrapes of the daemon.
        slo: What is configured as `slo`, by the name of its series.
        zone: The time zone of logs; `None` is this machine's.
    """

    step: float = 5.0
    slo: Mapping[str, float] | None = None
    zone: tzinfo | None = None


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
    kinds = {path: source_kind(Path(path)) for path in dict.fromkeys(paths)}
    wrong = next((path for path, kind in kinds.items() if kind == "benchmark"), None)
    if wrong is not None:
        raise FileError(f"{wrong}: is a benchmark's result: alerts need a server's log or a recording")
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


def read_range(asked: PrometheusRange, names: Collection[str], progress: Progress = lambda _share: None) -> Subject:
    """
    Return what a Prometheus has of the series of these names.

    Raises:
        PrometheusError: As of `read_prometheus_grid`.
    """
    grid, step, lead, gaps = read_prometheus_grid(asked, names, progress)
    if not any(series.startswith(_OF_DAEMON) for series in grid.series):
        # Loaded from a file of `vllm-watch backfill`: the daemon is not gone.
        return _subject(asked.source, grid, step)._replace(lead=lead, gaps=gaps)
    return Subject(asked.source, grid, step, lead, has_daemon=True, engines=_engines(grid), gaps=gaps)


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
    return _subject(name, grid, options.step)._replace(moved=_moved(grid.started, options.zone))


def _gridded(name: str, snapshots: Iterator[ServerSnapshot], step: float) -> SeriesGrid:
    with no_search_for_cycles(), tempfile.TemporaryFile() as spool:
        grid = gridded(snapshots, step, spool)
    if grid is None:
        raise FileError(f"{name}: no line of a vLLM server's log is in it, and it is no recording")
    return grid


def _subject(name: str, grid: SeriesGrid, step: float) -> Subject:
    """Return what has no series of the daemon itself: it gets those of one that is well, which no rule misses."""
    series = {**of_the_daemon(grid.steps), **grid.series}
    return Subject(name, grid._replace(series=series), step, engines=_engines(grid))


def _engines(grid: SeriesGrid) -> int:
    """Return how many engines the server with most of them has."""
    found: dict[str, set[str]] = {}
    for series in grid.series:
        if series.startswith(_ENGINE_STATE):
            labels = dict(
                part.partition("=")[::2] for part in series.removeprefix(_ENGINE_STATE).rstrip("}").split(",")
            )
            found.setdefault(labels.get("server", ""), set()).add(labels.get("engine", ""))
    return max(map(len, found.values()), default=0)


def _moved(started: float, zone: tzinfo | None) -> float:
    """Return by how many seconds the times of a log are later, read as those of a zone instead of this machine's."""
    if zone is None:
        return 0.0
    return datetime.fromtimestamp(started).replace(tzinfo=zone).timestamp() - started  # noqa: DTZ006
