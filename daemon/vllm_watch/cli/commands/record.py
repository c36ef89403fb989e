# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch record``: the logs and scrapes of running servers in one file, from now on."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
import msgspec

from vllm_watch.analysis.recorder.command_redaction import redact_arguments, redact_result
from vllm_watch.analysis.recorder.recorded_command import (
    CHECK_SECONDS,
    PRINTED,
    ResultFiles,
    RunningCommand,
    check_command,
)
from vllm_watch.analysis.recorder.recording_session import RecordingSession, ServerCounts, create_file, sources_of
from vllm_watch.analysis.recorder.redaction import KINDS, Kind
from vllm_watch.analysis.recorder.server_recorder import GpuRecorder, RecorderThread, end_together, recorder_threads
from vllm_watch.analysis.replay.recording_lines import Sources
from vllm_watch.cli.commands.options import (
    as_one,
    check_output,
    duration_option,
    file_option,
    say,
)
from vllm_watch.cli.commands.watched import (
    Selection,
    configured_now,
    discovered,
    selection_options,
    with_command_lines,
)
from vllm_watch.daemon.catalog.reasons import GPU, LOG, METRICS, explain
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service.gpus import GpuThread, wants_driver
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DiscoveryError, FileError, UsageError
from vllm_watch.daemon.support.logging_setup import configure_log
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch_parsers.benchmark import is_result


FIRST_SECONDS = 10.0
"""How long a command waits for the first scrape of each server, so that there is one from before it."""

_STATUS_SECONDS = 1.0
_NAMES: dict[Kind, str] = {
    "lines": "text of log lines",
    "addresses": "addresses of clients",
    "queries": "queries and unknown paths",
    "arguments": "values of the command",
    "results": "texts of results",
}


class RecordOptions(NamedTuple):
    """
    What to record and where.

    Attributes:
        names: Of the selected servers those to record; all if there are none.
        every: Seconds between scrapes, if not what is configured.
        seconds: How long, if not until a signal.
        keeps_all: Whether nothing is removed.
        argv: The command to run meanwhile, if any.
    """

    names: Sequence[str]
    output: str
    force: bool
    every: float | None
    seconds: float | None
    keeps_all: bool
    argv: Sequence[str]


@click.command("record")
@selection_options()
@as_one(
    "options",
    RecordOptions,
    click.option("--server", "names", multiple=True, metavar="NAME", help="Record only this; may be repeated."),
    file_option("-o", "--output", required=True, help="Where to write, such as test.jsonl.xz."),
    click.option("--force", is_flag=True, help="Write over a FILE that is there."),
    duration_option(
        "--every",
        help="Time between two scrapes [default: as configured, else 5s].",
    ),
    duration_option(
        "--for",
        "seconds",
        help="How long to record [default: until Ctrl-C].",
    ),
    click.option("--keep-all", "keeps_all", is_flag=True, help="Keep log lines, results and the COMMAND as they are."),
    click.argument("argv", metavar="[-- COMMAND...]", nargs=-1, type=click.Path(readable=False)),
)
def command(selection: Selection, options: RecordOptions) -> None:
    """
    Record the logs and /metrics of running servers in one file.

    It goes on from now until Ctrl-C.
    With a COMMAND after --, such as vllm bench serve, record while it runs, and its result too. Of each log line its
    head stays, and what vllm-watch reads; prompts, addresses, queries, keys and all other text are removed. Without
    --config, --log and --metrics: of the vLLM servers that run on this machine.
    """
    configure_log("error")
    record(selection, options)


