# SPDX-License-Identifier: Apache-2.0
"""An engine's load in samples of a moment, and in windows of 15 s and more between the first and the last of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch_parsers.scrape import EngineReading


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


WINDOW_SECONDS = 15.0
MAX_GAP_SECONDS = 120.0
"""What an engine did between two samples that are further apart is not known."""


class LoadWindow(NamedTuple):
    """
    What an engine did in some seconds.

    `running` is the mean number of running requests, rates are in tokens per second; `computed` is of prompts, without
    cached tokens. `length` is the mean length of finished requests, prompt and answer, in tokens, `held` how much of
    the KV cache each takes: its prompt, but for what is shared, and half its answer.
    """

    running: float
    generated: float
    computed: float | None
    kv_cache_usage: float | None
    is_preempted: bool
    length: float | None
    held: float | None
    prefix_hits: float | None
    acceptance_length: float | None


class WindowCutter:
    """
    Cuts the samples of one engine into windows.

    A window counts if no request waited for capacity in it, and the engine worked in the windows beside it: work begins
    and ends somewhere in the others.
    """

    def __init__(self) -> None:
        self._first: LoadSample | None = None
        self._last: LoadSample | None = None
        self._running = self._kv = 0.0
        self._has_queue = False
        self._is_between_work = False
        self._waiting: LoadWindow | None = None
        """The last window that may count, until the one after it is known."""

    def add(self, sample: LoadSample) -> LoadWindow | None:
        """Take in the next sample; return a window if one is known to count."""
        first, last = self._first, self._last
        if first is None or last is None or sample.at - last.at > MAX_GAP_SECONDS or is_reset(last, sample):
            self._is_between_work, self._waiting = False, None
            self._begin(sample)
            return None
        seconds = sample.at - last.at
        self._running += sample.running * seconds
        self._kv += (sample.kv_cache_usage or 0.0) * seconds
        self._has_queue |= sample.queued >= 1
        self._last = sample
        if sample.at - first.at < WINDOW_SECONDS:
            return None
        return self._close(first, sample)

    def _begin(self, sample: LoadSample) -> None:
        self._first = self._last = sample
        self._running = self._kv = 0.0
        self._has_queue = sample.queued >= 1

    def _close(self, first: LoadSample, last: LoadSample) -> LoadWindow | None:
        running = self._running / (last.at - first.at)
        found = self._waiting if running > 0 else None
        may_count = running > 0 and self._is_between_work and not self._has_queue
        kv = None if last.kv_cache_usage is None else self._kv / (last.at - first.at)
        self._waiting = _window(first, last, running, kv) if may_count else None
        self._is_between_work = running > 0
        self._begin(last)
        return found


def _window(first: LoadSample, last: LoadSample, running: float, kv_cache_usage: float | None) -> LoadWindow | None:
    seconds = last.at - first.at
    generated, computed = grown(first.generated, last.generated), grown(first.computed, last.computed)
    if not generated:
        return None
    hits = share(grown(first.prefix_hits, last.prefix_hits), grown(first.prefix_queries, last.prefix_queries))
    drafts, accepted = grown(first.drafts, last.drafts), grown(first.accepted, last.accepted)
    length, held = _lengths(first, last, hits or 0.0)
    return LoadWindow(
        running=running,
        generated=generated / seconds,
        computed=None if computed is None else computed / seconds,
        kv_cache_usage=kv_cache_usage,
        is_preempted=bool(grown(first.preemptions, last.preemptions)),
        length=length,
        held=held,
        prefix_hits=hits,
        acceptance_length=1 + accepted / drafts if drafts and accepted is not None else None,
    )


def _lengths(first: LoadSample, last: LoadSample, hits: float) -> tuple[float | None, float | None]:
    """Return the mean length of the requests that were finished, and how much of the KV cache each took."""
    requests = grown(first.measured, last.measured)
    prompted, answered = grown(first.prompted, last.prompted), grown(first.answered, last.answered)
    if not requests or prompted is None or answered is None:
        return None, None
    return (prompted + answered) / requests, (prompted * (1 - hits) + answered / 2) / requests


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
