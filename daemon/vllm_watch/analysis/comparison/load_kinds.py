# SPDX-License-Identifier: Apache-2.0
"""What was sent to the two sides: the kind of load, and whether a server was saturated by it."""

from __future__ import annotations

import math

from typing import Literal

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Load, Result, Run, ServerUse


LoadKind = Literal["open", "closed", "burst"]
"""open: requests come at a rate. closed: each of N users waits for an answer. burst: all requests come at once."""

_SATURATED_SHARE = 0.5
SERVED = 0.98
"""From so large a share of a given rate on a server kept up with it."""

_OVERLOADED = 0.90
_WAITING_SHARE = 0.02
"""A request waits for the end of a step also where there is room, which is less than this part of its time."""
_ROOM = 5.0
"""
How much room a load at a rate needs besides the mean number of requests, in square roots of that number.

In simulated servers with room for 32 all intervals of TTFT cover at loads that leave so much, and fail at loads that do
not: there some runs have a queue and others do not, which the runs without one cannot tell.
"""
_LEAST_ROOM = 128
"""vLLM's lowest default of ``--max-num-seqs`` (``SchedulerConfig.DEFAULT_MAX_NUM_SEQS``)."""


def load_kind(load: Load) -> LoadKind | None:
    """Return the kind of a load, `None` if it is not known."""
    if isinstance(load.request_rate, float | int) or load.ramp_up is not None:
        return "open"
    if load.max_concurrency is not None:
        return "closed"
    return "burst" if load.request_rate == "inf" else None


def load_name(load: Load) -> str:
    """Return a load in a few words, also one of which nothing is known."""
    return load_text(load) or "an unknown load"


def is_saturated(run: Run, result: Result | None) -> bool | None:
    """Return whether more was offered than the server could serve, `None` if that is not known."""
    if run.capacity is not None and run.capacity.basis == "saturated":
        return True
    working = [phase for phase in run.phases if phase.phase in {"ramp", "steady", "saturated", "stalled"}]
    if working:
        saturated = sum(phase.end - phase.start for phase in working if phase.phase == "saturated")
        return saturated > _SATURATED_SHARE * sum(phase.end - phase.start for phase in working)
    if load_kind(run.load) == "burst":
        return True
    served = served_share(run, result)
    if served is None:
        return None
    return True if served < _OVERLOADED else False if served >= SERVED else None


def served_share(run: Run, result: Result | None) -> float | None:
    """Return how much of a given rate was served, `None` if there is none, or that is not known."""
    rate = run.load.request_rate
    if result is None or result.request_throughput is None or not rate or rate == "inf":
        return None
    return result.request_throughput / rate


def is_near_saturation(run: Run, result: Result | None) -> bool | None:
    """
    Return whether requests queued for a place in the batch, or could have by chance, `None` if that is not known.

    Then the time to the first token is that of the queue, which grows and shrinks over minutes. By chance a queue grows
    only at a rate: the number of users bounds it.
    """
    if is_saturated(run, result):
        return True
    use = run.use if run.steady is None or run.steady.use.waiting is None else run.steady.use
    if use.waiting is None or use.running is None or use.waiting + use.running <= 0:
        return None if varies_by_chance(run) else is_saturated(run, result)
    if use.waiting / (use.waiting + use.running) > _WAITING_SHARE:
        return True
    # Each engine has its own queue, and its own chance that it grows.
    running = use.running / _engines(run)
    return varies_by_chance(run) and running + _ROOM * math.sqrt(running) > _room(run, running, use)


def varies_by_chance(run: Run) -> bool:
    """Return whether the number of requests at once is left to chance: they come at a rate, or it is not known how."""
    return load_kind(run.load) not in {"closed", "burst"}


def _room(run: Run, running: float, use: ServerUse) -> float:
    """Return how many requests an engine runs at most: the places of its batch, or how many fit into its KV cache."""
    places = _places(run) or _LEAST_ROOM
    if not running or not use.kv_cache_usage_ratio:
        return places
    return min(places, running / use.kv_cache_usage_ratio)


def _engines(run: Run) -> int:
    """Return among how many engines requests were shared; one where that is not known."""
    places = _places(run)
    return max(round(run.max_running_requests / places), 1) if run.max_running_requests and places else 1


def _places(run: Run) -> int | None:
    """Return how many requests each engine runs at most, `None` if that is not known."""
    given = run.config.get("max-num-seqs", "")
    return int(given) if given.isdecimal() else None