def record(selection: Selection, options: RecordOptions) -> None:
    """Record servers until a signal, the time given, or the end of the command."""
    if options.argv:
        check_command(options.argv)
    config = _config(selection, options)
    check_output(options.output, (selection.config_file, *(server.log for server in config.servers)))
    file = create_file(Path(options.output), force=options.force)
    clock, stop, hurry = SystemClock(), threading.Event(), threading.Event()
    keeps_all = options.keeps_all
    session = RecordingSession(file, _sources(config), clock, stop, keeps_all=keeps_all)
    threads = [each for server in config.servers for each in recorder_threads(server, session, keeps_all=keeps_all)]
    gpus = GpuThread(clock, InternalErrors())
    _announce(config.servers, options)
    with _signals(stop, hurry):
        for thread in threads:
            thread.start()
        gpus.follow(config, [GpuRecorder(server.name, session) for server in config.servers])
        status = None
        try:
            if options.argv:
                _await_first(threads, stop)
                status = _run_command(session, options, stop, hurry)
            else:
                _wait(session, options.seconds, stop)
        finally:
            gpus.request_stop()
            end_together(threads)
            gpus.join()
            session.end(_reason(options, status, stop))
    _summarize(session)
    _check(session, options, status)


def _config(selection: Selection, options: RecordOptions) -> Config:
    """Return the configuration of the servers to record; there is at least one, and one of each name given."""
    config = discovered(selection).poll() if selection.is_empty else with_command_lines(configured_now(selection))
    if not config.servers:
        raise DiscoveryError("nothing to record: no vLLM server was found; run vllm-watch discover for the reason")
    known = [server.name for server in config.servers]
    for name in options.names:
        if name not in known:
            raise UsageError(f"--server: there is no server {name}; there is {' and '.join(known)}")
    wanted = options.names or known
    servers = [_scraped_every(server, options.every) for server in config.servers if server.name in wanted]
    return msgspec.structs.replace(config, servers=tuple(servers))


def _sources(config: Config) -> dict[str, Sources]:
    """Return what is recorded of each server."""
    gpu_interval = config.gpu.interval if wants_driver(config) else None
    return {server.name: sources_of(server, gpu_interval) for server in config.servers}


def _scraped_every(server: ServerConfig, seconds: float | None) -> ServerConfig:
    if server.metrics is None or seconds is None:
        return server
    metrics = msgspec.structs.replace(server.metrics, interval=seconds, timeout=min(server.metrics.timeout, seconds))
    return msgspec.structs.replace(server, metrics=metrics)


@contextmanager
def _signals(stop: threading.Event, hurry: threading.Event) -> Iterator[None]:
    """Let the signals that end a program set `stop`, and those after the first one `hurry`."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        (hurry if stop.is_set() else stop).set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _await_first(threads: Sequence[RecorderThread], stop: threading.Event) -> None:
    """Wait until each source was read once, so that the recording has what was before the command."""
    for thread in threads:
        for _ in range(int(FIRST_SECONDS / CHECK_SECONDS)):
            if stop.is_set() or thread.has_worked.wait(CHECK_SECONDS):
                break


def _wait(session: RecordingSession, seconds: float | None, stop: threading.Event) -> None:
    """Wait for the end, and show how it goes on a terminal."""
    shows = sys.stderr.isatty()
    while not stop.wait(_STATUS_SECONDS if seconds is None else min(_STATUS_SECONDS, seconds - session.seconds)):
        if seconds is not None and session.seconds >= seconds:
            break
        session.write_out()
        if shows:
            click.echo(f"\r{_status(session)}\x1b[K", err=True, nl=False)
    if shows:
        click.echo("\r\x1b[K", err=True, nl=False)


def _run_command(
    session: RecordingSession, options: RecordOptions, stop: threading.Event, hurry: threading.Event
) -> int:
    """Run the command to its end, record what it leaves, and return its exit status."""
    files = ResultFiles(options.argv, Path.cwd())
    started = session.seconds
    command = RunningCommand(options.argv, _pass_on)
    while (status := command.exit_status) is None:
        if stop.wait(CHECK_SECONDS) or (options.seconds is not None and session.seconds >= options.seconds):
            status = command.end(hurry)
            break
        session.write_out()
    argv, values = (options.argv, 0) if options.keeps_all else redact_arguments(options.argv)
    session.add_command(argv, status, started)
    session.count_removed({"arguments": values})
    printed = command.printed
    for name, text in [*files.new(), *([(PRINTED, printed)] if is_result(printed) else [])]:
        if not (options.keeps_all or is_result(text)):
            session.counts.foreign.append(name)
            continue
        left, texts = (text, 0) if options.keeps_all else redact_result(text)
        session.add_benchmark(name, left)
        session.count_removed({"results": texts})
    return status


def _pass_on(data: bytes) -> None:
    """Print what a command prints; nobody may be reading any more."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _reason(options: RecordOptions, status: int | None, stop: threading.Event) -> str:
    if stop.is_set():
        return "interrupted"
    if status is not None:
        return "the command ended"
    return "the time was over" if options.seconds is not None else "failed"


