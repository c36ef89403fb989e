# SPDX-License-Identifier: Apache-2.0
"""How a load was sent, and whether the server kept up with it: one rule for `report` and `compare`."""

from __future__ import annotations

from typing import Literal

from vllm_watch.analysis.loadtest.load_test import Load, Result, Run


LoadKind = Literal["open", "closed", "burst"]
"""open: requests come at a rate. closed: each of N users waits for an answer. burst: all requests come at once."""

SERVED = 0.98
"""A server that served at least this share of a given rate kept up with it."""

_OVERLOADED = 0.90
_SATURATED_SHARE = 0.5
_BURST_SHARE = 0.8
"""If P99 of E2EL is so much of a run, its requests came nearly at once."""


def load_kind(load: Load) -> LoadKind | None:
    """Return the kind of a load, `None` if it is not known."""
    if isinstance(load.request_rate, float | int) or load.ramp_up is not None:
        return "open"
    if load.max_concurrency is not None:
        return "closed"
    return "burst" if load.request_rate == "inf" else None


def is_burst(run: Run, result: Result) -> bool:
    """Return whether all requests came at once, so that TTFT and E2EL are those of the queue."""
    kind, users, prompts = load_kind(run.load), run.load.max_concurrency, run.load.num_prompts
    if kind == "burst" or (kind == "closed" and users is not None and prompts is not None and prompts <= users):
        return True
    slowest = None if result.e2el_ms is None else result.e2el_ms.p99
    return bool(slowest and result.duration_s and slowest / 1000 >= _BURST_SHARE * result.duration_s)


def is_saturated(run: Run, result: Result | None) -> bool | None:
    """
    Return whether more was offered than the server could serve, `None` if that is not known.

    It was if requests waited for more than half of the load, or, of a result alone, if a part of its rate was not
    served.
    """
    working = [phase for phase in run.phases if phase.phase in {"ramp", "steady", "saturated", "stalled"}]
    if working:
        saturated = sum(phase.end - phase.start for phase in working if phase.phase == "saturated")
        return saturated > _SATURATED_SHARE * sum(phase.end - phase.start for phase in working)
    served = served_share(run, result)
    if served is None:
        return None
    return True if served < _OVERLOADED else False if served >= SERVED else None


def served_share(run: Run, result: Result | None) -> float | None:
    """
    Return how much of a given rate was served, from 0 to 1, `None` if there is none, or that is not known.

    Failed requests count, and the last answer's generation does not: no request comes during it.
    """
    rate = run.load.request_rate
    if result is None or not rate or rate == "inf" or not result.duration_s or result.request_throughput is None:
        return None
    due = (result.request_throughput * result.duration_s + (result.failed or 0)) / rate
    return due / max(result.duration_s - _generation_seconds(result), due) if due else 0.0


def answered_share(run: Run, result: Result) -> float:
    """Return the share of the requests with an answer; all, where it is not known how many there were."""
    if result.successful is None:
        return 1.0
    counted = run.load.num_prompts if result.view == "client" else None
    asked = counted if result.failed is None else result.successful + result.failed
    return 0.0 if result.successful == 0 else result.successful / asked if asked else 1.0


def _generation_seconds(result: Result) -> float:
    """Return how long an answer of mean length takes from its first token to its last; 0 if that is not known."""
    if result.tpot_ms is None or not result.tpot_ms.mean or not result.total_output_tokens or not result.successful:
        return 0.0
    return result.tpot_ms.mean / 1000 * max(result.total_output_tokens / result.successful - 1, 0)
