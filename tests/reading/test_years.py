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

from vllm_watch.analysis.replay.replay import run_logs
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.times import PrintedTimes
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


@pytest.mark.parametrize("seed", range(8))
def test_a_log_with_pauses_is_in_its_years(seed):
    """Lines at random over less than a year, with silences up to five months: each is where it was written."""
    choice = random.Random(seed)
    pauses = [choice.choice([1, 10, HOUR, DAY]) for _ in range(30)] + [150 * DAY, 180 * DAY]
    choice.shuffle(pauses)
    moments = [utc(2026, 3, 10) - offset for offset in itertools.accumulate(pauses)][::-1]
    times = PrintedTimes(printed(moments[-1]), moments[-1], printed(moments[0]))

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


@pytest.mark.parametrize("started", [utc(2025, 8, 1, 9), utc(2025, 3, 20, 9)])
def test_a_server_that_runs_for_long_was_started_then(tmp_path, started):
    """The start is seven or twelve months ago; the last line is of the present all the same."""
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


@pytest.mark.parametrize("seconds", [1, HOUR, DAY, 6 * DAY])
def test_a_clock_that_is_set_back_ends_no_year(seconds):
    """A correction by some days is no new year."""
    last = utc(2026, 6, 15)
    times = PrintedTimes(printed(last), last, printed(last + seconds))

    assert [last, last - seconds, last] == [times.at(printed(at)) for at in (last + seconds, last - seconds, last)]
