# SPDX-License-Identifier: Apache-2.0
"""Moments and time ranges as the command line has them: ``--from`` and ``--to``, or ``FROM/TO``."""

from __future__ import annotations

import re

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.support.errors import UsageError


EXAMPLES = '2026-11-20T14:00:00Z, "2026-11-20 14:00", 1795183200, -2h or now'
"""A moment in each of its forms."""

_DATE_AND_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?\s?([Zz]|[+-]\d\d:\d\d)?)?", re.ASCII
)
_EPOCH = re.compile(r"\d{9,13}(?:\.\d{1,9})?", re.ASCII)
_AGO = re.compile(r"(?:now)?-(\d{1,6}(?:\.\d{1,3})?)([smhdw])", re.ASCII)
_TIME_OF_DAY = re.compile(r"\d\d:\d\d(?::\d\d)?", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FIRST_MILLISECONDS = 100_000_000_000
"""As seconds that would be the year 5138, as milliseconds it is 1973."""


class TimeRange(NamedTuple):
    """From when to when, in seconds since the epoch; the end is later than the start."""

    start: float
    end: float


def parse_time(text: str, now: float) -> float:
    """
    Parse a moment into seconds since the epoch.

    Args:
        text: A date and time as in RFC 3339 (in this machine's time zone if it names none, the earlier one where clocks
            go back; the time may be left out), seconds since the epoch, milliseconds as in Grafana's addresses,
            ``now``, or how long ago: ``-90m``.
        now: The present, in seconds since the epoch.

    Raises:
        ValueError: It is none of these; the message is shown after the option.
    """
    text = text.strip()
    ago = _AGO.fullmatch(text)
    if text == "now" or ago:
        return now - (float(Decimal(ago[1]) * _UNITS[ago[2]]) if ago else 0.0)
    if _EPOCH.fullmatch(text):
        seconds = float(text)
        return seconds / 1000 if seconds >= _FIRST_MILLISECONDS else seconds
    written = _DATE_AND_TIME.fullmatch(text)
    if written is None:
        raise ValueError(f"expected a time such as {EXAMPLES}, got {quote(text)}")
    return _seconds(written, text)


def parse_time_range(start: str, end: str, now: float) -> TimeRange:
    """
    Parse the values of ``--from`` and ``--to``; `now` is as in `parse_time`.

    Raises:
        UsageError: One of them is not a moment, or the end is not after the start.
    """
    found = TimeRange(_option("--from", start, now), _option("--to", end, now))
    if found.end <= found.start:
        raise UsageError(f"--to: expected a time after --from, got {quote(end)} after {quote(start)}")
    return found


def parse_from_to(text: str, now: float) -> TimeRange:
    """
    Parse a time range in one text: two moments with a slash between them, as in ISO 8601.

    The second may be a time of day alone, which has the first one's date and time zone: ``2026-11-20T14:00Z/14:10``. If
    it is not given, it is the present.

    Raises:
        ValueError: One of them is no moment, or the end is not after the start; the message begins with what is wrong.
    """
    first, slash, second = (part.strip() for part in text.partition("/"))
    second = second if slash else "now"
    start = parse_time(first, now)
    written = _DATE_AND_TIME.fullmatch(first)
    is_same_day = written is not None and _TIME_OF_DAY.fullmatch(second) is not None
    end = parse_time(f"{written[1]}T{second}{written[4] or ''}" if written and is_same_day else second, now)
    if end <= start:
        raise ValueError(f"expected an end after the start, got {quote(second)} after {quote(first)}")
    return TimeRange(start, end)


def _option(name: str, text: str, now: float) -> float:
    try:
        return parse_time(text, now)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def _seconds(written: re.Match[str], text: str) -> float:
    day, time, fraction, zone = written.groups()
    # The parts are joined again: Python 3.10 knows no Z, and three or six digits of a second only.
    offset = "+00:00" if zone in {"Z", "z"} else zone or ""
    try:
        seconds = datetime.fromisoformat(f"{day}T{time or '00:00'}{offset}").timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"there is no such date or time: {quote(text)}") from None
    if seconds < 0:
        raise ValueError(f"expected a time after 1970, got {quote(text)}")
    return seconds + (float(f"0.{fraction}") if fraction else 0.0)
