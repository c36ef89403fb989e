# SPDX-License-Identifier: Apache-2.0
"""Old logs: the year and the zone that no line prints, told by the order of the lines."""

from __future__ import annotations

import gzip
import itertools
import os
import random
import time

import pytest

from tests.reading.test_times import DAY, in_berlin, utc  # noqa: F401  # A fixture.

from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.analysis.replay.replay import run_logs
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.times import PrintedTimes, count_new_years, parts_to_read
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


HOUR = 3600


class Clock:
    """A clock that stands still."""

    def __init__(self, now):
        self._now = now

    def now(self):
        """Return the moment."""
        return self._now

    def wall(self, moment):
        """Return the moment as the wall clock has it."""
        return moment


def printed(moment):
    """Return what vLLM prints at a moment of this machine's zone."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(moment))


def line(time_printed, generation=5.0):
    """Return a statistics line."""
    return (
        f"INFO {time_printed} [loggers.py:80] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        f"throughput: {generation} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )


def written(path, moments, make=line):
    """Write a log whose lines are of some moments, and return it."""
    text = "".join(make(printed(moment)) for moment in moments).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    os.utime(path, (moments[-1], moments[-1]))
    return path


def times_of_snapshots(path, step):
    """Return the moments of the snapshots that a log gives."""
    state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
    return [snapshot.at for snapshot in run_logs([str(path)], state, step)]


def docker(text):
    """Return a line as Docker keeps it."""
    return (
        '{"log":"' + text.rstrip("\n").replace('"', '\\"') + '\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}\n'
    )


def cri(text):
    """Return a line as Kubernetes keeps it."""
    return f"2026-01-01T00:00:00.000000000Z stdout F {text}"


def coloured(text):
    """Return a line as a process with a coloured name prints it."""
    return f"\x1b[1;36m(APIServer pid=7)\x1b[0;0m {text}"


FORMS = {"plain": str, "docker": docker, "cri": cri, "coloured": coloured}


@pytest.mark.parametrize("name", ["vllm.log", "vllm.log.gz"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_log_over_ten_months_has_ten_months(tmp_path, name, form):
    """Whatever the months: a line a day from May to March gives the days between, none lost and none at the end."""
    first, last = utc(2025, 5, 1, 12), utc(2026, 3, 10, 12)
    days = [first + DAY * number for number in range(int((last - first) / DAY) + 1)]
    log = written(tmp_path / name, days, lambda at: form(line(at)))

    assert days == times_of_snapshots(log, DAY)


@pytest.mark.parametrize("years", [1, 2, 5])
def test_a_log_of_several_years_has_them_all(tmp_path, years):
    """Each December is followed by the January of the next year, leap days among them."""
    last = utc(2026, 3, 10, 12)
    weeks = [last - 7 * DAY * number for number in range(52 * years, -1, -1)]
    log = written(tmp_path / "vllm.log", weeks)

    assert weeks == times_of_snapshots(log, 7 * DAY)


@pytest.mark.parametrize("seed", range(8))
def test_a_log_with_pauses_up_to_eleven_months_is_in_its_years(seed):
    """Lines at random, with silences up to eleven months: each is where it was written."""
    choice = random.Random(seed)
    pauses = [choice.choice([1, 10, HOUR, DAY, 30 * DAY, 180 * DAY, 330 * DAY]) for _ in range(30)]
    moments = [utc(2026, 8, 10) - offset for offset in itertools.accumulate(pauses)][::-1]
    times = PrintedTimes(
        printed(moments[-1]),
        moments[-1],
        new_years=count_new_years([b"".join(line(printed(moment)).encode() for moment in moments)]),
    )

    assert moments == [times.at(printed(moment)) for moment in moments]


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("change", [utc(2026, 10, 25, 1), utc(2026, 3, 29, 1)], ids=["autumn", "spring"])
def test_summer_time_shifts_nothing(tmp_path, change):
    """A line every ten minutes across the change of summer time: each is where it was written, to the second."""
    moments = [change + 600.0 * number for number in range(-30, 30)]
    log = written(tmp_path / "vllm.log", moments)

    assert moments == times_of_snapshots(log, 600.0)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", utc(2026, 10, 25, 1)),
        ("America/New_York", utc(2026, 11, 1, 6)),
        ("Europe/Dublin", utc(2026, 10, 25, 1)),
        ("Australia/Lord_Howe", utc(2026, 4, 4, 15)),
        ("Pacific/Chatham", utc(2026, 4, 4, 14)),
    ],
)
@pytest.mark.parametrize("minutes", [-70, -1, 20, 70])
def test_a_log_that_ends_in_the_hour_that_occurs_twice_is_where_it_was_written(
    tmp_path, monkeypatch, zone, change, minutes
):
    """A log that begins hours before the end of summer time may end in either pass of the hour, or outside of both."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        moments = [change + 60.0 * number for number in range(-180, minutes + 1)]
        log = written(tmp_path / "vllm.log", moments)

        assert moments == times_of_snapshots(log, 60.0)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("start", [-50, 5])
