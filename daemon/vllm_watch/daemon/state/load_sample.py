# SPDX-License-Identifier: Apache-2.0
"""An engine in a scrape as a sample of its load."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.capacity.samples import LoadSample
from vllm_watch_parsers.scrape import EngineReading


def load_sample(at: float, engine: EngineReading) -> LoadSample | None:
    """Return what a scrape shows of an engine's load, `None` if it does not show its requests."""
    gauges, counters = engine.gauges, engine.counters
    running, waiting = gauges.get("requests_running"), gauges.get("requests_waiting")
    if running is None or waiting is None:
        return None
    prompts = engine.histograms.get("request_prompt_tokens")
    answers = engine.histograms.get("request_generation_tokens")
    return LoadSample(
        at=at,
        running=running,
        queued=waiting - gauges.get("requests_deferred", 0.0),
        kv_cache_usage=gauges.get("kv_cache_usage_ratio"),
        generated=counters.get("generation_tokens"),
        computed=_computed(counters),
        preemptions=counters.get("preemptions"),
        prefix_queries=counters.get("prefix_cache_queries"),
        prefix_hits=counters.get("prefix_cache_hits"),
        drafts=counters.get("drafts"),
        accepted=counters.get("accepted_tokens"),
        prompted=None if prompts is None else prompts.sum,
        answered=None if answers is None else answers.sum,
        measured=None if prompts is None else prompts.observations,
    )


def _computed(counters: Mapping[str, float]) -> float | None:
    """Return the tokens of prompts that were computed; before 0.16 cached ones cannot be distinguished from them."""
    if "prompt_tokens_computed" in counters:
        return counters["prompt_tokens_computed"]
    prompts = counters.get("prompt_tokens")
    return None if prompts is None else prompts - counters.get("prompt_tokens_cached", 0.0)
