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

# What is always, or never, the state: in a recording, by which sources, in which seconds.
STRETCHES = {
    "An engine frozen at 89 with a request is stalled 45 s later, until it goes on at 174.": (
        "stall", ("both", "metrics"), {"stalled"}, [(134, 174)]
    ),
    "From the log alone the engine frozen at 89 is stalled 75 s later.": ("stall", ("log",), {"stalled"}, [(164, 174)]),
    "The engine killed at 240 is down, though its server answers every 5 s.": (
        "keepalive", ("both", "log"), {"down"}, [(245, 321)]
    ),
    "While a prompt takes every step's whole budget, the engine works and the others wait.": (
        "longshort", ("both", "metrics"), {"saturated"}, [(145, 290)]
    ),
    "From five seconds after it was put to sleep until it is woken, a server sleeps, at every level.": (
        "sleep", SOURCES, {"sleeping"}, [(180, 235), (276, 311), (336, 398)]
    ),
    "From five seconds after it was paused until it is resumed, a server sleeps, in every mode.": (
        "pause", SOURCES, {"sleeping"}, [(120, 214), (266, 311)]
    ),
    "While a server that was told to stop goes on with its requests, its tokens count, not the word of the stop.": (
        "drain", SOURCES, {"saturated", "serving"}, [(170, 188)]
    ),
    "While the queue of the overload stands, the server is saturated.": ("day", SOURCES, {"saturated"}, [(200, 450)]),
    "From its crash at 507 to its start at 530 a server is down.": ("day", SOURCES, {"down"}, [(513, 530)]),
    "After the overload is drained at 461, and before the next load, the server is idle.": (
        "day", SOURCES, {"idle"}, [(480, 490)]
    ),
    "From its first words until it is ready a server is starting, although nothing listens yet.": (
        "day", ("both", "log"), {"starting"}, [(9, 28), (531, 550)]
    ),
    "From its first words until it is ready another server is starting.": (
        "stall", ("both", "log"), {"starting"}, [(10, 32)]
    ),
}  # fmt: skip
NEVER = {
    "The engine that goes on at 174 is not stalled from 184 on.": ("stall", "stalled", [(184, 186)]),
    "Within five seconds of the call that wakes it, and while it works, a server does not sleep.": (
        "sleep", "sleeping", [(130, 174), (240, 270), (404, 450)]
    ),
    "Before and after its queue a server is not saturated.": ("day", "saturated", [(40, 180), (470, 600)]),
}  # fmt: skip


def seen(name, sources, stretches):
    """Return the states of a recording in some seconds."""
    found = states(name, sources)
    return {found[second] for begin, end in stretches for second in range(begin, end)}


@pytest.mark.parametrize("sentence", STRETCHES)
def test_a_state_holds(sentence):
    """In the seconds that the sentence is about no other state is seen, whichever source is read."""
    name, every_source, expected, stretches = STRETCHES[sentence]
    for sources in every_source:
        assert seen(name, sources, stretches) <= expected, sources


@EVERY_SOURCE
@pytest.mark.parametrize("sentence", NEVER)
def test_a_state_is_over(sentence, sources):
    """In the seconds that the sentence is about the state is never seen."""
    name, state, stretches = NEVER[sentence]

    assert state not in seen(name, sources, stretches)


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


@EVERY_SOURCE
@pytest.mark.parametrize("name", ["longprompt", "longshort", "sleep", "pause"])
def test_servers_that_stand_still_for_a_reason_are_never_stalled(name, sources):
    """A long prompt that holds up everybody, a sleep and a pause are no stall, whichever source is read."""
    assert "stalled" not in states(name, sources).values()


@pytest.mark.parametrize("name", ["longprompt", "sleep"])
def test_an_orderly_stop_counts_no_failure(name):
    """A real server that was stopped in order said that its engine died, and counts no failure for it."""
    *_, (_, last) = snapshots(name, "log")

    assert last.log is not None
    assert not any(last.log.events.values())
    assert "down" == last.engines[0].state
