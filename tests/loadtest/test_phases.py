# SPDX-License-Identifier: Apache-2.0
"""Phases: what a server did from when to when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.loadtest.histories import START, MadeUpServer, recorded

from vllm_watch.analysis.loadtest.loads import find_loads
from vllm_watch.analysis.loadtest.phases import find_phases
from vllm_watch.analysis.loadtest.runs import server_runs


def phases(points, steady=None):
    """Return the phases of some points, with their seconds since the start."""
    found = find_phases(points, find_loads(points), steady)
    return [(each.phase, round(each.start - START), round(each.end - START)) for each in found]


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
    "stall": ["starting", "idle", "ramp", "stalled", "saturated"],
    "queue": ["starting", "idle", "saturated"],
    "deadkill": ["starting", "idle", "saturated", "down"],
    "loop": ["starting", "down", "starting", "down", "starting"],
    "dead": ["starting", "idle", "ramp", "down"],
}


@pytest.mark.parametrize(("name", "expected"), KNOWN.items(), ids=KNOWN)
def test_the_phases_of_recordings(name, expected):
    """Each recording has the phases that it is known for, in their order, without gaps from its start to its end."""
    points = recorded(name).points
    found = find_phases(points, find_loads(points), None)
    rest = iter([each.phase for each in found])

    assert all(phase in rest for phase in expected), found
    assert (found[0].start, found[-1].end) == (points[0].at, points[-1].at)
    assert all(one.end == other.start for one, other in pairwise(found))


@pytest.mark.parametrize("name", ["queue", "dead", "stall"])
def test_what_is_told_with_a_load_is_of_the_load(name):
    """Phases, events and the timeline of a run begin an interval before its load at most, and end one after it."""
    history = recorded(name)
    (run,) = server_runs(history)
    moments = [run.phases[0].start, run.phases[-1].end, *run.timeline.times, *(event.at for event in run.events)]

    assert run.start - 5.1 <= min(moments) <= max(moments) <= run.end + 5.1


def test_a_stall_begins_with_its_last_token():
    """The last token was scraped at 90 s and the next at 175 s: 80 s are stalled, though it was known at 120 s only."""
    history = recorded("stall")
    (run,) = server_runs(history)
    began = history.points[0].at
    stalled = [(each.start - began, each.end - began) for each in run.phases if each.phase == "stalled"]

    assert stalled == [pytest.approx((90.0, 170.0), abs=0.1)]
    assert [(event.text, event.at - began) for event in run.events] == [
        ("the server is stalled", pytest.approx(90.0, abs=0.1))
    ]


def test_a_phase_that_begins_before_the_load_keeps_its_numbers():
    """Where a part of a phase is between two points, those around it have its tokens."""
    server = MadeUpServer(step=10.0).idle(20).work(40, 8).idle(20)
    found = find_phases(server.points, find_loads(server.points), None, (START + 33, START + 37))

    assert [(each.phase, each.result.generation_tokens_per_second) for each in found] == [("ramp", 100.0)]


def test_the_rates_of_a_phase_are_not_over_the_silence_before_it():
    """The first phase after two minutes without a line has the tokens per second of its own time."""
    server = MadeUpServer(step=10.0).idle(20)
    server.at += 120
    server.work(60, 8).idle(20)
    found = find_phases(server.points, find_loads(server.points), None)

    assert [(each.phase, each.result.generation_tokens_per_second) for each in found] == [
        ("idle", None), ("ramp", pytest.approx(100)), ("idle", None),
    ]  # fmt: skip
