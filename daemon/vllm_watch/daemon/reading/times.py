# SPDX-License-Identifier: Apache-2.0
"""
When a line of the log was written.

A line that is read while it is written gets the time at which it is read. A line that is read later gets the time that
it prints. But vLLM prints no year and no time zone, and uvicorn's lines print no time. Only the difference between two
printed times is reliable, so times are counted back from one known moment. If that is later than any time zone
explains, as in a file that was copied, the lines were written at the times that they print, in this machine's zone. The
order of the lines shows the rest: if the printed time goes back by more than a week, a new year has started, and a log
whose first time is later in the year than its last one began the year before (none spans more than a year); if it goes
back within the hour that occurs twice at the end of summer time, the second of these two hours has started. The file's
last write tells which of the two the last time is in.
"""

from __future__ import annotations

import calendar
import math
import re
import time

from typing import NamedTuple, Protocol

from vllm_watch.daemon.reading.framing import Unwrapper
from vllm_watch_parsers.prefix import parse_head, strip_ansi


_PRINTED = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?", re.ASCII)
_SHORT = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d\Z", re.ASCII)
_CLOCK = re.compile(r":([0-5]\d):([0-5]\d)\Z", re.ASCII)
_HOUR_LENGTH = len("11-21 02")
_HOUR = 3600
_DAY = 86_400
_EARLIEST_YEAR = 1970
_LEAP_YEAR = 2000

_NEW_YEAR = 7 * _DAY
"""Printed times that fall by more are of the next year: clocks are corrected by less."""

_AHEAD = 180 * _DAY
"""A time that is so far after the last one is of the year before."""

_ZONES = 900
"""Time zones differ by multiples of a quarter of an hour: less is a while without a printed time."""

_WEST = 12 * _HOUR
"""How far a zone of the world is behind UTC at most."""

_TOLERANCE = 120.0
"""The last printed time may be so much after the file's last write, by clocks that differ."""

_FALL = 600.0
"""Times that fall by more seconds within an hour are in its repetition."""


class LineTimes(Protocol):
    """Gives each line its time, in seconds since the epoch, from the text it prints (or nothing)."""

    @property
    def are_known(self) -> bool:
        """Whether lines were written then, and not only in this order and at these distances."""

    def at(self, printed: str) -> float:
        """Return the time of the next line, which prints `printed`."""


class ArrivalTimes:
    """All lines were written just now."""

    def __init__(self, now: float) -> None:
        self._now = now

    @property
    def are_known(self) -> bool:
        """Always."""
        return True

    def at(self, printed: str) -> float:  # noqa: ARG002  # What the line prints is less exact.
        """Return the moment of arrival."""
        return self._now


class PrintedTimes:
    """
    Lines were written at the times that they print, in order, the last one at `end` if a time zone can explain that.

    What prints no time, such as uvicorn's lines, may have been written since the last printed time, for minutes.

    Args:
        last_printed: The last time that the log prints, or nothing.
        end: When the file was last written, in seconds since the epoch: no line was written after it.
        first_printed: The first time that it prints: lines before it were written then.
        is_last_recent: Whether the last time can have been printed at most minutes before `end`.
    """

    def __init__(
        self,
        last_printed: str,
        end: float,
        first_printed: str = "",
        *,
        is_last_recent: bool = True,
    ) -> None:
        last = _parse(last_printed)
        self._end = end
        self._current = end
        self._latest = -math.inf
        self._text = self._hour = ""
        self._hour_start = 0.0
        self._counted_back = last is not None
        self._are_known = is_last_recent and last is not None
        if last is None:
            return
        year = last.year or _last_year(last, end)
        here = _written_here(year, last, end)
        is_abroad = here is None and not _was_printed_before(last, year, end)
        self._are_known |= here is not None
        self._calendar = _without_zone if is_abroad else _local
        self._last = self._calendar(year, last) if here is None else here
        # Of a log from another zone it is not known how long ago the last time was printed.
        self._anchor = end - self._last if is_abroad else min(end - self._last, 0.0)
        self._year = year - _is_of_the_year_before(first_printed, last)
        self.at(first_printed)

    @property
    def are_known(self) -> bool:
        """Whether the last time was printed at its line's moment, by this machine's zone or because little follows."""
        return self._are_known

    def at(self, printed: str) -> float:
        """Return the line's time; a line that prints none was written with the line before it."""
        if printed and printed != self._text and self._counted_back:
            seconds = self._seconds(printed)
            if seconds is not None:
                self._text = printed
                self._latest = seconds
                self._current = min(self._anchor + seconds, self._end)  # Untrusted text may print any time.
        return self._current

    def _seconds(self, printed: str) -> float | None:
        """Read a time; within an hour only minutes and seconds change, so the hour is read once."""
        clock = _CLOCK.match(printed, _HOUR_LENGTH) if self._hour and printed.startswith(self._hour) else None
        if clock is not None:
            seconds = self._hour_start + int(clock[1]) * 60 + int(clock[2])
            if seconds >= self._latest - _FALL:
                return seconds
        parsed = _parse(printed)
        if parsed is None:
            return None
        seconds = self._in_order(parsed)
        if _SHORT.match(printed):
            self._hour = printed[:_HOUR_LENGTH]
            self._hour_start = seconds - parsed.rest[3] * 60 - parsed.rest[4]
        return seconds

    def _in_order(self, parsed: _Printed) -> float:
        """Return a time after the one before it: in the year, and in that of two equal hours, that fit."""
        if parsed.year is not None:
            return self._repeated(parsed.year, parsed)
        seconds = self._repeated(self._year, parsed)
        if seconds - self._last > _AHEAD:
            self._year -= 1
        elif seconds < self._latest - _NEW_YEAR and self._calendar(self._year + 1, parsed) <= self._last + _DAY:
            self._year += 1
        else:
            return seconds
        return self._repeated(self._year, parsed)

    def _repeated(self, year: int, parsed: _Printed) -> float:
        """Return a time; of an hour that is there twice the second one, if the first is over or the last is near."""
        if self._calendar is _without_zone:
            return _without_zone(year, parsed)
        first, second = _passes(year, parsed)
        is_second = (
            first < self._latest - _FALL if math.isfinite(self._latest) else 0 <= self._last - second < second - first
        )
        return second if is_second else first


