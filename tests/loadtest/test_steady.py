# SPDX-License-Identifier: Apache-2.0
"""The steady window of a server's load, and what was measured in it."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import MadeUpServer

from vllm_watch.analysis.loadtest.loads import find_loads
from vllm_watch.analysis.loadtest.phases import find_steady
from vllm_watch.analysis.loadtest.server_result import server_result
from vllm_watch.daemon.statistics.steady_window import METHOD


def steady(server):
    """Return the steady window of the only load."""
    (load,) = find_loads(server.points)
    return find_steady(load)


def wobbling(server, seconds, running=8, tokens=400.0):
    """Let a server work with a little change from scrape to scrape, as real ones do."""
    for step in range(round(seconds / server.step)):
        server.work(server.step, running, tokens_per_second=tokens * (1 + 0.02 * (-1) ** step))
        server.points[-1] = server.points[-1]._replace(
            state="serving", gauges={**server.points[-1].gauges, "requests_running": float(running)}
        )
    return server


def test_a_constant_load_is_steady():
    """Two minutes at one level have a window of a minute and more, with the level as its throughput."""
    found = steady(wobbling(MadeUpServer().idle(40), 180).idle(40))

    assert found.problem is None
    assert found.method == METHOD
    assert found.end - found.start >= 60
    assert found.result.output_throughput == pytest.approx(400, rel=0.02)
    assert found.use.running == pytest.approx(8)


def test_a_drain_is_not_in_the_window():
    """Once no request comes any more the window is over, although some still run."""
    server = wobbling(MadeUpServer().idle(40), 180)
    last = server.at
    for running in (6, 4, 2):
        server.work(2, running, tokens_per_second=10)  # Two requests are finished, and none comes.
        gauges = {**server.points[-1].gauges, "requests_running": float(running)}
        server.points[-1] = server.points[-1]._replace(state="serving", gauges=gauges)
    found = steady(server.idle(40))

    assert found.end <= last


def test_what_drifts_has_no_numbers():
    """A server that becomes slower all the time has a window with a problem, and no result."""
    server = MadeUpServer().idle(40)
    for step in range(90):
        wobbling(server, 2, 8, 400.0 - 3 * step)
    found = steady(server.idle(40))

    assert found.problem.startswith("no steady state")
    assert found.result is None


def test_what_failed_is_counted_once():
    """Aborted requests have no status of failure; errors and rejections have both, and count once."""
    server = MadeUpServer().idle(10).work(20, 8).idle(10)
    first, last = server.points[0], server.points[-1]
    grown = {
        "requests_finished_total.abort": 3.0,
        "requests_finished_total.error": 2.0,
        "admission_rejections_total": 4.0,
        "http_requests_total.2xx": 203.0,
        "http_requests_total.5xx": 2.0,
        "http_requests_total.4xx": 4.0,
    }
    first = first._replace(counters={**first.counters, **dict.fromkeys(grown, 0.0)})
    last = last._replace(counters={**last.counters, **grown})

    found = server_result([first, last], 20.0)

    assert (found.successful, found.failed) == (200, 9)
