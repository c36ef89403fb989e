# SPDX-License-Identifier: Apache-2.0
"""
How the daemon reads a log that already has content when the daemon starts.

The last lines show the present state. Capacity, limits and version are in the lines of the server's start, perhaps
gigabytes earlier. Both parts are read and the rest is skipped. Nothing is counted, because all of it happened before
the daemon started to watch.
"""

from __future__ import annotations

import itertools
import re

from collections.abc import Iterator

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import (
    ArrivalTimes,
    LineTimes,
    PrintedTimes,
    first_printed_time,
    last_printed,
)
from vllm_watch.daemon.sources.log_file import READ_SIZE, LogFile
from vllm_watch_parsers.events import Lifecycle


TAIL = 256 * 1024
START = 256 * 1024
MAX_SEARCH = 256 * 1024 * 1024

MAX_AFTER_LAST = 8 * 1024
"""
Bytes without a time after which the last printed time still counts as recent: an idle server takes some minutes to
write them. A busy one writes more within seconds, but looks the same as one that only answered probes for hours.
"""

READ_BACK = 64 * 1024
"""Bytes before the place where reading starts that are read to learn what is open there."""

MAX_MISTAKES = 256
"""Places that may look like a server's start and be none: untrusted text."""

_BLOCK = 4 * 1024 * 1024
# The first words of a start: up to 0.14, with a custom log, and the logo since 0.15.
_START_MARKS = (b"vLLM API server version ", b"vLLM server version ", b"\xe2\x96\x88  version ")
_ANY_MARK = re.compile(b"|".join(re.escape(mark) for mark in _START_MARKS))
_OVERLAP = 64
_LEAD = 4096
"""The logo starts some lines before the version."""

_MAX_START_LINE = 4096


def read_history(log: LogFile, reader: LogReader, end: int, now: float, max_search: int) -> list[LogBatch]:
    """
    Read how the server was started and its last lines before `end`, in bytes; none of it is counted.

    Afterwards the reader knows what is open at `end`. `max_search` bytes before it are searched for the start.
    """
    batches = []
    is_after_gap = False
    for start, stop in _wanted_parts(log, end, max_search):
        times = times_of(log, start, now)
        skip_into(log, reader, start)
        while log.offset < stop:
            data = log.read(min(READ_SIZE, stop - log.offset))
            if not data:
                break
            batch = reader.read(log.framer.feed(data), times)._replace(is_after_gap=is_after_gap)
            batches.append(batch._replace(is_history=True))
            is_after_gap = False
        is_after_gap = True
    return batches


def _wanted_parts(log: LogFile, size: int, max_search: int) -> list[tuple[int, int]]:
    """Return where the parts of a file begin and end that show how the server was started, and was at the end."""
    tail = max(size - TAIL, 0)
    at = _find_last_start(log, size, max_search)
    start = None if at is None else max(at - _LEAD, 0)
    if start is None or start >= tail:
        return [(tail, size)]
    end = min(start + START, tail)
    if end == tail:
        return [(start, size)]
    return [(start, end), (tail, size)]


def recent_start(log: LogFile, since: float, now: float, max_search: int) -> int | None:
    """Return where a file tells of the server's last start, in bytes; `None` if that was before `since`."""
    at = _find_last_start(log, log.size(), max_search)
    started = None if at is None else _start_at(log, at, times_of(log, at, now))
    return at if started is not None and not started.is_undated and started.events[0].at >= since else None


def times_of(log: LogFile, start: int, now: float) -> PrintedTimes:
    """
    Return the times of a file's lines from `start` on: the last one was written when the file was, not after `now`.

    If only uvicorn has written for long, the time printed before that may be hours old, and in any time zone.
    """
    size = log.size()
    begin = max(size - TAIL, 0)
    last = last_printed(log.read_at(begin, size - begin))
    first = first_printed_time(log.read_at(start, START))
    is_recent = bool(last.time) and last.size_after <= MAX_AFTER_LAST
    return PrintedTimes(last.time, min(log.modified(), now), first, is_last_recent=is_recent)


def skip_into(log: LogFile, reader: LogReader, offset: int) -> None:
    """
    Continue at an offset, with the line that it is in, knowing what is open there.

    Some of what is before is read for that, and none of it is used: a part of a line, or a line that continues a
    record, is untrusted text.
    """
    start = max(offset - READ_BACK, 0)
    log.skip_to(start)
    if start:
        reader.lose_place()
    else:
        reader.start_file()
    while log.offset < offset:
        data = log.read(min(READ_SIZE, offset - log.offset))
        if not data:
            return
        reader.skip_lines(log.framer.feed(data))


def _find_last_start(log: LogFile, size: int, max_search: int) -> int | None:
    marks = itertools.islice(_marks(log, size, max_search), MAX_MISTAKES)
    return next((at for at in marks if _start_at(log, at, ArrivalTimes(0.0)) is not None), None)


def _marks(log: LogFile, size: int, max_search: int) -> Iterator[int]:
    """Yield where a server seems to have started, the last place first."""
    stop = size
    while size - stop < max_search:
        begin = max(stop - _BLOCK, 0)
        block = log.read_at(begin, stop - begin)
        if any(mark in block for mark in _START_MARKS):
            yield from [begin + found.start() for found in _ANY_MARK.finditer(block)][::-1]
        if begin == 0:
            return
        stop = begin + _OVERLAP


def _start_at(log: LogFile, at: int, times: LineTimes) -> LogBatch | None:
    """Return the lines there, the start first, if a server started there: untrusted text may say so too."""
    reader = LogReader()
    skip_into(log, reader, at)
    batch = reader.read(log.framer.feed(log.read(_MAX_START_LINE)), times)
    starts = tuple(
        timed for timed in batch.events if isinstance(timed.event, Lifecycle) and timed.event.phase == "starting"
    )
    return batch._replace(events=starts) if starts else None
