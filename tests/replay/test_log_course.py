# SPDX-License-Identifier: Apache-2.0
"""What became of a server in the course of a finished log."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.recordings import log_file

from vllm_watch.analysis.rendering.server_summary import summary_text
from vllm_watch.cli.commands.once import read_once
from vllm_watch.daemon.reading.log_reader import LogReader, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


WRITTEN = time.mktime((2025, 11, 21, 2, 36, 0, 0, 0, -1))


def line(at, running, tokens):
    """Return a statistics line printed at some seconds after `WRITTEN`."""
    printed = time.strftime("%m-%d %H:%M:%S", time.localtime(WRITTEN + at))
    return (
        f"INFO {printed} [loggers.py:80] Engine 000: Avg prompt throughput: {tokens} tokens/s, Avg generation "
        f"throughput: {tokens} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )


def followed(name):
    """Return what `once` says of a recorded log, and its course."""
    found = read_once([str(log_file(name))], None, has_course=True)
    return summary_text(found.snapshot, found.log, 80, found.course), found.course


def test_a_stall_in_the_middle_is_said_with_its_times():
    """The recorded log of a server that hung and went on says so, and when, although its end looks well."""
    text, course = followed("stall")
    stalled = course.states["stalled"]

    assert {"stalled"} == set(course.states)
    assert 1 == stalled.times
    assert 10.0 <= stalled.seconds == stalled.end - stalled.start <= 40.0
    assert "warning  The worst state was stalled, from " in text
    assert "its processes waited 60 s for each other, at " in " ".join(text.split())
    assert "VllmEngineCrashed" not in text


def test_the_highest_values_are_those_of_the_lines():
    """A queue that is gone at the log's end is there, with its time."""
    text, course = followed("day")

    assert (327, 15) == (course.peaks["requests_waiting"].value, course.peaks["requests_running"].value)
    assert {"down", "saturated"} == set(course.states)
    assert "Waiting (requests)  327 " in text
    assert "The worst state was down, from " in text


@pytest.mark.parametrize(
    ("last", "silence", "state", "reason"),
    [
        ((0, 0.0), 3600, "idle", "idle"),
        ((0, 50.0), 0, "serving", "ok"),
        ((0, 50.0), 3600, "unknown", "silent"),
        ((2, 50.0), 10, "serving", "ok"),
        ((2, 50.0), 3600, "unknown", "silent"),
        ((2, 0.0), 10, "serving", "ok"),
        ((2, 0.0), 3600, "stalled", "stalled"),
    ],
)
@pytest.mark.parametrize("has_course", [False, True])
def test_the_silence_after_the_last_line_counts(tmp_path, last, silence, state, reason, has_course):
    """The last line of a log that goes on is the present; in one that ended, what did not follow it shows its state."""
    path = tmp_path / "vllm.log"
    path.write_text(line(-20, 3, 60.0) + line(-10, 3, 60.0) + line(0, *last))
    os.utime(path, (WRITTEN, WRITTEN))
    snapshot = read_once([str(path)], None, has_course=has_course, now=WRITTEN + silence).snapshot

    assert (state, reason) == (snapshot.engines[0].state, snapshot.sources[0].reason)
    assert snapshot.at == WRITTEN
    assert snapshot.engines[0].gauges["requests_running"].value == last[0]


def test_a_source_that_fails_is_not_ok(tmp_path):
    """A log whose statistics stopped is a warning, as on the other screens."""
    path = tmp_path / "vllm.log"
    path.write_text(line(0, 2, 50.0))
    os.utime(path, (WRITTEN, WRITTEN))
    found = read_once([str(path)], None, now=WRITTEN + 3600)

    assert "warning  Log: Statistics stopped" in summary_text(found.snapshot, found.log)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_another_program_s_file_is_no_log(tmp_path, is_foreign):
    """A file with lines of which none is vLLM's is no log: that is said with their number."""
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 27 + ("" if is_foreign else line(0, 0, 0.0)))
    found = read_once([str(path)], None)

    assert is_foreign == (found.snapshot.sources[0].reason == "not_vllm")
    assert is_foreign != found.snapshot.sources[0].is_up
    words = f"{path}: none of 27 lines has the form of vLLM's: is this its log?"
    assert (words,) * is_foreign == found.foreign


def test_an_empty_file_is_a_log_to_come(tmp_path):
    """Where nothing was written yet nothing is wrong."""
    path = tmp_path / "vllm.log"
    path.touch()
    found = read_once([str(path)], None)

    assert ((), True, "no_statistics_yet") == (found.foreign, *found.snapshot.sources[0][1:3])


@pytest.mark.parametrize(
    ("lines", "later", "reason"),
    [(20, 1, "no_statistics_yet"), (20, 600, "not_vllm"), (2000, 1, "not_vllm"), (0, 600, "no_statistics_yet")],
)
def test_a_daemon_waits_for_the_first_line(lines, later, reason):
    """What others print before the server's first line is waited for; another program's log is said to be one."""
    state, reader = ServerState(ServerSettings("s", has_log=True, metrics_interval=None)), LogReader()
    state.apply_log(reader.read([b"a banner"] * lines, ArrivalTimes(WRITTEN)))
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))

    assert reason == state.snapshot(WRITTEN + later).sources[0].reason

    state.apply_log(reader.read([line(0, 2, 0.0).encode().rstrip()], ArrivalTimes(WRITTEN + later)))

    assert "ok" == state.snapshot(WRITTEN + later).sources[0].reason
