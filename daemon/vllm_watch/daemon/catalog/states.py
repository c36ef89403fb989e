# SPDX-License-Identifier: Apache-2.0
"""
The states of an engine: how bad each is, and what it means.

The order of the type is that of the samples of `engine_state`. From the table derive the dashboards' numbers, order and
English texts, and the status page's order and texts. The README has a longer text for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args


EngineState = Literal["starting", "idle", "serving", "saturated", "stalled", "sleeping", "down", "unknown"]
ENGINE_STATES: tuple[EngineState, ...] = get_args(EngineState)


class State(NamedTuple):
    """
    What a state means.

    Args:
        severity: Its number on the dashboards: from 1, the best, to the worst. A server has that of its worst engine.
        short: A few words for a panel's description.
        text: A sentence for who looks at one server; empty where the state needs none.
        runbook: Which runbook says what to do; empty where nothing has to be done.
    """

    severity: int
    short: str
    text: str = ""
    runbook: str = ""


SLEEPING = (
    "Its operator has put it to sleep (/sleep) or paused it (/pause): it accepts requests and holds them until "
    "/wake_up or /resume."
)
"""What the state `sleeping` means to an operator: how it came about, and how it ends."""

STATES: Mapping[EngineState, State] = {
    "starting": State(3, "the server is loading", "The server is loading."),
    "idle": State(1, "nothing to do"),
    "serving": State(2, "work, and tokens are generated"),
    "saturated": State(
        6,
        "requests wait for capacity",
        "The engine is working, and requests wait for capacity.",
        "VllmCapacityExhausted",
    ),
    "stalled": State(
        7,
        "work, and nothing has moved for 30 s (configurable)",
        "The engine has requests, and nothing moves.",
        "VllmEngineStalled",
    ),
    "sleeping": State(
        4,
        "put to sleep or paused by its operator",
        SLEEPING,
        "VllmSleepingWithRequests",
    ),
    "down": State(
        8,
        "nothing listens, or the log ends with a failure",
        "Nothing listens, or the log ended with a fatal error or a shutdown.",
        "VllmEngineDown",
    ),
    "unknown": State(5, "no source has current data", "No source has current data."),
}

USUAL: frozenset[EngineState] = frozenset({"idle", "serving"})
"""Between these an engine changes all day long: that is no event."""

BEST_TO_WORST: tuple[EngineState, ...] = tuple(sorted(ENGINE_STATES, key=lambda state: STATES[state].severity))


def worst(states: Iterable[EngineState]) -> EngineState:
    """Return the worst of some states, such as a server's of its engines'; `unknown` if there is none."""
    return max(states, key=lambda state: STATES[state].severity, default="unknown")
