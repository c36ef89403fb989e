# SPDX-License-Identifier: Apache-2.0
"""The sources of a load test, read from disk: what each is, and the report of all of them together."""

from __future__ import annotations

import zlib

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.client_runs import read_client_runs
from vllm_watch.analysis.loadtest.energy_and_cost import priced
from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Objective, Report, Run
from vllm_watch.analysis.loadtest.log_history import ToMoment, read_logs
from vllm_watch.analysis.loadtest.prometheus_source import PrometheusQuery, read_prometheus
from vllm_watch.analysis.loadtest.recording_history import read_recording
from vllm_watch.analysis.loadtest.server_history import ServerHistory
from vllm_watch.analysis.loadtest.source_kind import SourceKind, find_logs, open_text, source_kind, without_endings
from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.analysis.replay.replay import Progress
from vllm_watch.daemon.catalog.number_texts import moment
from vllm_watch.daemon.support.errors import FileError


_QUERY_SIZE = 4 * 1024 * 1024
"""How many bytes of a file take as long to read as a time range from a Prometheus, roughly."""


class ReadOptions(NamedTuple):
    """
    How sources are read.

    `zone` is that of logs and benchmark results, which print local time; `None` is this machine's. Each query of
    `prometheus` is one more source. `cost_per_hour` is a server's; `None` if only the sources may know it.
    """

    objective: Objective | None = None
    zone: tzinfo | None = None
    prometheus: tuple[PrometheusQuery, ...] = ()
    cost_per_hour: float | None = None


class Sources(NamedTuple):
    """
    What was found in the sources: the runs of clients, and the histories of servers.

    `broken_off` has a clause for each recording that is not whole.
    """

    clients: tuple[Run, ...]
    histories: tuple[ServerHistory, ...]
    broken_off: tuple[str, ...] = ()


def read_report(
    paths: Sequence[str], options: ReadOptions | None = None, progress: Progress = lambda _share: None
) -> Report:
    """
    Return the report of one or several load tests from logs (a rotated one by its own path), recordings and results.

    Raises:
        FileError: A source cannot be read, or is none, or nothing ran in any of them.
        PrometheusError: The Prometheus cannot be read.
    """
    options = options or ReadOptions()
    sources = read_sources(paths, options, progress)
    report = join(sources.clients, sources.histories, options.objective)
    if not report.runs:
        named = [*paths, *(history.source for history in sources.histories if history.source not in paths)]
        reason = "no load is in it: nothing that it reports shows a request at work"
        raise FileError("; ".join((f"{', '.join(dict.fromkeys(named))}: {reason}", *sources.broken_off)))
    return msgspec.structs.replace(report, runs=tuple(priced(run, options.cost_per_hour) for run in report.runs))


def read_sources(
    paths: Sequence[str], options: ReadOptions | None = None, progress: Progress = lambda _share: None
) -> Sources:
    """
    Return what is in some files and folders, and in a Prometheus.

    Raises:
        FileError: One of them cannot be read, or is none of the sources.
        PrometheusError: The Prometheus cannot be read.
    """
    options = options or ReadOptions()
    clients: list[Run] = []
    histories: list[ServerHistory] = []
    broken_off: list[str] = []
    units = list(_units(paths))
    names = distinct_names([unit.name for unit in units])
    whole = sum(unit.size for unit in units) + len(options.prometheus) * _QUERY_SIZE
    done = 0
    for unit in units:
        part = _part(progress, done, unit.size, whole)
        if unit.kind == "benchmark":
            clients += _benchmark_file(Path(unit.name), names[unit.name], options)
        elif unit.kind == "log":
            histories.append(read_logs(unit.paths, unit.name, _stem(unit.name), _to_moment(options.zone), part))
        else:
            recording = Recording(Path(unit.name))
            clients += _recorded_benchmarks(recording, options)
            histories += _recorded_servers(recording, part)
            broken_off += [] if recording.broken_off is None else [recording.broken_off]
        done += unit.size
    for query in options.prometheus:
        history = read_prometheus(query, _part(progress, done, _QUERY_SIZE, whole))
        name = f"{history.name} {moment(query.times.start)}"
        # Of several, each has its start in its name.
        histories.append(history if len(options.prometheus) == 1 else history._replace(name=name))
        done += _QUERY_SIZE
    progress(1.0)
    return Sources(tuple(clients), tuple(histories), tuple(broken_off))


def _part(progress: Progress, before: float, size: float, whole: float) -> Progress:
    """Return what tells the progress of a part, of which the whole is known."""
    return lambda share: progress((before + share * size) / whole)


class _Unit(NamedTuple):
    """One source: `paths` are its files, several for a rotated log."""

    kind: SourceKind
    name: str
    paths: tuple[str, ...]
    size: int


def _units(paths: Sequence[str]) -> Iterator[_Unit]:
    """Yield the sources, each once."""
    kinds = {path: source_kind(Path(path)) for path in dict.fromkeys(paths)}
    for path, kind in kinds.items():
        if kind != "log":
            yield _Unit(kind, path, (path,), max(Path(path).stat().st_size, 1))
    for name, files in find_logs([path for path, kind in kinds.items() if kind == "log"]).items():
        named = name if name in files else files[0]
        yield _Unit("log", named, files, sum(max(Path(file).stat().st_size, 1) for file in files))


def _benchmark_file(path: Path, name: str, options: ReadOptions) -> Iterator[Run]:
    try:
        with open_text(path) as file:
            text = file.read().decode()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: is not text in UTF-8: byte {error.start}") from error
    runs = read_client_runs(text, str(path), objective=options.objective, zone=options.zone)
    yield from (msgspec.structs.replace(run, name=run.name.replace(str(path), name)) for run in runs)


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Return for each path as much of its end as no other one has: its file's name, or that with folders."""
    parts = {path: Path(path).parts for path in paths}
    lengths = dict.fromkeys(paths, 1)
    while True:
        named = {path: "/".join(parts[path][-lengths[path] :]) for path in paths}
        counts = Counter(named.values())
        alike = [path for path in paths if counts[named[path]] > 1 and lengths[path] < len(parts[path])]
        if not alike:
            return named
        for path in alike:
            lengths[path] += 1


def _recorded_benchmarks(recording: Recording, options: ReadOptions) -> Iterator[Run]:
    name = _stem(str(recording.path))
    for result in recording.benchmarks:
        source = f"{recording.path}: {result.name}"
        runs = read_client_runs(result.content, source, objective=options.objective, zone=options.zone)
        short = name if len(recording.benchmarks) == 1 else f"{name}: {_stem(result.name)}"
        yield from (msgspec.structs.replace(run, name=run.name.replace(source, short)) for run in runs)


def _recorded_servers(recording: Recording, progress: Progress) -> Iterator[ServerHistory]:
    count = len(recording.servers)
    for number, server in enumerate(recording.servers):
        source = f"{recording.path}" if count == 1 else f"{recording.path}: {server}"
        history = read_recording(recording, source, server, _part(progress, number, 1, count))
        yield history._replace(name=_stem(str(recording.path)) if count == 1 else server)


def _stem(path: str) -> str:
    """Return a short name for a source: that of its file without its ending."""
    return without_endings(Path(path).resolve().name)


def _to_moment(zone: tzinfo | None) -> ToMoment:
    """Return what turns a local time that was read as this machine's into the moment that it is in a zone."""
    if zone is None:
        return lambda moment: moment
    return lambda moment: datetime.fromtimestamp(moment).replace(tzinfo=zone).timestamp()  # noqa: DTZ006