def _announce(servers: Sequence[ServerConfig], options: RecordOptions) -> None:
    for server in servers:
        log = f"the journal of unit {server.journal}" if server.journal is not None else server.log
        sources = [log, server.metrics.url if server.metrics else None]
        say(f"recording {server.name}: {' and '.join(source for source in sources if source)}")
    if not options.argv:
        end = "Ctrl-C ends it" if options.seconds is None else f"it ends after {options.seconds:g} s, or with Ctrl-C"
        say(f"into {options.output}; {end}")


def _status(session: RecordingSession) -> str:
    servers = session.counts.servers.values()
    lines, scrapes, failed = (
        sum(numbers)
        for numbers in zip(*((each.lines, each.scrapes, each.failed_scrapes) for each in servers), strict=True)
    )
    return f"{session.seconds:.0f} s, log lines: {lines}, scrapes: {scrapes} ok, {failed} failed, {_size(session)}"


def _size(session: RecordingSession) -> str:
    size = session.counts.size
    return f"{size / 1024:.0f} KiB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MiB"


def _summarize(session: RecordingSession) -> None:
    """Say what was recorded, what was removed from it, and what to do with it."""
    counts = session.counts
    say(f"{session.path}: {session.seconds:.0f} s, {_size(session)}")
    for name, server in counts.servers.items():
        gpus = f", GPU readings: {server.gpu_readings}" if server.gpu_readings else ""
        scrapes = f"scrapes: {server.scrapes} ok, {server.failed_scrapes} failed"
        say(f"  {name}: log lines: {server.lines}, {scrapes}{gpus}")
        for text in _problems(server):
            say(f"    {text}")
    if counts.benchmarks:
        say(f"  results of the benchmark: {', '.join(counts.benchmarks)}")
    if counts.foreign:
        of_vllm = "without --keep-all only results of vllm bench serve are"
        say(f"  not recorded: {', '.join(counts.foreign)}: {of_vllm}; report reads the file itself")
    removed = [f"{_NAMES[kind]} ({number})" for kind in KINDS if (number := counts.removed[kind])]
    say(f"  removed: {', '.join(removed) or 'nothing'}. What vllm-watch reads stays, and /metrics as it is.")
    if _has_something(session):
        say(f"Next: vllm-watch report {session.path}")


def _has_something(session: RecordingSession) -> bool:
    """Whether a line was written or a scrape succeeded."""
    return any(server.lines or server.scrapes for server in session.counts.servers.values())


def _problems(server: ServerCounts) -> Iterator[str]:
    """Yield why a source could not be read: the log now, /metrics and GPUs not once, if that is a fault."""
    log, metrics, gpu = server.log_reason, server.scrape_reason, server.gpu_reason
    if log is not None and log != "ok" and log in LOG:
        yield f"log: {explain('log', log)}"
    if not server.scrapes and metrics is not None and metrics in METRICS:
        yield f"metrics: {explain('metrics', metrics)}"
    if not server.gpu_readings and gpu is not None and GPU[gpu].kind not in {"ok", "quiet"}:
        yield f"GPUs: {explain('gpu', gpu)}"


def _check(session: RecordingSession, options: RecordOptions, status: int | None) -> None:
    """Raise an error if the recording could not go on, nothing was recorded, or the command did not succeed."""
    if session.problem is not None:
        raise session.problem
    if status:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise FileError(f"{options.argv[0]} {how}; {session.path} has what was recorded until then")
    if not _has_something(session):
        raise FileError(f"{session.path}: nothing was recorded: no log line was read, and no scrape succeeded")
