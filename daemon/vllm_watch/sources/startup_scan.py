# SPDX-License-Identifier: Apache-2.0
"""
What to read of a log that was there before the daemon.

The present is in its last lines; capacity, limits and version are where the server started, perhaps gigabytes
before. Both are read, the rest is skipped: what happened before anyone watched is not counted.
"""

from __future__ import annotations

import itertools
import re

from collections.abc import Iterator
from typing import NamedTuple

from vllm_watch.reading.log_reader import LogReader
from vllm_watch.reading.printed import LastPrinted, count_new_years, last_printed, parts_to_read
from vllm_watch.reading.times import ArrivalTimes, PrintedTimes
from vllm_watch.sources.log_file import READ_SIZE, OpenLog
from vllm_watch_parsers.events import Lifecycle


TAIL = 256 * 1024
START = 256 * 1024
MAX_SEARCH = 256 * 1024 * 1024

MAX_LOOK_BACK = 16 * 1024 * 1024
"""So far back the last printed time is looked for: an idle server, probed and scraped, takes a week to write it."""

MAX_AFTER_LAST = 8 * 1024
"""
Of so many bytes without a time the last printed time is known to be recent: an idle server takes some minutes to write
them. A busy one writes more within seconds, but of one that was left to its probes for hours it is not told apart.
"""

READ_BACK = 64 * 1024
"""So much before the place where reading begins is read to learn what is open there."""

MAX_MISTAKES = 256
"""So many places may look like a start and be none: text that a stranger wrote."""

_BLOCK = 4 * 1024 * 1024
# How a start begins: up to 0.14, with a custom log, and the logo since 0.15.
_START_MARKS = (b"vLLM API server version ", b"vLLM server version ", b"\xe2\x96\x88  version ")
_ANY_MARK = re.compile(b"|".join(re.escape(mark) for mark in _START_MARKS))
_OVERLAP = 64
_LEAD = 4096
"""The logo begins some lines before the version."""

_MAX_START_LINE = 4096


class Stretch(NamedTuple):
    """A part of a file, from the line that begins at or after `start` to `end`."""

    start: int
    end: int


def stretches(log: OpenLog, size: int, max_search: int = MAX_SEARCH) -> list[Stretch]:
    """
    Return the parts of a file's first `size` bytes that tell how the server was started and how it was then.

    Args:
        log: The file.
        size: Where to end, in bytes.
        max_search: How many bytes before that are searched for the last start.
    """
    tail = max(size - TAIL, 0)
    start = _find_last_start(log, size, max_search)
    if start is None or start >= tail:
        return [Stretch(tail, size)]
    end = min(start + START, tail)
    if end == tail:
        return [Stretch(start, size)]
    return [Stretch(start, end), Stretch(tail, size)]


def times_of(log: OpenLog, start: int, now: float) -> PrintedTimes:
    """
    Return the times of a file's lines: the last one was written when the file was, and not after `now`.

    Where only uvicorn has written for long, the time printed before that may be hours old, and in any zone.

    Args:
        log: The file.
        start: Where the first of the lines begins.
        now: The time.
    """
    size = log.size()
    last = _last_printed(log, size)
    new_years = count_new_years(log.read_at(offset, part) for offset, part in parts_to_read(start, size))
    is_recent = bool(last.time) and last.size_after <= MAX_AFTER_LAST
    return PrintedTimes(last.time, min(log.modified(), now), new_years=new_years, is_last_recent=is_recent)


def go_inside(log: OpenLog, reader: LogReader, offset: int) -> None:
    """
    Go on at an offset, with the line that it is in, knowing what is open there.

    Some of what is before is read for that, and nothing of it believed: a part of a line, or a line that continues a
    record, is text that a stranger can choose.
    """
    start = max(offset - READ_BACK, 0)
    log.skip_to(start)
    if start:
        reader.skip()
    else:
        reader.begin()
    while log.offset < offset:
        data = log.read(min(READ_SIZE, offset - log.offset))
        if not data:
            return
        reader.pass_over(log.lines(data))


def _last_printed(log: OpenLog, size: int) -> LastPrinted:
    """Look for the last printed time, block by block from the end."""
    stop = size
    while True:
        begin = max(stop - TAIL, 0)
        found = last_printed(log.read_at(begin, stop - begin))
        if found.time or begin == 0 or size - begin >= MAX_LOOK_BACK:
            return found._replace(size_after=size - stop + found.size_after)
        stop = begin + _LEAD


def _find_last_start(log: OpenLog, size: int, max_search: int) -> int | None:
    marks = itertools.islice(_marks(log, size, max_search), MAX_MISTAKES)
    return next((max(at - _LEAD, 0) for at in marks if _is_start(log, at)), None)


def _marks(log: OpenLog, size: int, max_search: int) -> Iterator[int]:
    """Yield where it looks as if a server started, the last place first."""
    stop = size
    while size - stop < max_search:
        begin = max(stop - _BLOCK, 0)
        block = log.read_at(begin, stop - begin)
        if any(mark in block for mark in _START_MARKS):
            yield from [begin + found.start() for found in _ANY_MARK.finditer(block)][::-1]
        if begin == 0:
            return
        stop = begin + _OVERLAP


def _is_start(log: OpenLog, at: int) -> bool:
    """Tell whether a server started there, and nobody only wrote so."""
    reader = LogReader()
    go_inside(log, reader, at)
    said = reader.read(log.lines(log.read(_MAX_START_LINE)), ArrivalTimes(0.0))
    return any(isinstance(timed.event, Lifecycle) and timed.event.phase == "starting" for timed in said.events)
