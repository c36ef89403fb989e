# SPDX-License-Identifier: Apache-2.0
"""A log's last lines may print no time for hours: when its server was started is then not said, and never "now"."""

from __future__ import annotations

import time

import pytest

from tests.support.pages import page, started

from vllm_watch.daemon.sources.startup_scan import MAX_AFTER_LAST, TAIL
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


HEALTH = b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
HOUR = 3600.0
UP = 100.0
"""So many seconds after its start the server prints the last line that has a time."""


def server_lines(last):
    """Return what a server prints at its start and `UP` seconds later, at the moment `last`."""
    first, ready = (time.strftime("%m-%d %H:%M:%S", time.localtime(at)).encode() for at in (last - UP, last))
    return (
        b"INFO %s [api_server.py:1043] vLLM API server version 0.8.5\n"
        b"INFO %s [launcher.py:40] Route: /health, Methods: GET\n"
        b"INFO:     Application startup complete.\n"
    ) % (first, ready)


def start_by_log(log, silence, size):
    """Return the start, in seconds before the end, of a server that wrote only access lines for so long."""
    with open(log.path, "wb") as file:
        file.write(server_lines(time.time() - silence))
        file.write(HEALTH * (size // len(HEALTH)))
    snapshot = poll(log).snapshot(time.time())
    return None if snapshot.start_time is None else time.time() - snapshot.start_time.value


def poll(log):
    """Return the state after the first poll at a log."""
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=5.0))
    for batch in log.tail.poll(time.time()):
        state.apply_log(batch)
    state.apply_log_status(log.tail.status())
    log.tail.close()
    return state


@pytest.mark.parametrize("size", [4 * MAX_AFTER_LAST, 2 * TAIL])
@pytest.mark.parametrize("silence", [HOUR, 11.4 * HOUR])
def test_hours_without_a_time_leave_the_start_unknown(log, silence, size):
    """Of a server that was left to its probes nobody can say how old its last printed time is."""
    assert start_by_log(log, silence, size) is None


@pytest.mark.parametrize("size", [0, MAX_AFTER_LAST, 4 * MAX_AFTER_LAST])
def test_a_busy_server_without_statistics_has_its_start(log, size):
    """Access lines by the thousand in a few minutes leave the start where the log says it was."""
    assert start_by_log(log, 300.0, size) == pytest.approx(UP + 300, abs=5)


def test_a_log_of_another_zone_has_its_start_while_little_follows(log):
    """Hours between the last printed time and the last write are the zones', if few lines lie between them."""
    assert start_by_log(log, 8 * HOUR, MAX_AFTER_LAST // 2) == pytest.approx(UP, abs=5)


def test_the_page_says_when_the_log_cannot(log):
    """A start that the page tells of is not hidden by one that the log does not know."""
    start = time.time() - 5 * HOUR
    with open(log.path, "wb") as file:
        file.write(server_lines(start + UP) + HEALTH * (2 * TAIL // len(HEALTH)))
    state, now = poll(log), time.time()
    reading = read_metrics((page() + started(start)).encode())
    assert isinstance(reading, MetricsReading)
    state.apply_scrape(ScrapeResult(now, 0.01, reading, "ok"))

    shown = state.snapshot(now).start_time
    assert shown is not None
    assert ("metrics", pytest.approx(start)) == (shown.source, shown.value)
