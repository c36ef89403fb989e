# SPDX-License-Identifier: Apache-2.0
"""Recordings and old logs in virtual time: the daemon's own reading and state, hours in seconds."""

from __future__ import annotations

import gzip
import os

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from vllm_watch.reading.containers import LineReader
from vllm_watch.reading.log_reader import LogBatch, LogReader, TimedEvent
from vllm_watch.reading.printed import count_new_years, first_printed_time, last_printed_time, parts_to_read
from vllm_watch.reading.times import ArrivalTimes, LineTimes, PrintedTimes, local_seconds
from vllm_watch.replay.recording import MetricsRead, Recording, scrape_failure
from vllm_watch.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.state.server import LogStatus, ServerState
from vllm_watch.state.snapshot import ServerSnapshot, TailCounts
from vllm_watch.support.errors import UsageError
from vllm_watch_parsers.events import AccessRequest
from vllm_watch_parsers.scrape import read_metrics


READ_SIZE = 1024 * 1024
_END_SIZE = 256 * 1024

SETTLED_SECONDS = 1200.0
"""So long after a log's last line no value changes any more: none is older, and no engine stalls later."""

SPARSE_SECONDS = 240.0
"""Prometheus shows a value for five minutes."""

SILENCE_SECONDS = 86_400.0

Progress = Callable[[float], None]
"""Told, now and then, what share of the work is done."""


class LogFeed:
    """Bytes of one log into a server's state."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._framing = LineReader()
        self._reader = LogReader()
        self._lines = self._size = 0
        self._report()

    def feed(self, data: bytes, times: LineTimes) -> None:
        """Take in the next bytes."""
        batch = self._reader.read(self._framing.feed(data), times)
        self._state.apply_log(batch)
        self._lines += batch.lines
        self._size += len(data)
        self._report()

    def _report(self) -> None:
        framing = self._framing
        counts = TailCounts(self._lines, self._size, 0, long_lines=framing.long_lines, nul_bytes=framing.nul_bytes)
        self._state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=counts))


def run_recording(
    recording: Recording, state: ServerState, step: float, progress: Progress = lambda _share: None
) -> Iterator[ServerSnapshot]:
    """Yield a snapshot every `step` seconds of a recording, after what happened until then."""
    feed = LogFeed(state) if state.settings.has_log else None
    moment = 0.0
    for event in recording.events():
        while moment < event.at:
            yield state.snapshot(recording.started + moment)
            progress(moment / recording.seconds)
            moment += step
        at = recording.started + event.at
        if isinstance(event, MetricsRead):
            state.apply_scrape(recorded_scrape(event, at))
        elif feed is not None:
            feed.feed(event.data, ArrivalTimes(at))
    yield state.snapshot(recording.started + moment)
    progress(1.0)


def recorded_scrape(event: MetricsRead, at: float) -> ScrapeResult:
    """Return what the scraper would have made of a recorded answer."""
    if not event.body:
        return ScrapeResult(at, 0.0, None, scrape_failure(event.status))
    return scrape_result(at, 0.0, read_metrics(event.body))


def open_log(path: str) -> IO[bytes]:
    """
    Open a finished log, also a compressed one.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        if path.endswith(".gz"):
            return cast("IO[bytes]", gzip.open(path, "rb"))
        return Path(path).open("rb")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def log_blocks(path: str) -> Iterator[bytes]:
    """
    Yield a finished log's bytes in pieces.

    Raises:
        UsageError: It cannot be read.
    """
    with open_log(path) as file:
        try:
            while block := file.read(READ_SIZE):
                yield block
        except (OSError, EOFError) as error:
            raise UsageError(f"{path}: reading failed: {error}") from error


def _status(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def printed_times(path: str) -> PrintedTimes:
    """
    Return the times of a finished log's lines: what it prints last is this machine's local time.

    Raises:
        UsageError: It cannot be read.
    """
    modified = _status(path).st_mtime
    first, last = _ends(path)
    printed = last_printed_time(last)
    end = local_seconds(printed, modified) if printed else None
    new_years = count_new_years(_parts(path))
    return PrintedTimes(printed, modified if end is None else end, first_printed_time(first), new_years)


def _parts(path: str) -> Iterator[bytes]:
    """Yield what of a log tells when its years end."""
    if path.endswith(".gz"):
        yield from log_blocks(path)
        return
    with open_log(path) as file:
        for offset, size in parts_to_read(0, _status(path).st_size):
            file.seek(offset)
            yield file.read(size)


def _ends(path: str) -> tuple[bytes, bytes]:
    """Return a log's first and last bytes; a compressed one must be read whole for that."""
    first = last = b""
    blocks = log_blocks(path) if path.endswith(".gz") else _first_and_last_block(path)
    for block in blocks:
        first = first or block[:_END_SIZE]
        last = (last + block)[-_END_SIZE:]
    return first, last


def _first_and_last_block(path: str) -> Iterator[bytes]:
    with open_log(path) as file:
        yield file.read(_END_SIZE)
        file.seek(max(_status(path).st_size - _END_SIZE, file.tell()))
        yield file.read(_END_SIZE)


def run_log(
    path: str, state: ServerState, step: float, progress: Progress = lambda _share: None
) -> Iterator[ServerSnapshot]:
    """
    Yield a snapshot every `step` seconds of an old log, from its first printed time to its last.

    Through silence they are fewer: until all values have settled as many, then as few as Prometheus needs to see the
    last one, and none after a day: nobody can say what a server was that had nothing to say.
    """
    size = max(_status(path).st_size, 1)
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts(lag=0)))
    moment: float | None = None
    pending: list[TimedEvent] = []
    for timed, done in _timed_events(path):
        moment = timed.at if moment is None else moment
        if timed.at - moment >= step:
            state.apply_log(_batch(pending, moment))
            pending.clear()
            for each in _moments(moment, timed.at, step):
                yield state.snapshot(each)
            moment += step * int((timed.at - moment) / step)
            progress(min(done / size, 1.0))
        pending.append(timed)
    if moment is not None:
        end = max([moment, *(timed.at for timed in pending)])
        state.apply_log(_batch(pending, end))
        yield state.snapshot(end)
    progress(1.0)


def _moments(start: float, end: float, step: float) -> Iterator[float]:
    """Yield the moments between two events at which there is something to see: `step` apart, later fewer."""
    moment = start
    last = min(end - step, start + SILENCE_SECONDS)
    while moment <= last:
        yield moment
        sparse = step * max(int(SPARSE_SECONDS / step), 1)
        moment += step if moment - start < SETTLED_SECONDS else sparse


def _timed_events(path: str) -> Iterator[tuple[TimedEvent, int]]:
    reader, lines, times = LogReader(), LineReader(), printed_times(path)
    done = 0
    for block in log_blocks(path):
        done += len(block)
        for line in lines.feed(block):
            for timed in reader.read_line(line, times):
                yield timed, done


def _batch(pending: list[TimedEvent], end: float) -> LogBatch:
    requests: Counter[AccessRequest] = Counter()
    events = []
    for timed in pending:
        if isinstance(timed.event, AccessRequest):
            requests[timed.event] += 1
        else:
            events.append(timed)
    return LogBatch(tuple(events), requests, len(pending), 0, end, 0)
