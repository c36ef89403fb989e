# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine moves, by its pages.

vLLM records all of this when the engine core has made a step: what only arrives at the API server, or gives up there,
moves nothing. Of a request that a client gave up the front end knows without the core, so it does not count.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

from vllm_watch.state.sleep_reports import TokenSpan
from vllm_watch_parsers.scrape import EngineReading


FIRST_TOKEN_SECONDS = 300.0
"""How long the first requests after a start may take at least: kernels are compiled for them."""

PAGES_UNTIL_STILL = 3
"""So many pages must say the same before an engine stands still: two of them may be moments of two requests."""

_GAVE_UP = "abort"
_ASKED = ("prefix_cache_queries", "external_prefix_cache_queries", "mm_cache_queries", "preemptions")
_QUEUED = ("requests_running", "requests_waiting", "requests_deferred")


class Progress(NamedTuple):
    """
    What of an engine changes when it moves.

    `prompt` and `generated` are tokens. `done` is what else only changes when something was computed: steps with an
    output, the KV cache's use (which grows with each chunk of a long prompt, while every counter stands still) and
    finished requests. `stirs` are requests that come and go and what is looked up for them.
    """

    prompt: float
    generated: float
    done: tuple[float | None, ...]
    stirs: tuple[float | None, ...]

    @property
    def has_served(self) -> bool:
        """Whether the engine has computed anything for anybody since its server was started."""
        return self.prompt > 0 or self.generated > 0


def progress_of(engine: EngineReading) -> Progress:
    """Return what moves on one page; of a pooling model the prompt's tokens and the finished requests do."""
    steps = engine.histograms.get("iteration_tokens")
    finished = sum(count for reason, count in engine.requests_finished.items() if reason != _GAVE_UP)
    return Progress(
        engine.counters.get("prompt_tokens", 0.0),
        engine.counters.get("generation_tokens", 0.0),
        (steps.observations if steps else None, engine.gauges.get("kv_cache_usage_ratio"), finished),
        (*(engine.counters.get(name) for name in _ASKED), *(engine.gauges.get(name) for name in _QUEUED)),
    )


def has_work(engine: EngineReading) -> bool:
    """Tell whether an engine has something to compute: what only waits for something remote is nothing yet."""
    running, waiting, deferred = (engine.gauges.get(name, 0.0) for name in _QUEUED)
    return running > 0 or waiting > deferred


@dataclass(slots=True)
class EngineProgress:
    """
    How one engine has moved, page by page.

    `stirred_at` is when anything moved last, `done_at` when anything was computed, `works_since` when the work began
    that is there. Of the last movement of the tokens `served_at` is the page that showed it and `served_from` the one
    before: it came between them; `prompted_from` is the same of prompt tokens, `done_from` of all that is computed.
    `token_at` is when the last token was generated.
    """

    progress: Progress
    at: float
    stirred_at: float
    done_at: float
    pages: int = 1
    """So many pages have said the same."""
    works_since: float | None = None
    before_work: Progress | None = None
    """The last page without work."""
    token_at: float | None = None
    served_at: float | None = None
    served_from: float | None = None
    prompted_from: float | None = None
    done_from: float | None = None
    asleep_since: float | None = None
    """When a page first said that the engine is not awake, if the newest one says so."""
    woke_at: float = -math.inf
    _asleep_at: float = -math.inf
    """The last page that said so."""

    @classmethod
    def begin(cls, at: float, engine: EngineReading) -> EngineProgress:
        """Return what one page tells."""
        known = cls(progress_of(engine), at, stirred_at=at, done_at=at)
        known._note_work(at, engine)
        known._note_sleep(at, engine)
        return known

    def add(self, at: float, engine: EngineReading) -> None:
        """Take in the next page."""
        new, old = progress_of(engine), self.progress
        if new.generated > old.generated:
            self.token_at = at
        if (new.prompt, new.generated) != (old.prompt, old.generated):
            self.served_at, self.served_from = at, self.at
        if new.prompt > old.prompt:
            self.prompted_from = self.at
        if new._replace(stirs=old.stirs) != old:
            self.done_at, self.done_from = at, self.at
        if new != old:
            self.stirred_at, self.pages = at, 0
        self.progress, self.at = new, at
        self.pages += 1
        self._note_work(at, engine)
        self._note_sleep(at, engine)

    @property
    def has_token_of_work(self) -> bool:
        """Whether a token has come since the work began that is there; also where nobody saw it begin."""
        begun, now = self.before_work, self.progress
        return begun is None or (begun.prompt, begun.generated) != (now.prompt, now.generated)

    def still_seconds(self, at: float, woke_at: float) -> float:
        """Return for how long an engine that woke then has had work and not moved; 0 before that is certain."""
        if self.works_since is None or self.pages < PAGES_UNTIL_STILL:
            return 0.0
        return at - max(self.stirred_at, self.works_since, woke_at)

    def undone_seconds(self, at: float, woke_at: float) -> float:
        """Return for how long there has been work and nothing was computed, whatever came and went."""
        return 0.0 if self.works_since is None else at - max(self.done_at, self.works_since, woke_at)

    @property
    def served(self) -> TokenSpan | None:
        """The last tokens."""
        if self.served_at is None or self.served_from is None:
            return None
        return TokenSpan(self.served_from, self.served_at, self.prompted_from)

    @property
    def slept_until(self) -> float:
        """When a page said last that the engine is not awake, if the newest one says that it is."""
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
        if not has_work(engine):
            self.works_since, self.before_work = None, self.progress
        elif self.works_since is None:
            self.works_since = at
