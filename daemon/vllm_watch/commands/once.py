# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch once``: everything that a finished log and a page of /metrics say, printed once."""

from __future__ import annotations

import gc
import gzip
import zlib

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vllm_watch.catalog.reasons import MetricsReason
from vllm_watch.exposition.collector import Collected
from vllm_watch.exposition.json_view import server_view
from vllm_watch.exposition.samples import server_samples
from vllm_watch.exposition.text_format import prometheus_text
from vllm_watch.reading.containers import LineReader
from vllm_watch.reading.log_reader import LogReader
from vllm_watch.replay.replay import LogFeed, log_blocks, printed_times
from vllm_watch.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.state.server import ServerSettings, ServerState
from vllm_watch.state.snapshot import ServerSnapshot
from vllm_watch.support.clock import SystemClock
from vllm_watch.support.errors import UsageError
from vllm_watch.support.printable import ascii_json
from vllm_watch_parsers.events import Notice
from vllm_watch_parsers.scrape import read_metrics


SERVER_NAME = "vllm"
_SCRAPE_INTERVAL = 10.0


class Found(NamedTuple):
    """What was found: the snapshot at the end of the log, and why the page could not be read, if so."""

    snapshot: ServerSnapshot
    metrics_problem: MetricsReason | None


def read_once(logs: Sequence[str], metrics: str | None) -> Found:
    """
    Read logs to their ends and a page, from a URL or a file.

    Raises:
        UsageError: A file cannot be read.
    """
    settings = ServerSettings(
        SERVER_NAME,
        has_log=bool(logs),
        metrics_interval=_SCRAPE_INTERVAL if metrics else None,
        keeps_stale=True,
    )
    state = ServerState(settings)
    end = 0.0
    for path in logs:
        end = max(end, _read_log(path, state))
    problem = None
    if metrics:
        result = _read_metrics(metrics, end)
        state.apply_scrape(result)
        problem = None if result.reading else result.reason
        end = max(end, result.at)
    return Found(state.snapshot(end), problem)


def as_prometheus(snapshot: ServerSnapshot) -> bytes:
    """Return a snapshot in the Prometheus text format; each sample has the time at which it was so."""
    return prometheus_text(Collected(list(server_samples(snapshot))), with_times=True)


def as_json(snapshot: ServerSnapshot) -> bytes:
    """Return a snapshot as JSON."""
    document = msgspec.json.encode({"at": snapshot.at, **server_view(snapshot)})
    return ascii_json(msgspec.json.format(document, indent=2)) + b"\n"


def log_records(path: str) -> Iterator[bytes]:
    """Yield what each line of a log says, as one line of JSON per event."""
    reader, lines, times = LogReader(), LineReader(), printed_times(path)
    number = 0
    for block in log_blocks(path):
        for line in lines.feed(block):
            number += 1
            for timed in reader.read_line(line, times):
                if not isinstance(timed.event, Notice):
                    yield ascii_json(msgspec.json.encode(_record(number, timed.at, timed.event))) + b"\n"


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


def _read_log(path: str, state: ServerState) -> float:
    times = printed_times(path)
    feed = LogFeed(state)
    # Millions of small tuples come and go without a cycle among them: looking for cycles costs a tenth of the time.
    gc.disable()
    for block in log_blocks(path):
        feed.feed(block, times)
    gc.enable()
    return times.at("")


def _read_metrics(source: str, end: float) -> ScrapeResult:
    if source.startswith(("http://", "https://")):
        from vllm_watch.sources.scraper import Scraper, ScrapeTarget  # noqa: PLC0415  # Loads requests: not for files.

        scraper = Scraper(ScrapeTarget(source), SystemClock())
        try:
            return scraper.scrape()
        finally:
            scraper.close()
    try:
        body = Path(source).read_bytes()
        at = end or Path(source).stat().st_mtime
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror}") from error
    return scrape_result(at, 0.0, read_metrics(_inflate(body)))


def _inflate(body: bytes) -> bytes:
    """Return a body that was saved compressed as it was; anything broken is left for the parser to refuse."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body
