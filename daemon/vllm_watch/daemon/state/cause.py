# SPDX-License-Identifier: Apache-2.0
"""Why an engine is saturated or down, as far as its sources tell. Why one is stalled is in `stall`."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.capacity.saturation import AT_LIMIT, KV_AT_LIMIT, Stretch
from vllm_watch.daemon.catalog.causes import DownCause, SaturationCause
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch_parsers.events import FailureKind


_CRASHES: Mapping[DownCause, frozenset[FailureKind]] = {
    "out_of_memory": frozenset({"out_of_memory", "gpu_memory_too_small", "kv_cache_too_small"}),
    "worker_failed": frozenset(
        {
            "worker_died", "nccl_error", "execution_timeout", "gpu_ecc", "gpu_nvlink", "gpu_lost",
            "cuda_illegal_access", "cuda_launch_failure",
        }
    ),
    "engine_died": frozenset({"engine_dead"}),
}  # fmt: skip
"""The failures that a crash is put down to: the first of these causes that the log reports."""


def why_saturated(
    stretch: Stretch | None, gauges: Mapping[str, Reading], facts: Mapping[str, float]
) -> SaturationCause | None:
    """
    Return what the requests of a saturated engine wait for.

    Args:
        stretch: The time in which requests have waited, if it was seen: its means do not swing.
        gauges: The present values, which are used where it was not.
        facts: The engine's limits.
    """
    running, usage = _load(stretch, gauges)
    seats = facts.get("max_running_requests")
    is_batch_full = None if running is None or not seats else running >= AT_LIMIT * seats
    is_cache_full = None if usage is None else usage >= KV_AT_LIMIT
    if is_cache_full:
        return "both_full" if is_batch_full else "kv_cache_full"
    if is_cache_full is None or is_batch_full is None:
        return None
    return "batch_full" if is_batch_full else "neither_full"


def _load(stretch: Stretch | None, gauges: Mapping[str, Reading]) -> tuple[float | None, float | None]:
    """Return how many requests run, and how much of the KV cache they use."""
    if stretch is not None:
        return stretch.running, stretch.kv_cache_usage
    running, usage = gauges.get("requests_running"), gauges.get("kv_cache_usage_ratio")
    return None if running is None else running.value, None if usage is None else usage.value


def why_down(log: LogSource | None, scrape: ScrapeSource | None) -> DownCause | None:
    """Return how a server that is down has ended: by the failures of its end, not by those of an earlier time."""
    if log is None or log.life.phase is None:
        return None if scrape is None or scrape.reading is not None else "never_answered"
    life = log.life
    end = life.phase_at if life.has_ended else scrape.refused_since if scrape is not None else None
    failures = life.failures_near(end) if end is not None else frozenset()
    for cause, kinds in _CRASHES.items():
        if failures & kinds:
            return cause
    if life.has_ended:
        return "stopped"
    return "killed" if life.phase == "ready" else None
