# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch once``: what a finished log and one scrape of /metrics show, printed once."""

from __future__ import annotations

import gzip
import sys
import zlib

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import click
import msgspec

from vllm_watch.analysis.replay.finished_log import FinishedLog, Progress
from vllm_watch.analysis.replay.replay import CourseReader, LogCourse, LogPeriod, read_to_end, snapshot_after
from vllm_watch.cli.commands.options import log_option, progress_bar, say
from vllm_watch.daemon.catalog.reasons import MetricsReason, explain
from vllm_watch.daemon.config.server_config import MetricsConfig
from vllm_watch.daemon.config.texts import DEFAULT_NAME, parse_url
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.exposition.text_format import TextWriter
from vllm_watch.daemon.reading.log_reader import TimedEvent
from vllm_watch.daemon.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.printable import ascii_json
from vllm_watch.daemon.support.standard_streams import write_output
from vllm_watch_parsers.events import KvTransfers, Notice, StartupDetail
from vllm_watch_parsers.scrape import read_metrics


OnceFormat = Literal["summary", "prometheus", "json", "events"]

_SCRAPE_INTERVAL = 10.0


class OnceResult(NamedTuple):
    """
    What was read.

    Args:
        snapshot: What is known at the end of the log.
        log: From when to when that is.
        metrics_problem: Why /metrics could not be read, if so.
        course: What became of the server in the log, if that was followed.
        foreign: The logs of which no line is vLLM's, in words.
    """

    snapshot: ServerSnapshot
    log: LogPeriod | None
    metrics_problem: MetricsReason | None
    course: LogCourse | None = None
    foreign: tuple[str, ...] = ()


@click.command("once")
@log_option
@click.option(
    "--metrics",
    metavar="URL|FILE",
    type=click.Path(readable=False),
    help="A server's /metrics, or a file with its content.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(OnceFormat)),
    help="summary, prometheus and json: the values at the end; events: what each line of the log means, as JSON lines "
    "[default: summary on a terminal, else prometheus].",
)
def command(logs: tuple[str, ...], metrics: str | None, form: OnceFormat | None) -> None:
    """
    Read a finished log, a /metrics or both, and print the result.

    Times are those of the log.
    """
    if not logs and not metrics:
        raise UsageError("give --log PATH, --metrics URL or FILE, or both")
    if form == "events":
        if metrics:
            raise UsageError("--format events reads only logs: omit --metrics")
        for path in logs:
            sys.stdout.buffer.writelines(log_records(path))
        return
    form = form or ("summary" if sys.stdout.isatty() else "prometheus")
    with progress_bar("once") as progress:
        found = read_once(logs, metrics, progress, has_course=form == "summary")
    _write(found, form)
    if found.foreign:
        for problem in found.foreign:
            say(problem)
        sys.exit(1)
    if found.metrics_problem:
        say(f"{metrics}: {explain('metrics', found.metrics_problem)}")
        sys.exit(1)


def read_once(
    paths: Sequence[str],
    metrics: str | None,
    progress: Progress = lambda _share: None,
    *,
    has_course: bool = False,
    now: float | None = None,
) -> OnceResult:
    """
    Read logs to their ends, and /metrics once, from a URL or a file.

    Args:
        paths: The logs' paths.
        metrics: The URL or the file.
        progress: Called with the share of the logs that was read.
        has_course: Whether to follow what became of the server in the logs, which takes longer.
        now: The time, if it is not the machine's.

    Raises:
        UsageError: The URL is wrong.
        FileError: A file cannot be read.
    """
    url = _url(metrics) if metrics and "://" in metrics else None
    interval = _SCRAPE_INTERVAL if metrics else None
    state = ServerState(ServerSettings(DEFAULT_NAME, has_log=bool(paths), metrics_interval=interval, keeps_stale=True))
    logs = [FinishedLog(path) for path in paths]
    reader = CourseReader(state) if has_course and logs else None
    period = _read_logs(logs, state, reader, progress) if logs else None
    end, silence, problem = 0.0 if period is None else period.end, 0.0, None
    if metrics:
        result = _read_metrics(metrics, url, end, state)
        problem = None if result.reading else result.reason
        end = max(end, result.at)
    else:
        silence = min(log.silence(now or SystemClock().now()) for log in logs)
    course = None if reader is None else reader.end(end)
    foreign = tuple(log.foreign for log in logs if log.foreign)
    return OnceResult(snapshot_after(state, end, silence), period, problem, course, foreign)


