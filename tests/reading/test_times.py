# SPDX-License-Identifier: Apache-2.0
"""When lines were written: vLLM prints neither year nor zone, and on many lines nothing."""

from __future__ import annotations

import calendar
import datetime as dt
import time

import pytest

from vllm_watch.daemon.reading.times import ArrivalTimes, PrintedTimes, local_seconds


DAY = 86_400
HOUR = 3600


@pytest.fixture
def in_berlin(monkeypatch):
    """This machine's time zone is one with summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*moment):
    """Return a moment in UTC as seconds."""
    return dt.datetime(*moment, tzinfo=dt.timezone.utc).timestamp()


END = utc(2026, 11, 21, 23)


def test_lines_read_as_they_are_written_have_the_time_of_reading():
    """What a line prints does not matter then."""
    times = ArrivalTimes(END)

    assert {times.at(""), times.at("11-21 02:35:10"), times.at("nonsense")} == {END}


def test_printed_times_are_counted_back_from_the_last_one():
    """The last printed time is the moment that is known; differences do the rest."""
    times = PrintedTimes("11-21 23:00:00", END)

    assert times.at("11-21 22:59:50") == END - 10
    assert times.at("11-20 23:00:00") == END - DAY
    assert times.at("11-21 23:00:00") == END


def test_the_zone_of_the_log_does_not_matter():
    """T30: a log printed in another zone has the same differences."""
    times = PrintedTimes("11-22 08:30:00", END)

    assert times.at("11-22 08:29:00") == END - 60


@pytest.mark.parametrize("seconds", [0, 71, 600])
def test_what_prints_no_time_does_not_make_the_last_printed_one_later(seconds):
    """Uvicorn's lines go on after the last statistics: minutes without a printed time are no difference of zones."""
    printed = time.strftime("%m-%d %H:%M:%S", time.localtime(END - seconds))

    assert END - seconds == PrintedTimes(printed, END).at(printed)


@pytest.mark.parametrize("hours", [27, 43, 24 * 9, 24 * 150, 24 * 200, 24 * 360])
def test_a_copy_s_lines_were_written_when_they_say(hours):
    """What no time zone explains is the time since the log was written: a copy's lines are as old as they say."""
    written = END - hours * HOUR
    times = PrintedTimes(time.strftime("%m-%d %H:%M:%S", time.localtime(written)), END)

    assert times.are_known
    assert written - 600 == times.at(time.strftime("%m-%d %H:%M:%S", time.localtime(written - 600)))


@pytest.mark.parametrize("hours", [-14, -9.5, -1, 1, 5.75, 12])
def test_a_zone_of_the_world_is_no_age(hours):
    """The lines of a server in any other zone are as young as the file: an hour may be a zone."""
    times = PrintedTimes(time.strftime("%m-%d %H:%M:%S", time.gmtime(END - hours * HOUR)), END)

    assert END - 10 == times.at(time.strftime("%m-%d %H:%M:%S", time.gmtime(END - hours * HOUR - 10)))


def test_a_printed_time_after_the_last_write_is_that_write():
    """A clock that is ahead by a little puts no line into the future."""
    assert END == PrintedTimes("11-21 23:00:50", END).at("11-21 23:00:50")


def test_a_line_without_a_time_was_written_with_the_one_before_it():
    """Uvicorn prints no time, and what is no time does not count as one."""
    times = PrintedTimes("11-21 23:00:00", END)
    times.at("11-21 22:00:00")

    assert {times.at(text) for text in ("", "nonsense", "13-41 99:99:99", "00-01 00:00:00")} == {END - 3600}


def test_a_log_that_prints_no_time_was_all_written_at_its_end():
    """Without any printed time every line has the time of the file."""
    times = PrintedTimes("", END)

    assert {times.at(""), times.at("11-21 02:35:10")} == {END}


@pytest.mark.parametrize("year", [2025, 2026, 2027, 2028, 2029])
def test_december_comes_before_january(year):
    """T30: across New Year ten seconds are ten seconds, before and after leap years, too."""
    times = PrintedTimes("01-01 00:00:05", utc(year, 1, 1, 0, 0, 5))

    assert times.at("12-31 23:59:55") == utc(year - 1, 12, 31, 23, 59, 55)
    assert times.at("12-01 00:00:00") == utc(year - 1, 12, 1)
    assert times.at("01-01 00:00:00") == utc(year, 1, 1)


@pytest.mark.parametrize(("year", "days"), [(2026, 1), (2027, 1), (2028, 2)])
def test_the_last_of_february_is_followed_by_the_first_of_march(year, days):
    """T30: the year of the log's end says whether there was a 29 February."""
    end = utc(year, 3, 1, 12)
    times = PrintedTimes("03-01 12:00:00", end)

    assert times.at("02-28 12:00:00") == end - days * DAY


