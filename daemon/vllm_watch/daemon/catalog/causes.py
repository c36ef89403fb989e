# SPDX-License-Identifier: Apache-2.0
"""
Why an engine is in a bad state: the causes that can be told apart, and what each means.

What to do first depends on them (`first_steps`). A cause that is not known is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from vllm_watch.daemon.catalog.reasons import STALLED, StallReason
from vllm_watch.daemon.catalog.states import STATES, EngineState


SaturationCause = Literal["batch_full", "kv_cache_full", "both_full", "neither_full"]

SATURATED: Mapping[SaturationCause, str] = {
    "batch_full": "Requests wait for a place in the batch: as many run as --max-num-seqs allows.",
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
