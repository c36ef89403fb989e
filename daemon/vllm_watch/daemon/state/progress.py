# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine makes progress, by its scrapes.

vLLM updates these values when the engine core finishes a step. A request that only arrives at the API server, or is
cancelled there, changes nothing. A request that its client cancelled is not progress: the front end counts it without
the engine core.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_watch.daemon.state.sleep_reports import TokenSpan
from vllm_watch.daemon.state.window import LastingQueue
from vllm_watch_parsers.scrape import EngineReading


SCRAPES_UNTIL_STILL = 3
"""An engine makes no progress once this many scrapes are equal: two may be moments of two requests."""

_GAVE_UP = "abort"
_ASKED = ("prefix_cache_queries", "external_prefix_cache_queries", "mm_cache_queries", "preemptions")
_QUEUED = ("requests_running", "requests_waiting", "requests_deferred")


class Progress(NamedTuple):
    """
    What changes when an engine makes progress.

    `prompt` and `generated` are tokens, `done` steps with an output and finished requests. The KV cache's use grows
    with each chunk of a long prompt, while nothing else changes. `arrivals` are requests that come and go, and the
    cache lookups for them.
    """

    prompt: float
    generated: float
    done: tuple[float | None, ...]
    kv_cache_usage: float | None
    arrivals: tuple[float | None, ...]

    @property
    def has_served(self) -> bool:
        """Whether the engine has computed anything for anybody since its server was started."""
        return self.prompt > 0 or self.generated > 0


def progress_of(engine: EngineReading) -> Progress:
    """Return the progress in one scrape; a pooling model has prompt tokens and finished requests only."""
    steps = engine.histograms.get("iteration_tokens")
    finished = sum(count for reason, count in engine.requests_finished.items() if reason != _GAVE_UP)
    return Progress(
        engine.counters.get("prompt_tokens", 0.0),
        engine.counters.get("generation_tokens", 0.0),
        (steps.observations if steps else None, finished),
        engine.gauges.get("kv_cache_usage_ratio"),
        (*(engine.counters.get(name) for name in _ASKED), *(engine.gauges.get(name) for name in _QUEUED)),
    )


def has_work(engine: EngineReading) -> bool:
    """Return whether an engine has something to compute: a request that waits for something remote does not count."""
    running, waiting, deferred = _queue_of(engine)
    return running > 0 or waiting > deferred


def _queue_of(engine: EngineReading) -> tuple[float, float, float]:
    running, waiting, deferred = (engine.gauges.get(name, 0.0) for name in _QUEUED)
    return running, waiting, deferred


@dataclass(slots=True)
class EngineProgress:
    """
    The progress of one engine, scrape by scrape.

    `changed_at` is when anything changed last, `done_at` when anything was computed, `worked_at` when tokens, steps or
    finished requests were counted, `works_since` when the present work started. The last tokens came between the
    scrapes of `served_from` and `served_at`; `prompted_from` is the first of these for prompt tokens, `done_from` for
    all that is computed. `token_at` is when the last token was generated.
    """

    progress: Progress
    at: float
    changed_at: float
    done_at: float
    worked_at: float = -math.inf
    queue: LastingQueue = field(default_factory=LastingQueue)
    equal_scrapes: int = 1
    """How many scrapes in a row were equal."""
    works_since: float | None = None
    before_work: Progress | None = None
    """The last scrape without work."""
    token_at: float | None = None
    served_at: float | None = None
    served_from: float | None = None
    prompted_from: float | None = None
    done_from: float | None = None
    asleep_since: float | None = None
    """When a scrape first reported that the engine is not awake, if the last one does."""
    woke_at: float = -math.inf
    _asleep_at: float = -math.inf
    """The last scrape that reported it."""

    @classmethod
    def first(cls, at: float, engine: EngineReading) -> EngineProgress:
        """Return what the first scrape shows."""
        known = cls(progress_of(engine), at, changed_at=at, done_at=at)
        known._note_work(at, engine)
        known._note_sleep(at, engine)
        return known

    def add(self, at: float, engine: EngineReading) -> None:
        """Take in the next scrape."""
        new, old = progress_of(engine), self.progress
        if new.generated > old.generated:
            self.token_at = at
        if (new.prompt, new.generated) != (old.prompt, old.generated):
            self.served_at, self.served_from = at, self.at
        if new.prompt > old.prompt:
            self.prompted_from = self.at
        computed = new._replace(arrivals=old.arrivals)
        if computed._replace(kv_cache_usage=old.kv_cache_usage) != old:
            self.worked_at = at
        if computed != old:
            self.done_at, self.done_from = at, self.at
        if new != old:
            self.changed_at, self.equal_scrapes = at, 0
        self.progress, self.at = new, at
        self.equal_scrapes += 1
        self._note_work(at, engine)
        self._note_sleep(at, engine)

    @property
    def has_token_of_work(self) -> bool:
        """Whether there was a token since the present work started, or its start was not seen."""
        before, now = self.before_work, self.progress
        return before is None or (before.prompt, before.generated) != (now.prompt, now.generated)

    def still_seconds(self, at: float, woke_at: float) -> float:
        """Return for how long an engine has had work without progress, since it woke up; 0 until that is certain."""
        if self.works_since is None or self.equal_scrapes < SCRAPES_UNTIL_STILL:
            return 0.0
        return at - max(self.changed_at, self.works_since, woke_at)

    def undone_seconds(self, at: float, woke_at: float) -> float:
        """Return for how long there has been work and nothing was computed, even if requests came and went."""
        return 0.0 if self.works_since is None else at - max(self.done_at, self.works_since, woke_at)

    @property
    def served(self) -> TokenSpan | None:
        """When the last tokens were computed."""
        if self.served_at is None or self.served_from is None:
            return None
        return TokenSpan(self.served_from, self.served_at, self.prompted_from)

    @property
    def slept_until(self) -> float:
        """When a scrape last reported that the engine is not awake, if the newest one reports that it is."""
        return self._asleep_at if self.asleep_since is None else -math.inf

    def _note_sleep(self, at: float, engine: EngineReading) -> None:
        if engine.gauges.get("awake", 1.0) > 0:
            if self.asleep_since is not None:
                self.asleep_since, self.woke_at = None, at
            return
        self._asleep_at = at
        if self.asleep_since is None:
            self.asleep_since = at

    def _note_work(self, at: float, engine: EngineReading) -> None:
        self.queue.note(at, *_queue_of(engine))
        if not has_work(engine):
            self.works_since, self.before_work = None, self.progress
        elif self.works_since is None:
            self.works_since = at
