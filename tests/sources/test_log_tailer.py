# SPDX-License-Identifier: Apache-2.0
"""Following logs: every poll is made by the test, at the time the test says."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.logs import stats_line

from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


pytestmark = pytest.mark.slow


def test_a_line_in_pieces_is_read_when_it_is_complete(followed):
    """T1: a line written in pieces is read once, whole, after its end has come."""
    line = stats_line(5)
    found = []
    for piece in (line[:10], line[10:90], line[90:-1], line[-1:]):
        with open(followed.path, "ab") as file:
            file.write(piece)
        found.append(followed.poll())

    assert [[], [], [], [5]] == found


def test_an_unfinished_line_counts_as_lag(followed):
    """Bytes of a line without its end are not read yet."""
    with open(followed.path, "ab") as file:
        file.write(b"half a line")
    followed.poll()

    assert len(b"half a line") == followed.counts.lag


def test_what_was_there_before_informs_and_is_not_counted(log):
    """Lines older than the first poll come as history."""
    log.grow(1, 2)
    log.write(3)

    assert ([1, 2], [3]) == (log.history, log.poll())
    assert 1 == log.counts.lines


def test_history_is_the_last_start_and_the_end(log):
    """Of a long log the start of the server and the last lines are read, not what lies between."""
    start = b"INFO 11-21 02:00:00 [api_server.py:1043] vLLM API server version 0.8.5\n" + stats_line(1)
    with open(log.path, "wb") as file:
        file.write(stats_line(0) * 2000)
        file.write(start)
        file.write(b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n' * 100_000)
        file.write(stats_line(9))
    log.poll()

    assert (1, 9) == (log.history[-2], log.history[-1])
    assert len(log.history) < 200


@pytest.mark.parametrize("is_rest", [True, False])
def test_what_was_said_before_lines_that_are_passed_over_is_not_the_present(log, is_rest):
    """Neither a pause nor statistics from the part of a long log that tells of its start are how things stand."""
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
    paused = b"INFO 11-21 02:00:01 [scheduler.py:2756] setting pause state to PAUSED_ALL\n"
    with open(log.path, "wb") as file:
        file.write(b"INFO 11-21 02:00:00 [api_server.py:1043] vLLM API server version 0.8.5\n")
        file.write(b"INFO:     Application startup complete.\n" + (paused if is_rest else stats_line(1)))
        file.write(b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n' * 20_000)
    for batch in log.tail.poll(9000.0):
        state.apply_log(batch)
    state.apply_log_status(log.tail.status())
    log.tail.close()

    assert {"unknown"} == {state.snapshot(9000.0 + seconds).engines[0].state for seconds in (0, 60, 600)}


@pytest.mark.parametrize("copied_after", [0, 154_800])
def test_history_ends_when_its_last_line_was_printed(log, copied_after):
    """Printed times have no year and no zone: the file's time tells them, also in a file that was copied days later."""
    log.append(stats_line(1, second=10) + stats_line(2, second=40))
    written = time.mktime((2025, 11, 21, 2, 35, 40, 0, 0, -1))
    os.utime(log.path, (written + copied_after, written + copied_after))

    times = [timed.at for batch in log.tail.poll(written + copied_after + 10) for timed in batch.events]

    assert [written - 30, written] == times


def test_a_backlog_is_read_in_pieces(followed):
    """T21: one poll reads a limited part of a backlog and says that there is more."""
    followed.tail = LogTailer(followed.pattern, max_reads=2)
    followed.poll()
    followed.write(*[1] * 5_000)
    first = len(followed.poll())
    has_more = followed.tail.has_more
    rest = sum(len(followed.poll()) for _ in range(4))

    assert has_more
    assert first < 5_000 == first + rest
