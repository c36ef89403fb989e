# SPDX-License-Identifier: Apache-2.0
"""The state of recorded servers, second by second, from both sources and from each alone."""

from __future__ import annotations

from itertools import cycle, product

import pytest

from tests.alerts.incidents import EVERY
from tests.support.recordings import snapshots, states
from tests.support.samples import sample


pytestmark = pytest.mark.slow


STALLED = "VllmEngineStalled"
STEP = float(sample(5, 1))
"""Every so many seconds it is looked whether a working server is stalled."""

SOURCES = ("both", "log", "metrics")
EVERY_SOURCE = pytest.mark.parametrize("sources", SOURCES)
WORKING = [each.name for each in EVERY if STALLED not in {said.alert for said in each.expected}]


@pytest.mark.parametrize("sources", ["both", "metrics"])
def test_a_frozen_engine_is_stalled_within_45_seconds(sources):
    """The engine frozen at second 89 with a request running is stalled at 134 and stays so until it goes on at 174."""
    found = states("stall", sources)

    assert {"stalled"} == {found[second] for second in range(134, 174)}


def test_a_frozen_engine_is_stalled_within_75_seconds_by_its_log():
    """From the log alone the engine frozen at second 89 is stalled at 164 and stays so until it goes on at 174."""
    found = states("stall", "log")

    assert {"stalled"} == {found[second] for second in range(164, 174)}


@EVERY_SOURCE
def test_a_thawed_engine_is_not_stalled_10_seconds_later(sources):
    """The engine that goes on at second 174 is not stalled from second 184 on."""
    found = states("stall", sources)

    assert "stalled" not in {found[second] for second in range(184, max(found))}


@pytest.mark.parametrize(
    ("name", "sources"),
    sample(
        [*zip(WORKING, cycle(SOURCES)), ("keepalive", "metrics")],
        [*product(WORKING, SOURCES)],
    ),
)
def test_working_servers_are_never_stalled(name, sources):
    """
    No server but a frozen one is ever stalled.

    Not idle, overloaded, asleep, paused or in a long prefill, and not while it starts, stops or dies; but one whose
    page stands still for ever with requests on it is, where nobody reads in the log that its engine is dead.
    """
    is_frozen = (name, sources) == ("keepalive", "metrics")

    assert ("stalled" in states(name, sources, STEP).values()) == is_frozen


@pytest.mark.parametrize("sources", ["both", "log"])
def test_a_dead_engine_is_down_while_its_server_answers(sources):
    """The engine killed at second 240 is down from 245 on, to the end, though its page is read every 5 s."""
    found = states("keepalive", sources)

    assert {"down"} == {found[second] for second in range(245, max(found))}


@EVERY_SOURCE
@pytest.mark.parametrize("name", ["longprompt", "longshort", "sleep", "pause"])
def test_servers_that_stand_still_for_a_reason_are_never_stalled(name, sources):
    """A long prompt that holds up everybody, a sleep and a pause are no stall, whichever source is read."""
    assert "stalled" not in states(name, sources).values()


@pytest.mark.parametrize("sources", ["both", "metrics"])
def test_a_long_prompt_that_holds_up_others_saturates(sources):
    """While a prompt takes every step's whole budget, the engine works and the others wait, from second 131 on."""
    found = states("longshort", sources)

    assert {"saturated"} == {found[second] for second in range(145, 290)}


@EVERY_SOURCE
@pytest.mark.parametrize(
    ("name", "stretches"),
    [("sleep", [(180, 235), (276, 311), (336, 398)]), ("pause", [(120, 214), (266, 311)])],
)
def test_a_server_at_rest_sleeps(name, stretches, sources):
    """From five seconds after it was put to sleep or paused until it is woken, at every level and in every mode."""
    found = states(name, sources)

    assert {"sleeping"} == {found[second] for begin, end in stretches for second in range(begin, end)}


@EVERY_SOURCE
def test_a_server_at_rest_wakes(sources):
    """Within five seconds of the call that wakes it, and while it works, the server does not sleep."""
    found = states("sleep", sources)

    assert "sleeping" not in {found[second] for second in (*range(130, 174), *range(240, 270), *range(404, 450))}


@pytest.mark.parametrize("name", ["longprompt", "sleep"])
def test_an_orderly_stop_counts_no_failure(name):
    """A real server that was stopped in order said that its engine died, and counts no failure for it."""
    *_, (_, last) = snapshots(name, "log")

    assert last.log is not None
    assert not any(last.log.events.values())
    assert "down" == last.engines[0].state


@EVERY_SOURCE
def test_a_server_that_finishes_what_runs_before_it_stops_is_not_down(sources):
    """While a server that was told to stop goes on with its requests, its tokens count and not the word of the stop."""
    found = states("drain", sources)

    assert {found[second] for second in range(170, 188)} <= {"saturated", "serving"}


@EVERY_SOURCE
def test_a_server_with_a_queue_is_saturated(sources):
    """While the queue of the overload stands, the server is saturated; before it and after it is not."""
    found = states("day", sources)

    assert {"saturated"} == {found[second] for second in range(200, 450)}
    assert "saturated" not in {found[second] for second in (*range(40, 180), *range(470, 600))}


@EVERY_SOURCE
def test_a_dead_server_is_down(sources):
    """From the crash at 507 until the server is started again at 530 it is down."""
    found = states("day", sources)

    assert {"down"} == {found[second] for second in range(513, 530)}


@EVERY_SOURCE
def test_a_server_without_work_is_idle(sources):
    """After the overload is drained at 461, and before the next load, the server is idle."""
    found = states("day", sources)

    assert {"idle"} == {found[second] for second in range(480, 490)}


@pytest.mark.parametrize("sources", ["both", "log"])
@pytest.mark.parametrize(("name", "first", "ready"), [("day", 9, 28), ("day", 531, 550), ("stall", 10, 32)])
def test_a_starting_server_is_starting(name, sources, first, ready):
    """From its first words until it is ready the server is starting, although nothing listens yet."""
    found = states(name, sources)

    assert {"starting"} == {found[second] for second in range(first, ready)}


def test_engines_of_data_parallel_servers_are_told_apart():
    """Both engines of a data-parallel server have a state, from both sources."""
    engines = {len(snapshot.engines) for second, snapshot in snapshots("dp1") if second > 60}

    assert {2} == engines
