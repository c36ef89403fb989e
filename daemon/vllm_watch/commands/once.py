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

from vllm_watch.catalog.reasons import MetricsReason, explain
from vllm_watch.commands.options import log_option, progress_bar
from vllm_watch.config.texts import DEFAULT_NAME, parse_url
from vllm_watch.exposition.json_view import server_view
from vllm_watch.exposition.samples import server_samples
from vllm_watch.exposition.text_format import SampleWriter, prometheus_text
from vllm_watch.reading.log_reader import TimedEvent
from vllm_watch.replay.finished_log import FinishedLog
from vllm_watch.replay.replay import LogPeriod, Progress, read_to_end
from vllm_watch.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.state.server import ServerSettings, ServerState
from vllm_watch.state.snapshot import ServerSnapshot
from vllm_watch.support.clock import SystemClock
from vllm_watch.support.completion import file_names
from vllm_watch.support.errors import FileError, UsageError
from vllm_watch.support.garbage import no_search_for_cycles
from vllm_watch.support.printable import ascii_json
from vllm_watch.support.standard_streams import write_output
from vllm_watch_parsers.events import Notice, StartupDetail
from vllm_watch_parsers.scrape import read_metrics


OnceFormat = Literal["summary", "prometheus", "json", "events"]

_SCRAPE_INTERVAL = 10.0


class OnceResult(NamedTuple):
    """The snapshot at the end of the log, from when to when that is, and why /metrics could not be read, if so."""

    snapshot: ServerSnapshot
    log: LogPeriod | None
    metrics_problem: MetricsReason | None


@click.command("once")
@log_option
@click.option(
    "--metrics", metavar="URL|FILE", shell_complete=file_names, help="A server's /metrics, or a file with its content."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(OnceFormat)),
    help="summary, prometheus and json: the values at the end; events: what each line of the log means, as JSON lines "
    "[default: summary on a terminal, else prometheus].",
)
def command(logs: tuple[str, ...], metrics: str | None, form: OnceFormat | None) -> None:
    """Read a finished log, a /metrics or both, print the result, and exit. Times are those of the log."""
    if not logs and not metrics:
        raise UsageError("give --log PATH, --metrics URL or FILE, or both")
    if form == "events":
        if metrics:
            raise UsageError("--format events reads only logs: omit --metrics")
        for path in logs:
            sys.stdout.buffer.writelines(log_records(path))
        return
    with progress_bar("once") as progress:
        found = read_once(logs, metrics, progress)
    _write(found, form or ("summary" if sys.stdout.isatty() else "prometheus"))
    if found.metrics_problem:
        click.echo(f"vllm-watch: {metrics}: {explain('metrics', found.metrics_problem)}", err=True)
        sys.exit(1)


def read_once(logs: Sequence[str], metrics: str | None, progress: Progress = lambda _share: None) -> OnceResult:
    """
    Read logs to their ends, and /metrics once, from a URL or a file.

    Args:
        logs: Their paths.
        metrics: The URL or the file.
        progress: Called with the share of the logs that was read.

    Raises:
        UsageError: The URL is wrong.
        FileError: A file cannot be read.
    """
    url = _url(metrics) if metrics and "://" in metrics else None
    settings = ServerSettings(
        DEFAULT_NAME,
        has_log=bool(logs),
        metrics_interval=_SCRAPE_INTERVAL if metrics else None,
        keeps_stale=True,
    )
    state = ServerState(settings)
    periods = []
    for number, path in enumerate(logs):

        def part(share: float, done: int = number) -> None:
            progress((done + share) / len(logs))

        with no_search_for_cycles():
            periods.append(read_to_end(path, state, part))
    period = LogPeriod(min(each.start for each in periods), max(each.end for each in periods)) if periods else None
    end = 0.0 if period is None else period.end
    problem = None
    if metrics:
        result = _scrape(url) if url else _read_saved(metrics, end)
        state.apply_scrape(result)
        problem = None if result.reading else result.reason
        end = max(end, result.at)
    return OnceResult(state.snapshot(end), period, problem)


def _write(found: OnceResult, form: OnceFormat) -> None:
    if form == "summary":
        # What renders reports is not loaded for what programs read.
        from vllm_watch.commands.output_formats import text_width  # noqa: PLC0415
        from vllm_watch.rendering.server_summary import summary_text  # noqa: PLC0415

        write_output(summary_text(found.snapshot, found.log, text_width(None)))
    else:
        sys.stdout.buffer.write(as_json(found) if form == "json" else as_prometheus(found.snapshot))


def as_prometheus(snapshot: ServerSnapshot) -> bytes:
    """Return a snapshot in the Prometheus text format; each sample has the time of its value."""
    return b"".join(prometheus_text([SampleWriter().write(server_samples(snapshot), with_times=True)]))


def as_json(found: OnceResult) -> bytes:
    """Return a snapshot as JSON, with the time that it is of, and from when to when the log is."""
    period = {} if found.log is None else {"log_period": found.log._asdict()}
    document = msgspec.json.encode({"at": found.snapshot.at, **period, **server_view(found.snapshot)})
    return ascii_json(msgspec.json.format(document, indent=2)) + b"\n"


def log_records(path: str) -> Iterator[bytes]:
    """Yield the events of a log, each as one line of JSON, but for details of the start that few servers print."""
    for number, batch in enumerate(FinishedLog(path).read(by_line=True), 1):
        requests = [TimedEvent(batch.end, request) for request in batch.requests]
        for at, event in (*batch.events, *requests):
            if not isinstance(event, Notice | StartupDetail):
                yield ascii_json(msgspec.json.encode(_record(number, at, event))) + b"\n"


def _record(number: int, at: float, event: Any) -> dict[str, Any]:  # noqa: ANN401  # Any of the events.
    fields = {name: value for name, value in event._asdict().items() if value is not None and value != ()}
    kind = _KINDS[type(event).__name__]
    return {"line": number, "at": at, "kind": kind, "engine": fields.pop("engine", None), "fields": fields}


_KINDS = {
    "EngineStats": "engine_stats",
    "SpecDecoding": "spec_decoding",
    "StartupFact": "startup_fact",
    "Lifecycle": "lifecycle",
    "Failure": "failure",
    "SleepOrPause": "pause",
    "AccessRequest": "access",
}


def _url(text: str) -> str:
    try:
        return parse_url(text)
    except ValueError as error:
        raise UsageError(f"--metrics: {error}") from None


def _scrape(url: str) -> ScrapeResult:
    from vllm_watch.sources.scraper import Scraper, ScrapeTarget  # noqa: PLC0415  # Loads requests: not for files.

    scraper = Scraper(ScrapeTarget(url), SystemClock())
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
