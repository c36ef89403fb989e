# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine makes progress, by its scrapes.

Progress is work that is done: tokens, engine steps, finished requests, KV blocks that are transferred, and KV blocks
that fill during a prompt. vLLM counts these when the engine core finishes a step. Preemptions, requests that come and
go, and a KV cache whose use swings are no progress: an engine that does nothing else is in a livelock. A request that
its client cancelled is none either: the front end counts it without the engine core.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_watch.daemon.state.sleep_reports import TokenSpan
from vllm_watch.daemon.state.window import LastingQueue
from vllm_watch_parsers.kv_transfer import BYTES, TRANSFERS
from vllm_watch_parsers.readings import EngineReading


_AROUND, _COMPARED = 3, 5
"""The scrapes around the end of progress (two intervals), and those with as long before."""

SCRAPES_UNTIL_STILL = 3
"""An engine makes no progress once this many scrapes show none: two may be moments of two requests."""

_GAVE_UP = "abort"
_ASKED = ("prefix_cache_queries", "external_prefix_cache_queries", "mm_cache_queries", "preemptions")
_QUEUED = ("requests_running", "requests_waiting", "requests_deferred")
_MOVED = frozenset({TRANSFERS, BYTES})
"""What KV connectors count once blocks were transferred: failures, lookups and what was skipped are no progress."""


class Progress(NamedTuple):
    """
    What an engine has done, by one scrape.

    `prompt` and `generated` are tokens, `done` steps with an output and finished requests, `transferred` what its KV
    connectors have counted of blocks that moved.
    """

    prompt: float
    generated: float
    done: tuple[float | None, ...]
    transferred: tuple[float, ...]

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
        tuple(count for key, count in engine.kv.counters.items() if key.series in _MOVED),
    )


def _commotion(engine: EngineReading) -> tuple[float | None, ...]:
    """Return what also moves without progress: requests that come and go, lookups for them, the KV cache's use."""
    return (
        *(engine.counters.get(name) for name in _ASKED),
        *(engine.gauges.get(name) for name in (*_QUEUED, "kv_cache_usage_ratio")),
    )


def has_work(engine: EngineReading) -> bool:
    """
    Return whether an engine has something to do.

    A request that waits for something remote counts where that is a KV connector, whose counters show whether it
    moves. Others wait for an adapter, a grammar or the next input of their session, which may take as long as it likes.
    """
    running, waiting, deferred = _queue_of(engine)
    return running > 0 or waiting > (0 if _has_connector(engine) else deferred)


def _has_connector(engine: EngineReading) -> bool:
    return any(engine.kv.counters.values()) or bool(engine.counters.get("external_prefix_cache_queries"))


def _queue_of(engine: EngineReading) -> tuple[float, float, float]:
    running, waiting, deferred = (engine.gauges.get(name, 0.0) for name in _QUEUED)
    return running, waiting, deferred


@dataclass(slots=True)
class EngineProgress:
    """
    The progress of one engine, scrape by scrape.

    `done_at` is when it made progress last, `stirred_at` when anything moved without progress, `worked_at` when tokens,
    steps or finished requests were counted, `works_since` when the present work started. The last tokens came between
    the scrapes of `served_from` and `served_at`; `prompted_from` is the first of these for prompt tokens, `done_from`
    for all progress. `token_at` is when the last token was generated.
    """

    progress: Progress
    at: float
    done_at: float
    stirred_at: float
    worked_at: float = -math.inf
    queue: LastingQueue = field(default_factory=LastingQueue)
    still_scrapes: int = 1
    """How many scrapes in a row show no progress."""
    is_remote: bool = False
    """Whether nothing runs, and requests wait for a KV connector."""
    aborted: float = 0.0
    """The requests that were aborted or given up just when progress ended, beyond those of as long before."""
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
    _kv_cache_usage: float = math.inf
    _gone: tuple[float, ...] = ()
    """The requests that were aborted or given up, by each of the last scrapes."""
    _preemptions: float = 0.0
    _commotion: tuple[float | None, ...] = ()

    @classmethod
    def first(cls, at: float, engine: EngineReading, given_up: float = 0.0) -> EngineProgress:
        """Return what the first scrape shows; `given_up` are the server's requests whose clients hung up."""
        known = cls(progress_of(engine), at, done_at=at, stirred_at=at)
        known._commotion = _commotion(engine)
        known._note(at, engine, given_up)
        return known

    def add(self, at: float, engine: EngineReading, given_up: float = 0.0) -> None:
        """Take in the next scrape."""
        new, old = progress_of(engine), self.progress
        if new.generated > old.generated:
            self.token_at = at
        if (new.prompt, new.generated) != (old.prompt, old.generated):
            self.served_at, self.served_from = at, self.at
        if new.prompt > old.prompt:
            self.prompted_from = self.at
        if new != old:
            self.worked_at = at
        if new != old or self._is_filling(engine):
            self.done_at, self.done_from, self.still_scrapes = at, self.at, 0
        self.progress, self.at = new, at
        self._note(at, engine, given_up)
        if self.still_scrapes == 1:
            before, since, now = self._gone[0], self._gone[-_AROUND:][0], self._gone[-1]
            self.aborted = (now - since) - (since - before)
        commotion = _commotion(engine)
        if commotion != self._commotion:
            self.stirred_at, self._commotion = at, commotion
        self.still_scrapes += 1

    def _is_filling(self, engine: EngineReading) -> bool:
        """
        Return whether the KV cache is fuller than at the last scrape: a prompt is computed.

        While requests are preempted it is filled again and again, for nothing.
        """
        is_fuller = engine.gauges.get("kv_cache_usage_ratio", 0.0) > self._kv_cache_usage
        return is_fuller and engine.counters.get("preemptions", 0.0) == self._preemptions

    @property
    def has_token_of_work(self) -> bool:
        """Whether there was a token since the present work started, or its start was not seen."""
        before, now = self.before_work, self.progress
        return before is None or (before.prompt, before.generated) != (now.prompt, now.generated)

    def still_seconds(self, at: float, woke_at: float) -> float:
        """Return for how long an engine has had work without progress, since it woke up; 0 until that is certain."""
        if self.works_since is None or self.still_scrapes < SCRAPES_UNTIL_STILL:
            return 0.0
        return at - max(self.done_at, self.works_since, woke_at)

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

    def _note(self, at: float, engine: EngineReading, given_up: float) -> None:
        self._gone = (*self._gone, engine.requests_finished.get(_GAVE_UP, 0.0) + given_up)[-_COMPARED:]
        self._kv_cache_usage = engine.gauges.get("kv_cache_usage_ratio", math.inf)
        self._preemptions = engine.counters.get("preemptions", 0.0)
        self._note_work(at, engine)
        self._note_sleep(at, engine)

    def _note_sleep(self, at: float, engine: EngineReading) -> None:
        if engine.gauges.get("awake", 1.0) > 0:
            if self.asleep_since is not None:
                self.asleep_since, self.woke_at = None, at
            return
        self._asleep_at = at
        if self.asleep_since is None:
            self.asleep_since = at

    def _note_work(self, at: float, engine: EngineReading) -> None:
        running, waiting, deferred = _queue_of(engine)
        self.queue.note(at, running, waiting, deferred)
        self.is_remote = not running and deferred > 0 and _has_connector(engine)
        if not has_work(engine):
            self.works_since, self.before_work = None, self.progress
        elif self.works_since is None:
            self.works_since = at
