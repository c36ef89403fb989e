# SPDX-License-Identifier: Apache-2.0
"""
The states of an engine: how bad each is, what it means, why it is in a bad one, and what to do first.

The order of the type is that of the samples of `engine_state`. From the table derive the dashboards' numbers, order and
English texts, and the status page's order and texts. The README has a longer text for each.
A cause that is not known is none. `first_steps.json` is made from the runbooks (``make generate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from vllm_watch.daemon.catalog.reasons import STALLED, StallReason


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


SaturationCause = Literal["batch_full", "kv_cache_full", "both_full", "neither_full"]

SATURATED: Mapping[SaturationCause, str] = {
    "batch_full": (
        "Requests wait for a place in the batch: as many run or are deferred as --max-num-seqs and "
        "--max-num-active-seqs allow."
    ),
    "kv_cache_full": "Requests wait for the KV cache, which is full.",
    "both_full": "Requests wait, and both the batch (--max-num-seqs) and the KV cache are full.",
    "neither_full": "Requests wait, although the batch (--max-num-seqs) and the KV cache have room.",
}

DownCause = Literal["out_of_memory", "worker_failed", "engine_died", "killed", "stopped", "never_answered"]

DOWN: Mapping[DownCause, str] = {
    "out_of_memory": "It crashed: the log ends with a lack of memory.",
    "worker_failed": "It crashed: the log ends with the failure of a worker, of its GPU or of their communication.",
    "engine_died": "It crashed: the log ends with the engine's death.",
    "killed": "Nothing listens, and its log ends with neither a failure nor a stop: as it does when it is killed.",
    "stopped": "It was stopped in order, by SIGTERM or Ctrl-C.",
    "never_answered": "Nothing has listened at its address since vllm-watch was started.",
}

Cause = SaturationCause | StallReason | DownCause

CAUSES: Mapping[EngineState, Mapping[str, str]] = {
    "saturated": dict(SATURATED.items()),
    "stalled": dict(STALLED.items()),
    "down": dict(DOWN.items()),
}
"""All causes, by state."""


def meaning(state: EngineState, cause: str | None) -> str:
    """Return what a state means, as exactly as its cause is known."""
    return CAUSES.get(state, {}).get(cause or "", STATES[state].text)


def severity(state: EngineState, cause: str | None) -> int:
    """Return how bad a state is: that its operator has stopped a server is as bad as that they put it to sleep."""
    return STATES["sleeping" if cause == "stopped" else state].severity


def common(causes: Iterable[str | None]) -> str | None:
    """Return the cause that all engines in a state share; `None` if one's is another, or not known."""
    found = set(causes)
    return found.pop() if len(found) == 1 else None


class FirstSteps(msgspec.Struct, frozen=True):
    """
    What a runbook says to do first. Code in its texts is between back quotes.

    Args:
        runbook: The runbook's name, that of its alert.
        url: Where the whole runbook is.
        steps: What to do while the cause is not known, in this order.
        by_cause: What to do about each cause.
    """

    runbook: str
    url: str
    steps: tuple[str, ...]
    by_cause: dict[str, tuple[str, ...]] = {}

    def about(self, cause: str | None) -> tuple[str, ...]:
        """Return what to do about a cause, or while it is not known."""
        return self.by_cause.get(cause or "", self.steps)


@cache
def first_steps() -> dict[EngineState, FirstSteps]:
    """Return what to do first by state; a state that needs nothing is not there."""
    text = Path(__file__).with_name("first_steps.json").read_bytes()
    return msgspec.json.decode(text, type=dict[EngineState, FirstSteps])
