# SPDX-License-Identifier: Apache-2.0
"""The first and the last time printed in a part of a log, and how often a new year starts between them."""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_watch.daemon.reading.framing import Unwrapper
from vllm_watch.daemon.reading.times import NEW_YEAR_DAYS, printed_seconds
from vllm_watch_parsers.prefix import parse_head, strip_ansi


_WHOLE = 4 * 1024 * 1024
_PART = 64 * 1024
_PARTS = 64
_DAY = 86_400
_LEAP_YEAR = 2000

_COLOUR = rb"(?:\x1b\[[0-9;]{0,16}m)?"
_RECORD_TIME = re.compile(
    rb"\n" + _COLOUR + rb"(?:\([^()\n]{1,160}\)" + _COLOUR + rb" ?" + _COLOUR + rb"){0,4}"
    rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    + _COLOUR
    + rb" "
    + _COLOUR
    + rb"(\d\d-\d\d \d\d:\d\d:\d\d)"
    + _COLOUR
    + rb" "
)
_WRAPPED = re.compile(rb"\{|[^\n]*\n\{|(?:[^\n]*\n)?\d{4}-\d\d-\d\dT[^\n ]{1,40} std(?:out|err) ")


class LastPrinted(NamedTuple):
    """The last time that some lines print, or nothing, and how many bytes of lines without one come after it."""

    time: str
    size_after: int


def first_printed_time(block: bytes) -> str:
    """Return the first time printed in a block that starts with a whole line, or nothing."""
    return _first(Unwrapper().feed(block.split(b"\n")))


def last_printed_time(block: bytes) -> str:
    """Return the last time printed in a block that may start inside a line, or nothing."""
    return last_printed(block).time


def last_printed(block: bytes) -> LastPrinted:
    """Return the last time printed in a block that may start inside a line, and what comes after it."""
    first, *lines = block.split(b"\n")
    size = 0
    for line in [*Unwrapper().feed(lines)[::-1], *Unwrapper().feed([first])]:
        if printed := _time_of(line):
            return LastPrinted(printed, size)
        size += len(line) + 1
    return LastPrinted("", size)


def parts_to_read(start: int, end: int) -> list[tuple[int, int]]:
    """
    Return the parts of a file, as offsets and sizes, whose times show how often a year ends in it.

    A small file is read whole. Of a large one some parts are enough: a year ends between two of them where the
    later one's times are earlier in the year, unless there is more than a year between the two.
    """
    if end - start <= _WHOLE:
        return [(start, max(end - start, 0))]
    step = (end - start - _PART) / (_PARTS - 1)
    return [(start + int(step * number), _PART) for number in range(_PARTS)]


def count_new_years(parts: Iterable[bytes]) -> int:
    """
    Count how often a year ends in a log: where the times that its records print fall by more than a week.

    Args:
        parts: Parts of the log in order, the first from the start of a line, the others from anywhere.
    """
    last, count = "", 0
    for part in parts:
        for time in _record_times(part):
            # Texts of one length: if the day is not before the last one's, the year stays.
            count += bool(last) and time[:5] < last[:5] and _falls(last, time)
            last = time
    return count


def _falls(last: str, time: str) -> bool:
    before, after = printed_seconds(last, _LEAP_YEAR), printed_seconds(time, _LEAP_YEAR)
    return before is not None and after is not None and before - after > NEW_YEAR_DAYS * _DAY


def _record_times(part: bytes) -> Iterator[str]:
    """Yield the times of records; lines that continue one, after a carriage return, may have any text."""
    if _WRAPPED.match(part):
        part = b"\n".join(Unwrapper().feed(part.split(b"\n")))
    text = b"\n" + part
    for found in _RECORD_TIME.finditer(text):
        if text[found.start() - 1 : found.start()] != b"\r":
            yield found[1].decode()


def _first(lines: Sequence[bytes]) -> str:
    return next((time for time in map(_time_of, lines) if time), "")


def _time_of(line: bytes) -> str:
    return parse_head(strip_ansi(line)).time
