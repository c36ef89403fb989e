# SPDX-License-Identifier: Apache-2.0
"""
Why an engine is in a bad state: the causes that can be told apart, what each means, and what to do first.

A cause that is not known is none. `first_steps.json` is made from the runbooks (``make generate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_watch.daemon.catalog.reasons import STALLED, StallReason
from vllm_watch.daemon.catalog.states import STATES, EngineState


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
