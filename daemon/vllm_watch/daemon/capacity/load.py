# SPDX-License-Identifier: Apache-2.0
"""The load of an engine, in samples of a moment, and the capacity that is found from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.codes import CapacityBasis, CapacityReason
from vllm_watch_parsers.readings import EngineReading


LimitName = Literal["max-num-seqs", "KV cache"]
"""``max-num-seqs`` stands for the limit of running requests, which may be that of ``max-num-active-seqs``."""


class CapacityRange(NamedTuple):
    """
    How many tokens per second an engine generates at most, and between which values the truth is.

    `prompt_tokens_per_second` are those of prompts that are computed meanwhile, without cached ones.
    """

    tokens_per_second: float
    low: float
    high: float
    prompt_tokens_per_second: float | None = None

    def part(self, parts: float) -> CapacityRange:
        """Return the part of one of several equal engines."""
        prompt = self.prompt_tokens_per_second
        return CapacityRange(
            self.tokens_per_second / parts,
            self.low / parts,
            self.high / parts,
            None if prompt is None else prompt / parts,
        )


class EngineCapacity(NamedTuple):
    """The capacities by basis, the best first; `unknown` is why there is none."""

    ranges: Mapping[CapacityBasis, CapacityRange] = MappingProxyType({})
    unknown: CapacityReason | None = None


class LoadSample(NamedTuple):
    """
    An engine at one moment, `at`, in seconds. What is not known is `None`.

    `running` requests are in the batch, `queued` ones wait for a place in it or in the KV cache; `kv_cache_usage` is
    from 0 to 1. The rest are counts since some start: `generated` and `computed` in tokens (`computed` those of
    prompts, without cached ones), `preemptions` in requests, `prefix_queries` and `prefix_hits` in tokens, `drafts`,
    and `accepted` in tokens of these; `prompted` and `answered` are the tokens of the prompts and answers of finished
    requests, `measured` how many requests those are of. `deferred` requests wait for something remote.
    """

    at: float
    running: float
    queued: float
    kv_cache_usage: float | None = None
    generated: float | None = None
    computed: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    drafts: float | None = None
    accepted: float | None = None
    prompted: float | None = None
    answered: float | None = None
    measured: float | None = None
    deferred: float = 0.0


def grown(old: float | None, new: float | None) -> float | None:
    """Return by how much a count grew; one that appears later has counted from 0."""
    return None if new is None else new - (old or 0.0)


def share(part: float | None, whole: float | None) -> float | None:
    """Return the share of a part in a whole, `None` if there was nothing."""
    # Counters are read one after the other while they grow: a part may be ahead of the whole.
    return None if part is None or not whole else min(part / whole, 1.0)


def is_reset(old: LoadSample, new: LoadSample) -> bool:
    """Return whether the engine was started again between two samples."""
    return any(
        before is not None and after is not None and after < before
        for before, after in ((old.generated, new.generated), (old.computed, new.computed))
    )


MAX_GAP_SECONDS = 120.0
"""What an engine did between two samples that are further apart is not known."""


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
        deferred=gauges.get("requests_deferred", 0.0),
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