def test_29_february_is_a_time():
    """A leap day can be printed."""
    end = utc(2028, 3, 1)

    assert PrintedTimes("03-01 00:00:00", end).at("02-29 00:00:00") == end - DAY


def test_json_logs_print_year_and_milliseconds():
    """JSON logs' times are exact, and are counted back from the end all the same."""
    times = PrintedTimes("2026-11-21 23:00:00,500", END)

    assert times.at("2026-11-21 22:59:59,250") == END - 1.25
    assert times.at("2025-11-21 23:00:00,500") == END - 365 * DAY


def test_both_kinds_of_times_may_take_turns():
    """A log that changed its format within the year stays in order."""
    times = PrintedTimes("2026-11-21 23:00:00,000", END)

    assert times.at("11-21 22:00:00") == END - 3600


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "11-21",
        "11-21 02:35",
        "00-21 02:35:10",
        "13-21 02:35:10",
        "99-99 99:99:99",
        "0000-01-01 00:00:00",
        "0001-01-01 00:00:00",
        "2026-13-01 00:00:00,000",
        "\u0660\u0661-\u0660\u0661 \u0660\u0660:\u0660\u0660:\u0660\u0660",
        "11-21 02:35:1",
        " 11-21 02:35:10",
    ],
)
def test_what_is_no_time_is_none(text):
    """No text makes the reading of times raise."""
    assert local_seconds(text, END) is None


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("printed", "no_later_than", "moment"),
    [
        ("11-21 12:00:00", utc(2026, 11, 21, 12), utc(2026, 11, 21, 11)),
        ("07-21 12:00:00", utc(2026, 11, 21, 12), utc(2026, 7, 21, 10)),
        ("12-31 23:59:59", utc(2026, 1, 1, 0), utc(2025, 12, 31, 22, 59, 59)),
        ("11-22 02:00:00", utc(2026, 11, 21, 12), utc(2026, 11, 22, 1)),
        ("11-23 02:00:00", utc(2026, 11, 21, 12), utc(2025, 11, 23, 1)),
        ("01-01 00:00:10", utc(2026, 12, 31, 22, 30), utc(2026, 12, 31, 23, 0, 10)),
        ("2025-11-21 12:00:00,250", utc(2026, 11, 21, 12), utc(2025, 11, 21, 11)),
    ],
)
def test_local_times_are_the_last_that_fit(printed, no_later_than, moment):
    """T30: a time without a year is the last one that is not more than a day after the file's own time."""
    assert local_seconds(printed, no_later_than) == moment


def test_lines_before_the_first_printed_time_were_written_then():
    """A log that begins with an access line, which prints no time, does not begin in 1970."""
    times = PrintedTimes("11-21 23:00:00", END, first_printed="11-21 22:59:50")

    assert times.at("") == END - 10


@pytest.mark.parametrize("forged", ["01-01 00:00:00", "11-20 23:00:00", "2031-01-01 00:00:00,000", "12-31 23:59:59"])
def test_no_line_was_written_after_the_last(forged):
    """T30: a log whose last printed time is wrong, or a stranger's, puts no line into the future."""
    times = PrintedTimes(forged, END)

    assert all(times.at(f"{month:02d}-21 22:59:50") <= END for month in range(1, 13))


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["10-25 02:59:50", "10-25 02:00:05", "10-25 03:00:05"], [-15.0, -3600.0, 0.0]),
        (["10-25 02:59:50", "10-25 02:00:05"], [0.0, 0.0]),
        (["03-29 01:59:50", "03-29 03:00:05"], [-3615.0, 0.0]),
    ],
    ids=["autumn", "autumn's second hour", "spring"],
)
def test_an_hour_that_is_not_there_or_twice_puts_nothing_into_the_future(lines, seconds):
    """T30: a log across the change of summer time is wrong by that hour at most, and never in the future."""
    end = calendar.timegm(time.strptime(f"2026-{lines[-1]}", "%Y-%m-%d %H:%M:%S")) - HOUR  # Of a zone ahead of UTC.
    times = PrintedTimes(lines[-1], end)

    assert [end + second for second in seconds] == [times.at(line) for line in lines]


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("printed", ["10-25 02:30:00", "03-29 02:30:00"])
def test_local_times_that_are_twice_or_never_are_times(printed):
    """T30: an hour that the change of summer time doubles or leaves out is read as one near it."""
    noon = utc(2026, int(printed[:2]), int(printed[3:5]), 12)

    assert abs(local_seconds(printed, noon) - (noon - 11 * 3600)) <= 3600
