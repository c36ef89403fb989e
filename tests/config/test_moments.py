# SPDX-License-Identifier: Apache-2.0
"""Moments of the command line: each form means one moment, in any time zone, and what is none says what is expected."""

from __future__ import annotations

import time

import pytest

from vllm_watch.daemon.config.moments import TimeRange, parse_from_to, parse_time, parse_time_range
from vllm_watch.daemon.support.errors import UsageError


NOW = 1_795_190_400.0  # 2026-11-20T16:00:00Z
AT_TWO = 1_795_183_200.0


@pytest.fixture(autouse=True)
def shanghai(monkeypatch):
    """Let this machine's time zone be eight hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T14:00:00Z",
        "2026-11-20t14:00:00z",
        "2026-11-20T15:00:00+01:00",
        "2026-11-20 14:00:00+00:00",
        "2026-11-20 09:30 -04:30",
        "2026-11-20 22:00",
        "2026-11-20T22:00:00",
        " 2026-11-20 22:00 ",
        "1795183200",
        "1795183200.0",
        "1795183200000",
        "-2h",
        "-120m",
        "-7200s",
        "now-2h",
    ],
)
def test_each_form_means_the_moment(text):
    """RFC 3339, local time, seconds, Grafana's milliseconds and a time ago are the same moment."""
    assert parse_time(text, NOW) == AT_TWO


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("-1d", NOW - 86_400),
        ("-1w", NOW - 604_800),
        ("-1.5h", NOW - 5400),
        ("2026-11-20", AT_TWO - 22 * 3600),
        ("2026-11-20T14:00:00.25Z", AT_TWO + 0.25),
        ("2026-11-20T14:00:00.123456789Z", AT_TWO + 0.123456789),
        ("1795183200.5", AT_TWO + 0.5),
        ("1795183200500", AT_TWO + 0.5),
    ],
)
def test_other_moments(text, moment):
    """Fractions of seconds, days and weeks count, and a date alone is its first moment here."""
    assert parse_time(text, NOW) == pytest.approx(moment, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "14:00", "2h", "+2h", "-2", "-2y", "20", "2026-11", "2026-11-20T14", "12345678901234"]
)
def test_what_is_no_moment_is_rejected(text):
    """A message names the forms, and repeats what was written."""
    with pytest.raises(ValueError, match=r'expected a time such as .*-2h or now, got "'):
        parse_time(text, NOW)


@pytest.mark.parametrize("text", ["2026-02-30", "2026-13-01 10:00", "2026-11-20 25:00", "2026-11-20T14:00:00+25:00"])
def test_a_date_that_is_in_no_calendar_is_rejected(text):
    """A day, an hour or an offset that does not exist is no moment."""
    with pytest.raises(ValueError, match="there is no such date or time"):
        parse_time(text, NOW)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "0001-01-01"])
def test_a_date_before_1970_is_rejected(text):
    """What is before the epoch is a mistake."""
    with pytest.raises(ValueError, match=r"after 1970|no such date"):
        parse_time(text, NOW)


def test_a_range_has_its_ends_in_order():
    """--from and --to become the start and the end."""
    assert TimeRange(AT_TWO, NOW) == parse_time_range("2026-11-20 22:00", "now", NOW)


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("then", "now", "--from: expected a time"),
        ("-1h", "soon", "--to: expected a time"),
        ("-1h", "-2h", '--to: expected a time after --from, got "-2h" after "-1h"'),
        ("now", "now", "--to: expected a time after --from"),
    ],
)
def test_a_range_that_is_none_is_wrong_usage(start, end, message):
    """The message names the option."""
    with pytest.raises(UsageError, match=message):
        parse_time_range(start, end, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T14:00Z/2026-11-20T14:10Z",
        "2026-11-20T14:00Z/14:10",
        "2026-11-20 22:00/22:10:00",
        "2026-11-20T15:00+01:00/15:10",
        "2026-11-20 22:00/1795183800",
        "-2h/-110m",
    ],
)
def test_a_range_in_one_text(text):
    """Two moments in any of their forms; a time of day alone is of the first one's day and time zone."""
    assert parse_from_to(text, NOW) == TimeRange(AT_TWO, AT_TWO + 600)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("14:00/14:10", 'expected a time such as .*, got "14:00"'),
        ("-2h/14:10", 'expected a time such as .*, got "14:10"'),
        ("2026-11-20T14:00Z/", 'expected a time such as .*, got ""'),
        ("2026-11-20T14:00Z/14:00", 'expected an end after the start, got "14:00" after "2026-11-20T14:00Z"'),
        ("2026-11-20T23:55Z/00:05", 'expected an end after the start, got "00:05"'),
        ("2026-11-20T14:00Z/25:00", "there is no such date or time"),
    ],
)
def test_a_text_that_is_no_range(text, message):
    """The message says which part is wrong, and that a time of day has no date of its own."""
    with pytest.raises(ValueError, match=message):
        parse_from_to(text, NOW)
