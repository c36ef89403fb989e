# SPDX-License-Identifier: Apache-2.0
"""Phases: what a server did from when to when."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import START, MadeUpServer, recorded

from vllm_watch.analysis.loadtest.load_test import Steady
from vllm_watch.analysis.loadtest.loads import find_loads
from vllm_watch.analysis.loadtest.phases import find_phases
from vllm_watch.analysis.loadtest.runs import server_runs


def phases(points, steady=None):
    """Return the phases of some points, with their seconds since the start."""
    found = find_phases(points, find_loads(points), steady)
    return [(each.phase, round(each.start - START), round(each.end - START)) for each in found]


def test_work_before_and_after_the_steady_window_is_a_ramp():
    """The steady window divides the work."""
    server = MadeUpServer().idle(10).work(60, 8).idle(10)
    steady = Steady(start=START + 20, end=START + 50, method="m")

    assert phases(server.points, steady) == [
        ("idle", 0, 10), ("ramp", 10, 20), ("steady", 20, 50), ("ramp", 50, 70), ("idle", 70, 80),
    ]  # fmt: skip


def test_a_window_that_drifts_is_not_steady():
    """What rises or falls is no steady state, so the work is a ramp."""
    server = MadeUpServer().idle(10).work(60, 8).idle(10)
    steady = Steady(start=START + 20, end=START + 50, method="m", problem="no steady state: it drifted")

    assert [phase for phase, *_ in phases(server.points, steady)] == ["idle", "ramp", "idle"]


def test_flicker_is_named_by_what_lasted_longest():
    """Requests that wait at every second scrape, for two thirds of the time, are one saturated phase."""
    server = MadeUpServer().idle(10)
    for _ in range(30):
        server.work(4, 8, waiting=3)
        server.points[-1] = server.points[-1]._replace(gauges=server.points[-2].gauges)
        server.work(2, 8)
    server.idle(10)

    found = [phase for phase, *_ in phases(server.points)]

    assert found.count("saturated") == 1
    assert len(found) <= 4


KNOWN = {
    "stall": ["steady", "stalled"],
    "queue": ["saturated"],
    "deadkill": ["saturated", "down"],
    "loop": ["ramp"],
    "dead": ["ramp", "down"],
}


@pytest.mark.parametrize(("name", "expected"), KNOWN.items(), ids=KNOWN)
def test_the_phases_of_recordings(name, expected):
    """Each recording has the phases that it is known for, in their order."""
    found = [phase.phase for run in server_runs(recorded(name)) for phase in run.phases]
    rest = iter(found)

    assert all(phase in rest for phase in expected), found


def test_phases_follow_each_other_without_gaps():
    """Each phase ends where the next one starts, and all together are the load, with an interval before and after."""
    (run,) = server_runs(recorded("queue"))

    assert run.phases[0].start == pytest.approx(run.start, abs=6)
    assert run.phases[-1].end == pytest.approx(run.end, abs=6)
    assert run.phases[0].start < run.start < run.end < run.phases[-1].end
    assert all(one.end == other.start for one, other in zip(run.phases, run.phases[1:], strict=False))


def test_a_phase_has_its_numbers():
    """The saturated phase of a queue has its waiting requests and its throughput, the idle one has none."""
    (run,) = server_runs(recorded("queue"))
    by_name = {phase.phase: phase.result for phase in run.phases}

    assert by_name["saturated"].waiting > 50
    assert by_name["saturated"].max_running == 4
    assert by_name["saturated"].generation_tokens_per_second > 500
    assert by_name["idle"].generation_tokens_per_second is None


def test_a_server_that_works_before_it_sleeps_is_not_idle():
    """Tokens that came before a scrape of a sleeping server are those of a ramp."""
    server = MadeUpServer().idle(10).work(60, 8).idle(20)
    points = [
        point._replace(state="sleeping") if START + 50 < point.at <= START + 70 else point for point in server.points
    ]
    found = find_phases(points, find_loads(points), None)

    assert [(each.phase, each.end - each.start) for each in found] == [("idle", 10), ("ramp", 60), ("idle", 20)]