def _read_metrics(metrics: str, url: str | None, end: float, state: ServerState) -> ScrapeResult:
    result = _scrape(url) if url else _read_saved(metrics, end)
    state.apply_scrape(result)
    return result


def _read_logs(
    logs: Sequence[FinishedLog], state: ServerState, course: CourseReader | None, progress: Progress
) -> LogPeriod:
    """Read logs in order; return from when to when they are."""
    periods = []
    for number, log in enumerate(logs):

        def part(share: float, done: int = number) -> None:
            progress((done + share) / len(logs))

        periods.append(read_to_end(log, state, part) if course is None else course.read(log, part))
    return LogPeriod(min(each.start for each in periods), max(each.end for each in periods))


def _write(found: OnceResult, form: OnceFormat) -> None:
    if form == "summary":
        # What renders reports is not loaded for what programs read.
        from vllm_watch.analysis.rendering.server_summary import summary_text  # noqa: PLC0415
        from vllm_watch.cli.commands.output_formats import text_width  # noqa: PLC0415

        write_output(summary_text(found.snapshot, found.log, text_width(None), found.course))
    else:
        sys.stdout.buffer.write(as_json(found) if form == "json" else as_prometheus(found.snapshot))


def as_prometheus(snapshot: ServerSnapshot) -> bytes:
    """Return a snapshot in the Prometheus text format; each sample has the time of its value."""
    writer = TextWriter(with_times=True)
    writer.add(server_samples(snapshot))
    return b"".join(writer.families())


def as_json(found: OnceResult) -> bytes:
    """Return a snapshot as JSON, with the time that it is of, and from when to when the log is."""
    period = {} if found.log is None else {"log_period": found.log._asdict()}
    document = msgspec.json.encode({"at": found.snapshot.at, **period, **server_view(found.snapshot)})
    return ascii_json(msgspec.json.format(document, indent=2)) + b"\n"


def log_records(path: str) -> Iterator[bytes]:
    """Yield the events of a log, each as one line of JSON, but for details of the start that few servers print."""
    number = 0
    for batch in FinishedLog(path).read(by_line=True):
        number += batch.lines
        requests = [TimedEvent(batch.end, request) for request in batch.requests]
        for at, event in (*batch.events, *requests):
            if not isinstance(event, Notice | StartupDetail):
                yield ascii_json(msgspec.json.encode(_record(number, at, event))) + b"\n"


def _record(number: int, at: float, event: Any) -> dict[str, Any]:  # noqa: ANN401  # Any of the events.
    fields = {name: value for name, value in event._asdict().items() if value is not None and value != ()}
    if isinstance(event, KvTransfers):
        for name in {"counts", "gauges"} & set(fields):
            fields[name] = {" ".join((key.series, *key.labels)): value for key, value in fields[name]}
    kind = _KINDS[type(event).__name__]
    return {"line": number, "at": at, "kind": kind, "engine": fields.pop("engine", None), "fields": fields}


_KINDS = {
    "EngineStats": "engine_stats",
    "SpecDecoding": "spec_decoding",
    "KvTransfers": "kv_transfers",
    "StartupFact": "startup_fact",
    "Lifecycle": "lifecycle",
    "Failure": "failure",
    "SleepOrPause": "pause",
    "AdapterChange": "adapter_change",
    "AchievedWork": "achieved_work",
    "DiffusionDecoding": "diffusion_decoding",
    "AccessRequest": "access",
}


def _url(text: str) -> str:
    try:
        return parse_url(text)
    except ValueError as error:
        raise UsageError(f"--metrics: {error}") from None


def _scrape(url: str) -> ScrapeResult:
    from vllm_watch.daemon.sources.scraper import Scraper  # noqa: PLC0415  # Loads an HTTP client: not for files.

    scraper = Scraper(MetricsConfig(url=url), SystemClock())
    try:
        return scraper.scrape()
    finally:
        scraper.close()


def _read_saved(file: str, end: float) -> ScrapeResult:
    """Read a saved answer of /metrics: its time is the log's end, else the file's."""
    try:
        body = Path(file).read_bytes()
        at = end or Path(file).stat().st_mtime
    except OSError as error:
        raise FileError(f"{file}: cannot be read: {error.strerror}") from error
    return scrape_result(at, 0.0, read_metrics(_inflate(body)))


def _inflate(body: bytes) -> bytes:
    """Return a compressed body uncompressed; a broken one unchanged, for the parser to reject."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body
