# SPDX-License-Identifier: Apache-2.0
"""What a file or folder is, by its content: a recording, a benchmark's result, or a server's log."""

from __future__ import annotations

import os
import re
import zlib

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.client_runs import read_client_runs
from vllm_watch.analysis.loadtest.energy_and_cost import priced
from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Demand, Goodput, Objective, Report, Result, Run
from vllm_watch.analysis.loadtest.planning import make_plan, with_room
from vllm_watch.analysis.loadtest.prometheus_source import read_prometheus
from vllm_watch.analysis.loadtest.replayed_history import read_logs, read_recording
from vllm_watch.analysis.loadtest.server_history import ServerHistory
from vllm_watch.analysis.loadtest.source_names import Source, paths_of, queries_of
from vllm_watch.analysis.replay.finished_log import Progress, is_compressed, open_log
from vllm_watch.analysis.replay.recording import Recording, is_recording
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.catalog.number_texts import moment
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources.rotation import GZIP, former_files, log_name
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.benchmark import is_client_result, is_result


SourceKind = Literal["recording", "benchmark", "log"]

_PART = 1024 * 1024
_STATISTICS = re.compile(rb"\[loggers\.py:\d+\] |\[metrics\.py:\d+\] Avg |Avg prompt throughput: ")
_RECORDING_LINE = b'{"vllm_watch_recording":'
"""How a recording's first line begins, once its compression is removed."""
_JSON = re.compile(rb"\s*[\[{]\s*[\[{\"\]}]")
_JSON_LINES = re.compile(rb"\{[^\n]*\}\n\{")
"""Lines of JSON are a log: as vLLM writes it with such a formatter, or Docker's json-file."""

_ENDINGS = re.compile(r"(?:\.(?:jsonl?|log|out|txt|xz|gz|bz2|zst)(?:[.-]\d[\w:+-]*)?)+$", re.ASCII)
"""Those of results, recordings and logs, with what rotation and compression add: ``.json``, ``.log.1.gz``."""