@pytest.mark.usefixtures("in_berlin")
def test_a_few_last_lines_are_in_the_pass_of_the_file_s_last_write(start):
    """What is read from somewhere inside the hour that occurs twice has the distance from the end that it prints."""
    moments = [utc(2026, 10, 25, 1) + 60.0 * number for number in range(start, start + 30)]
    times = PrintedTimes(printed(moments[-1]), moments[-1] + 1)

    assert moments == [times.at(printed(moment)) for moment in moments]


@pytest.mark.usefixtures("in_berlin")
def test_a_log_of_another_zone_keeps_its_differences():
    """A container's log in UTC on a machine in Berlin: its hours are all of the same length."""
    end = utc(2026, 10, 26, 12)
    times = PrintedTimes("10-26 12:00:00", end)

    assert [end - 48 * HOUR, end - 24 * HOUR] == [times.at("10-24 12:00:00"), times.at("10-25 12:00:00")]


@pytest.mark.parametrize("started", [utc(2025, 8, 1, 9), utc(2025, 3, 20, 9), utc(2024, 2, 1, 9)])
def test_a_server_that_runs_for_long_was_started_then(tmp_path, started):
    """The start is seven, twelve and twenty-five months ago; the last line is of the present all the same."""
    now = utc(2026, 3, 10, 12)
    log = tmp_path / "vllm.log"
    between = [started + 20 * DAY * number for number in range(1, int((now - started) / (20 * DAY)))]
    starting = f"INFO {printed(started)} [api_server.py:1] vLLM API server version 0.10.0\n"
    log.write_text(starting + "".join(line(printed(moment)) for moment in [*between, now]))
    os.utime(log, (now, now))
    server = ServerMonitor(ServerConfig(name="x", log=str(log)), Clock(now))
    server.log.poll()
    snapshot = server.snapshot()
    server.close()

    assert started == snapshot.start_time.value
    assert (5.0, now) == snapshot.engines[0].gauges["generation_tokens_per_second"][:2]


def test_a_large_log_is_looked_at_in_parts(tmp_path):
    """Of a log of 3 MB some parts tell that two years end in it; its first line is two years before the last."""
    first, last = utc(2024, 2, 1), utc(2026, 3, 10)
    count = 12_000
    moments = [first + (last - first) * number // count for number in range(count)] + [last]
    log = written(tmp_path / "vllm.log", moments)
    size = log.stat().st_size
    read = sum(part for _, part in parts_to_read(0, size))

    assert size > 2 * read
    assert first == FinishedLog(str(log)).end


@pytest.mark.parametrize("seconds", [1, HOUR, DAY, 6 * DAY])
def test_a_clock_that_is_set_back_ends_no_year(seconds):
    """A correction by some days is no new year."""
    last = utc(2026, 6, 15)
    lines = b"".join(line(printed(moment)).encode() for moment in (last, last - seconds, last))

    assert 0 == count_new_years([lines])


@pytest.mark.parametrize(
    "text",
    [
        "INFO 11-21 00:00:00 [logger.py:40] Received:\r\nINFO 01-01 00:00:00 [loggers.py:80] Engine 000\nINFO 11-21",
        "INFO 11-21 00:00:00 [x.py:1] a\nat INFO 01-01 00:00:00 [x.py:1]\nINFO 11-21 00:00:01 [x.py:1] b\n",
        'INFO:     1.1.1.1:1 - "GET /01-01 00:00:00 HTTP/1.1" 200 OK\nINFO 11-21 00:00:01 [x.py:1] b\n',
        "",
        "\n\n",
        "{",
        '{"log":"',
    ],
)
def test_what_strangers_write_ends_no_year(text):
    """Only the time of a record counts, and not of a line that continues one."""
    assert 0 == count_new_years([text.encode()])
