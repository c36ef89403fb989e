# SPDX-License-Identifier: Apache-2.0
"""
When a line of the log was written.

A line that is read as it is written has the time at which it is read. A line that is read later has the time it
prints, but vLLM prints neither year nor time zone, and nothing at all on uvicorn's lines: only differences between
printed times can be trusted, so they are counted back from a moment that is known.
"""

from __future__ import annotations

import calendar
import re
import time

from typing import NamedTuple, Protocol


_PRINTED = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?", re.ASCII)
_SHORT = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d\Z", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\Z", re.ASCII)
_DAY_LENGTH = len("11-21 ")
_DAY = 86_400
_EARLIEST_YEAR = 1970
_NEW_YEAR = 180 * _DAY


class LineTimes(Protocol):
    """Gives each line its time, in seconds since the epoch, from the text it prints (or nothing)."""

    def at(self, printed: str) -> float:
        """Return the time of the next line, which prints `printed`."""


class ArrivalTimes:
    """All lines were written just now."""

    def __init__(self, now: float) -> None:
        self._now = now

    def at(self, printed: str) -> float:  # noqa: ARG002  # What the line prints is less exact.
        """Return the moment of arrival."""
        return self._now


class PrintedTimes:
    """
    Lines were written when they say, the last one at `end`.

    Args:
        last_printed: The last time that the log prints, or nothing.
        end: When that was, in seconds since the epoch.
        first_printed: The first time that it prints: lines before it were written then.
    """

    def __init__(self, last_printed: str, end: float, first_printed: str = "") -> None:
        self._year = time.gmtime(end).tm_year
        last = printed_seconds(last_printed, self._year)
        self._end = end
        self._anchor = end if last is None else end - last
        self._counted_back = last is not None
        self._last = last
        self._current = end
        self._text = ""
        self._day = ""
        self._midnight = 0.0
        self.at(first_printed)

    def at(self, printed: str) -> float:
        """Return the line's time; a line that prints none was written with the line before it."""
        if printed and printed != self._text and self._counted_back:
            seconds = self._seconds(printed)
            if seconds is not None:
                self._text = printed
                self._current = min(self._anchor + seconds, self._end)  # A stranger's text may print any time.
        return self._current

    def _seconds(self, printed: str) -> float | None:
        """Read a time; within a day only the clock changes, so the day is read once."""
        clock = _CLOCK.match(printed, len(self._day)) if self._day and printed.startswith(self._day) else None
        if clock is not None:
            return self._midnight + int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
        seconds = self._before_the_last(printed)
        if seconds is not None and _SHORT.match(printed):
            self._day = printed[:_DAY_LENGTH]
            self._midnight = seconds - seconds % _DAY
        return seconds

    def _before_the_last(self, printed: str) -> float | None:
        """Read December's lines as of the year before January's: the log's end is in the year after."""
        seconds = printed_seconds(printed, self._year)
        if seconds is not None and self._last is not None and seconds - self._last > _NEW_YEAR:
            return printed_seconds(printed, self._year - 1)
        return seconds


class _Printed(NamedTuple):
    year: int | None
    rest: tuple[int, int, int, int, int]
    fraction: float


def _parse(printed: str) -> _Printed | None:
    """Parse what is printed; a month or year that there is not makes it no time."""
    found = _PRINTED.match(printed)
    if found is None:
        return None
    year = int(found[1]) if found[1] else None
    month, day, hour, minute, second = (int(part) for part in found.groups()[1:6])
    if not 1 <= month <= 12 or (year is not None and year < _EARLIEST_YEAR):
        return None
    return _Printed(year, (month, day, hour, minute, second), float(f"0.{found[7]}") if found[7] else 0.0)


def printed_seconds(printed: str, year: int) -> float | None:
    """
    Return a printed time as seconds on a calendar without zones, good for differences only.

    Args:
        printed: A printed time, or any text.
        year: The year that is meant where none is printed.
    """
    parsed = _parse(printed)
    if parsed is None:
        return None
    return calendar.timegm((parsed.year or year, *parsed.rest)) + parsed.fraction


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
    if parsed.year is not None:
        return time.mktime((parsed.year, *parsed.rest, 0, 0, -1))
    year = time.localtime(no_later_than).tm_year
    tolerance = _DAY  # The file's time may lag, and its zone may differ.
    candidates = [time.mktime((year - back, *parsed.rest, 0, 0, -1)) for back in (-1, 0, 1)]
    return next((moment for moment in candidates if moment <= no_later_than + tolerance), candidates[-1])
