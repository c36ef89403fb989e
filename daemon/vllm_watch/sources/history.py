# SPDX-License-Identifier: Apache-2.0
"""
What to read of a log that was there before the daemon.

The present is in its last lines; capacity, limits and version are where the server started, perhaps gigabytes
before. Both are read, the rest is skipped: what happened before anyone watched is not counted.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.reading.printed import last_printed_time
from vllm_watch.reading.times import PrintedTimes
from vllm_watch.sources.logfile import OpenLog


TAIL = 256 * 1024
START = 256 * 1024
MAX_SEARCH = 256 * 1024 * 1024

_BLOCK = 4 * 1024 * 1024
# How a start begins: up to 0.14, with a custom log, and the logo since 0.15.
_START_MARKS = (b"vLLM API server version ", b"vLLM server version ", b"\xe2\x96\x88  version ")
_OVERLAP = 64
_LEAD = 4096
"""The logo begins some lines before the version."""


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


def times_of(log: OpenLog) -> PrintedTimes:
    """Return the times of a file's lines: the last one was written when the file was."""
    size = log.size()
    at = max(size - TAIL, 0)
    return PrintedTimes(last_printed_time(log.read_at(at, size - at)), log.modified())


def _find_last_start(log: OpenLog, size: int, max_search: int) -> int | None:
    end = size
    while end > 0 and size - end < max_search:
        begin = max(end - _BLOCK, 0)
        block = log.read_at(begin, end - begin + _OVERLAP)
        found = max(block.rfind(mark) for mark in _START_MARKS)
        if found >= 0:
            return max(begin + found - _LEAD, 0)
        end = begin
    return None