class _Printed(NamedTuple):
    year: int | None
    rest: tuple[int, int, int, int, int]
    fraction: float


def _parse(printed: str) -> _Printed | None:
    """Parse a printed time; `None` if its month or year is impossible."""
    found = _PRINTED.match(printed)
    if found is None:
        return None
    year = int(found[1]) if found[1] else None
    month, day, hour, minute, second = (int(part) for part in found.groups()[1:6])
    if not 1 <= month <= 12 or (year is not None and year < _EARLIEST_YEAR):
        return None
    return _Printed(year, (month, day, hour, minute, second), float(f"0.{found[7]}") if found[7] else 0.0)


def _without_zone(year: int, printed: _Printed) -> float:
    """Return a time as seconds on a calendar without zones, good for differences only."""
    return calendar.timegm((year, *printed.rest)) + printed.fraction


def _local(year: int, printed: _Printed, is_summer: int = -1) -> float:
    """Return a time of this machine's zone as seconds since the epoch; `is_summer` is C's ``tm_isdst``."""
    return time.mktime((year, *printed.rest, 0, 0, is_summer)) + printed.fraction


def _passes(year: int, printed: _Printed) -> tuple[float, float]:
    """Return the two moments at which this machine's clock shows a time: most often they are the same."""
    first, second = _local(year, printed, is_summer=1), _local(year, printed, is_summer=0)
    if _is_summer(first) and not _is_summer(second):
        return min(first, second), max(first, second)  # In Dublin and Casablanca it is winter that is "summer time".
    only = _local(year, printed)
    return only, only


def _written_here(year: int, last: _Printed, end: float) -> float | None:
    """Return when the last time was printed, if that can have been minutes before `end` in this machine's zone."""
    moments = _passes(year, last)
    return next((moment for moment in moments if -_TOLERANCE <= end - moment < _ZONES - _TOLERANCE), None)


def _was_printed_before(last: _Printed, year: int, end: float) -> bool:
    """
    Return whether no zone of the world explains how long before `end` the last time was printed, as of a file's copy.

    A time printed after `end` is of a clock that was set back since: how long ago that was is not known.
    """
    return _without_zone(year, last) + _WEST + _ZONES <= end


def _is_summer(moment: float) -> bool:
    return time.localtime(moment).tm_isdst > 0


def _last_year(printed: _Printed, end: float) -> int:
    """Return the last year in which a time is not after a moment, but for a clock that was corrected since."""
    year = time.gmtime(end).tm_year
    years = (year + 1, year)
    return next((each for each in years if _without_zone(each, printed) <= end + _DAY), year - 1)


def _is_of_the_year_before(first_printed: str, last: _Printed) -> bool:
    """Return whether a log's first time is later in the year than its last one, by more than a clock is corrected."""
    first = _parse(first_printed)
    if first is None or first.year is not None or last.year is not None:
        return False
    return _without_zone(_LEAP_YEAR, first) - _without_zone(_LEAP_YEAR, last) > _NEW_YEAR


def local_seconds(printed: str, no_later_than: float) -> float | None:
    """
    Return a printed time as seconds since the epoch, in this machine's time zone.

    Args:
        printed: A printed time; if it has no year, the last one that is not after `no_later_than` is meant.
        no_later_than: Seconds since the epoch, such as the time the file was last written.
    """
    parsed = _parse(printed)
    if parsed is None:
        return None
    latest = time.localtime(no_later_than).tm_year + 1
    years = (parsed.year,) if parsed.year is not None else (latest, latest - 1, latest - 2)
    tolerance = _DAY  # The file's time may lag, and its zone may differ.
    year = next((year for year in years if _local(year, parsed) <= no_later_than + tolerance), years[-1])
    here = _written_here(year, parsed, no_later_than)
    return math.floor(_passes(year, parsed)[0] if here is None else here)


class LastPrinted(NamedTuple):
    """The last time that some lines print, or nothing, and how many bytes of lines without one come after it."""

    time: str
    size_after: int


def first_printed_time(block: bytes) -> str:
    """Return the first time printed in a block that starts with a whole line, or nothing."""
    return next(filter(None, map(_time_of, Unwrapper().feed(block.split(b"\n")))), "")


def last_printed(block: bytes) -> LastPrinted:
    """Return the last time printed in a block that may start inside a line, and what comes after it."""
    first, *lines = block.split(b"\n")
    size = 0
    for line in [*Unwrapper().feed(lines)[::-1], *Unwrapper().feed([first])]:
        if printed := _time_of(line):
            return LastPrinted(printed, size)
        size += len(line) + 1
    return LastPrinted("", size)


def _time_of(line: bytes) -> str:
    return parse_head(strip_ansi(line)).time