def source_kind(path: Path) -> SourceKind:
    """Return what a path names; raise `FileError` if it cannot be read, or is nothing that can be."""
    if is_recording(path):
        return "recording"
    head, tail = _ends(path)
    if head.startswith(_RECORDING_LINE):
        raise FileError(f"{path}: is a recording without its compression: compress it with xz")
    has_result = is_result(head.decode(errors="replace")) or is_result(tail.decode(errors="replace"))
    if has_result and _STATISTICS.search(head + tail) and not _JSON.match(head):
        raise FileError(f"{path}: has a server's log and a benchmark's result: put them into two files")
    # JSON that is no result is not understood either way: the reader of results names who wrote it.
    is_document = _JSON.match(head) is not None and _JSON_LINES.match(head) is None
    is_other = is_document or is_client_result(head.decode(errors="replace"))
    return "benchmark" if has_result or is_other else "log"


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return a file's first and last megabyte; of a compressed one only the first."""
    try:
        with open_log(str(path)) as file:
            head = file.read(_PART)
            size = path.stat().st_size
            if size <= _PART or is_compressed(str(path)):
                return head, b""
            file.seek(max(size - _PART, _PART))
            return head, file.read()
    except (OSError, EOFError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def without_endings(name: str) -> str:
    """Return a file's name without its endings; other dots stay, as in ``openai-0.5qps-Qwen2.5-7B.json``."""
    return _ENDINGS.sub("", name) or name


def source_files(paths: Sequence[str]) -> tuple[str, ...]:
    """
    Return files and recordings once each; in place of another folder the sources in it and in its folders.

    A folder's sources are the files whose names end as theirs do, but for texts without a line of vLLM's.

    Raises:
        FileError: A folder cannot be read, or has none.
    """
    return tuple(dict.fromkeys(file for path in paths for file in _in_folder(path)))


def _in_folder(path: str) -> list[str]:
    folder = Path(path)
    if not os.path.isdir(path) or is_recording(folder):  # noqa: PTH112 - A name that is too long is no folder.
        return [path]
    try:
        list(folder.iterdir())  # `rglob` leaves out in silence what cannot be read.
        named = sorted(file for file in folder.rglob("*") if _is_named_as_source(file.relative_to(folder)))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    sources = [str(file) for file in named if not _is_foreign(file)]
    if not sources:
        raise FileError(f"{path}: is no recording, and no log, recording or result is in this folder")
    return sources


def _is_named_as_source(file: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in file.parts)
    return not is_hidden and _ENDINGS.search(file.name) is not None


def _is_foreign(file: Path) -> bool:
    """Return whether a file is no regular one, or a text that has no line of vLLM's where one looks first."""
    if not file.is_file():
        return True
    if source_kind(file) != "log":
        return False
    reader = LogReader()
    reader.read(b"".join(_ends(file)).splitlines(keepends=True), ArrivalTimes(0))
    return reader.is_foreign


def find_logs(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the files of each log, by its name: a log whose own file is given has its rotated ones, too."""
    given: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        given[log_name(path)].append(path)
    return {name: _files(name, files) for name, files in given.items()}


def _files(name: str, given: Sequence[str]) -> tuple[str, ...]:
    paths = [*(former_files(name) if name in given else ()), *given]
    by_file = {os.path.realpath(path): path for path in paths}
    return tuple(path for path in by_file.values() if not _has_plain_twin(path, by_file))


def _has_plain_twin(path: str, files: dict[str, str]) -> bool:
    """Return whether a compressed file is there uncompressed, too: it is being rotated."""
    return path.endswith(GZIP) and os.path.realpath(path.removesuffix(GZIP)) in files and Path(path[:-3]).exists()


_LACKS: Mapping[View, str] = {
    "client": N_(
        "By the client it is not known how many requests were within the objective: its result has no single "
        "requests, which --save-detailed adds."
    ),
    "server": N_(
        "By the server it is not known how many requests were within the objective: a log has no latencies, /metrics "
        "or a recording has them."
    ),
}

_PRINTED_SECOND = 1.0


class ReadOptions(NamedTuple):
    """
    What requests have to be answered within, and what a server costs in an hour, if that is known.

    Only what is in `times` is read, and of several runs only number `run`. `demand` is what servers are planned for.
    """

    objective: Objective | None = None
    cost_per_hour: float | None = None
    times: TimeRange | None = None
    run: int | None = None
    demand: Demand | None = None


class Sources(NamedTuple):
    """What was found: runs of clients, histories of servers, and a clause for each recording that is not whole."""

    clients: tuple[Run, ...]
    histories: tuple[ServerHistory, ...]
    broken_off: tuple[str, ...] = ()


def read_report(
    sources: Sequence[Source], options: ReadOptions | None = None, progress: Progress = lambda _share: None
) -> Report:
    """Return the report of one or several load tests; raise `FileError` or `PrometheusError` if nothing can be read."""
    options = options or ReadOptions()
    found = _within(read_sources(sources, options, progress), options.times)
    report = join(found.clients, found.histories, options.objective)
    if not report.runs:
        named = ", ".join(source if isinstance(source, str) else source.source for source in sources)
        reason = "no load is in it: nothing that it reports shows a request at work"
        reason += "" if options.times is None else " between --from and --to"
        raise FileError("; ".join((f"{named}: {reason}", *found.broken_off)))
    priced_runs = (with_room(priced(run, options.cost_per_hour)) for run in report.runs)
    runs = tuple(_with_objective(run, options.objective) for run in priced_runs)
    report = msgspec.structs.replace(report, runs=runs, plan=make_plan(runs, options.demand))
    if options.run is None:
        return report
    if options.run > len(runs):
        there = "there is only one" if len(runs) == 1 else f"there are {len(runs)}"
        raise FileError(f"--run {options.run}: there is no such load test, {there}")
    return msgspec.structs.replace(report, runs=(runs[options.run - 1],), left_out=None)


def _with_objective(run: Run, objective: Objective | None) -> Run:
    if objective is None:
        return run

    def is_of_other(result: Result) -> bool:
        return result.goodput is None or result.goodput.objective.limits != objective.limits

    def judged(result: Result) -> Result:
        if not is_of_other(result):
            return result
        return msgspec.structs.replace(result, goodput=Goodput(objective=objective))

    lacks = [_(_LACKS[view.view]) for view in run.views if is_of_other(view)]
    return msgspec.structs.replace(
        run,
        views=tuple(map(judged, run.views)),
        result=None if run.result is None else judged(run.result),
        warnings=(*run.warnings, *dict.fromkeys(lacks)),
    )


def _within(sources: Sources, times: TimeRange | None) -> Sources:
    if times is None:
        return sources
    clients = [
        run
        for run in sources.clients
        if run.start is None or run.end is None or (run.start < times.end and times.start < run.end)
    ]
    histories = [_during(history, times) for history in sources.histories]
    return sources._replace(clients=tuple(clients), histories=tuple(histories))


def _during(history: ServerHistory, times: TimeRange) -> ServerHistory:
    """Return a history from the last point before a time to the first after it; printed times are cut to seconds."""
    last = times.end + _PRINTED_SECOND
    first = bisect_right(history.points, times.start, key=lambda point: point.at)
    end = bisect_left(history.points, last, key=lambda point: point.at)
    return history._replace(
        points=history.points[max(first - 1, 0) : end + 1],
        events=tuple(event for event in history.events if times.start <= event.at <= last),
    )


def read_sources(
    sources: Sequence[Source], options: ReadOptions | None = None, progress: Progress = lambda _share: None
) -> Sources:
    """Return what is in files and in a Prometheus; raise `FileError` or `PrometheusError` if one is unreadable."""
    options = options or ReadOptions()
    clients: list[Run] = []
    histories: list[ServerHistory] = []
    broken_off: list[str] = []
    units = list(_units(source_files(paths_of(sources))))
    queries = queries_of(sources)
    names = distinct_names([unit.name for unit in units])
    count = len(units) + len(queries)
    for number, unit in enumerate(units):
        part = _part(progress, number, count)
        if unit.kind == "benchmark":
            clients += _benchmark_file(Path(unit.name), names[unit.name], options)
        elif unit.kind == "log":
            histories.append(read_logs(unit.paths, unit.name, _stem(unit.name), part))
        else:
            recording = Recording(Path(unit.name))
            clients += _recorded_benchmarks(recording, options)
            histories += _recorded_servers(recording, part)
            broken_off += [] if recording.broken_off is None else [recording.broken_off]
    for number, query in enumerate(queries, len(units)):
        history = read_prometheus(query, _part(progress, number, count))
        name = f"{history.name} {moment(query.times.start)}"
        # Of several, each has its start in its name.
        histories.append(history if len(queries) == 1 else history._replace(name=name))
    progress(1.0)
    return Sources(tuple(clients), tuple(histories), tuple(broken_off))


def _part(progress: Progress, number: int, count: int) -> Progress:
    return lambda share: progress((number + share) / count)


class _Unit(NamedTuple):
    kind: SourceKind
    name: str
    paths: tuple[str, ...]


def _units(paths: Sequence[str]) -> Iterator[_Unit]:
    kinds = {path: source_kind(Path(path)) for path in paths}
    for path, kind in kinds.items():
        if kind != "log":
            yield _Unit(kind, path, (path,))
    for name, files in find_logs([path for path, kind in kinds.items() if kind == "log"]).items():
        yield _Unit("log", name if name in files else files[0], files)


def _benchmark_file(path: Path, name: str, options: ReadOptions) -> Iterator[Run]:
    try:
        with open_log(str(path)) as file:
            text = file.read().decode()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: is not text in UTF-8: byte {error.start}") from error
    runs = read_client_runs(text, str(path), objective=options.objective)
    yield from (msgspec.structs.replace(run, name=run.name.replace(str(path), name)) for run in runs)


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Return each path as it is named in the deepest folder that has all of them."""
    whole = {path: Path(path).absolute() for path in paths}
    folder = os.path.commonpath([each.parent for each in whole.values()]) if whole else "."
    return {path: os.path.relpath(each, folder) for path, each in whole.items()}


def _recorded_benchmarks(recording: Recording, options: ReadOptions) -> Iterator[Run]:
    name = _stem(str(recording.path))
    for result in recording.benchmarks:
        source = f"{recording.path}: {result.file}"
        runs = read_client_runs(result.content, source, objective=options.objective)
        short = name if len(recording.benchmarks) == 1 else f"{name}: {_stem(result.file)}"
        yield from (msgspec.structs.replace(run, name=run.name.replace(source, short)) for run in runs)


def _recorded_servers(recording: Recording, progress: Progress) -> Iterator[ServerHistory]:
    count = len(recording.servers)
    for number, server in enumerate(recording.servers):
        source = f"{recording.path}" if count == 1 else f"{recording.path}: {server}"
        history = read_recording(recording, source, server, _part(progress, number, count))
        yield history._replace(name=_stem(str(recording.path)) if count == 1 else server)


def _stem(path: str) -> str:
    return without_endings(Path(path).resolve().name)
