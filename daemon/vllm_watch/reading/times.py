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

from typing import Protocol


_SHORT = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)$")
_FULL = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_DAY = 86_400
_REFERENCE_YEAR = 2024  # A leap year: 29 February can be printed.
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
    """

    def __init__(self, last_printed: str, end: float) -> None:
        last = printed_seconds(last_printed)
        self._anchor = end if last is None else end - last
        self._counted_back = last is not None
        self._last = last
        self._current = end if last is None else -1.0
        self._text = ""

    def at(self, printed: str) -> float:
        """Return the line's time; a line that prints none was written with the line before it."""
        if printed and printed != self._text and self._counted_back:
            seconds = printed_seconds(printed)
            if seconds is not None:
                self._text = printed
                self._current = self._anchor + self._before_the_last(seconds)
        return self._current

    def _before_the_last(self, seconds: float) -> float:
        """Move December's lines before January's: the log's end is in the year after."""
        if self._last is not None and seconds - self._last > _NEW_YEAR:
            return seconds - 365 * _DAY
        return seconds


def printed_seconds(printed: str) -> float | None:
    """Return a printed time as seconds on a calendar of its own, good for differences only."""
    found = _SHORT.match(printed)
    if found:
        month, day, hour, minute, second = (int(part) for part in found.groups())
        return float(calendar.timegm((_REFERENCE_YEAR, month, day, hour, minute, second)))
    found = _FULL.match(printed)
    if found:
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        fraction = float(f"0.{found[7]}") if found[7] else 0.0
        return calendar.timegm((year, month, day, hour, minute, second)) + fraction
    return None


def local_seconds(printed: str, no_later_than: float) -> float | None:
    """
    Return a printed time as seconds since the epoch, in this machine's time zone.

    Args:
        printed: A printed time; if it has no year, the last one that is not after `no_later_than` is meant.
        no_later_than: Seconds since the epoch, such as the time the file was last written.
    """
    full = _FULL.match(printed)
    if full:
        parts = tuple(int(part) for part in full.groups()[:6])
        return time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]  # Six numbers.
    short = _SHORT.match(printed)
    if short is None:
        return None
    month, day, hour, minute, second = (int(part) for part in short.groups())
    year = time.localtime(no_later_than).tm_year
    tolerance = _DAY  # The file's time may lag, and its zone may differ.
    candidates = [time.mktime((year - back, month, day, hour, minute, second, 0, 0, -1)) for back in (0, 1)]
    return next((moment for moment in candidates if moment <= no_later_than + tolerance), candidates[-1])
