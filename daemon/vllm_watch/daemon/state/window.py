# SPDX-License-Identifier: Apache-2.0
"""
Rates, ratios and quantiles from counters, over the last 10 to 60 seconds.

A statistics line in the log covers about 10 s and the most recent requests. A counter covers the whole time since the
server's start. The increase of a counter over a short window means the same as the log line.
"""

from __future__ import annotations

import math

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.front_ends import RAY_REPORT_SECONDS
from vllm_watch_parsers.readings import EngineReading, Histogram, MetricsReading


MIN_SECONDS = 10.0
RAY_MIN_SECONDS = 3 * RAY_REPORT_SECONDS
"""Ray's agent repeats values for seconds: the change over a shorter period could be twice what it was, or nothing."""

MAX_SECONDS = 60.0
MAX_INTERVALS = 3
"""If scrapes come less often than every 20 s, each is compared with those up to this many intervals before."""

MAX_READINGS = 256
"""The most scrapes that are kept, even if the clock does not move: one a second makes a quarter of them in a minute."""

_JITTER = 0.9

QUANTILES = (0.5, 0.9, 0.95, 0.99)

STAGES = {
    "time_to_first_token": "time_to_first_token_seconds",
    "inter_token": "inter_token_latency_seconds",
    "time_per_output_token": "time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "queue_time_seconds",
    "prefill": "prefill_time_seconds",
    "decode": "decode_time_seconds",
}
"""The stages of a request whose quantiles are shown, and the histograms they are taken from."""

_HISTOGRAMS = frozenset(STAGES.values())
"""Of earlier readings only these histograms are kept: a dozen readings of 200 servers are most of what memory holds."""


def lasts(seconds: float, least: float = MIN_SECONDS) -> bool:
    """Return whether a period is long enough: scrapes every 5 s come a few milliseconds early, and 9.99 s is 10 s."""
    return seconds >= least * _JITTER


@dataclass(slots=True)
class LastingQueue:
    """
    The queue of one engine: it lasts once each reading of 10 s had one, until none of as long has.

    Of the first reading the moment is all that is known.
    """

    lasts: bool | None = None
    _otherwise_since: float | None = None
    """The first of the last readings that all say the contrary."""

    def note(self, at: float, running: float, waiting: float, deferred: float) -> None:
        """
        Take in the next reading; an engine without any request has no queue, whatever was before.

        Args:
            at: When it was taken.
            running: How many requests run.
            waiting: How many wait.
            deferred: How many of these wait for something else than capacity.
        """
        is_queued = waiting > deferred
        if self.lasts is None:
            self.lasts = is_queued
        if is_queued == self.lasts:
            self._otherwise_since = None
            return
        if self._otherwise_since is None:
            self._otherwise_since = at
        if lasts(at - self._otherwise_since) or not running + waiting:
            self.lasts, self._otherwise_since = is_queued, None


class Span(NamedTuple):
    """
    An engine at the two ends of a period.

    `old` has the counters, the positions and the histograms of `STAGES` alone.
    """

    seconds: float
    old: EngineReading
    new: EngineReading

    def increase(self, counter: str) -> float | None:
        """Return how much a counter grew, or `None` if either end does not have it, or it was reset between them."""
        old, new = self.old.counters.get(counter), self.new.counters.get(counter)
        return None if old is None or new is None or new < old else new - old


class Window:
    """
    The readings of the last minute, of one life of a server.

    Args:
        interval: Seconds from one scrape to the next, where they are regular.
    """

    def __init__(self, interval: float = 0.0) -> None:
        self.newest: MetricsReading | None = None
        """The last reading."""
        self.at = -math.inf
        """When it was taken."""
        self._earlier: deque[tuple[float, Mapping[EngineKey, EngineReading]]] = deque(maxlen=MAX_READINGS - 1)
        """When those before it were taken, and what changes since then are taken from."""
        self._spans: dict[EngineKey, tuple[Span, ...]] = {}
        """The periods up to the newest reading, of the engines that were asked for."""
        self._longest = max(MAX_SECONDS, MAX_INTERVALS * interval) / _JITTER

    def __len__(self) -> int:
        return len(self._earlier) + (self.newest is not None)

    def engine(self, key: EngineKey) -> EngineReading | None:
        """Return an engine in the last reading, or `None` if it is not there."""
        return None if self.newest is None else self.newest.engines.get(key)

    def add(self, at: float, reading: MetricsReading) -> None:
        """Take in a reading, and drop those that no window needs any more."""
        self._spans.clear()
        if self.newest is not None:
            self._earlier.append((self.at, _earlier(self.newest)))
        self.newest, self.at = reading, at
        while len(self._earlier) > 1 and at - self._earlier[1][0] >= MAX_SECONDS * _JITTER:
            self._earlier.popleft()

    def clear(self) -> None:
        """Forget: the server was started again, and its counters with it."""
        self._spans.clear()
        self._earlier.clear()
        self.newest = None

    def spans(self, key: EngineKey) -> tuple[Span, ...]:
        """
        Return the periods that end now and last 10 s or more, through Ray 30 s, the shortest first.

        None lasts much longer than a minute, or three intervals: counts from a time without scrapes are not recent.
        """
        known = self._spans.get(key)
        if known is None:
            known = self._spans[key] = tuple(self._find_spans(key))
        return known

    def _find_spans(self, key: EngineKey) -> Iterator[Span]:
        new = self.engine(key)
        if new is None:
            return
        for at, engines in reversed(self._earlier):
            old, seconds = engines.get(key), self.at - at
            if old is not None and self.is_span(seconds) and seconds <= self._longest:
                yield Span(seconds, old, new)

    def is_span(self, seconds: float) -> bool:
        """Return whether a period is long enough for changes: 10 s, through Ray 30 s."""
        is_of_ray = self.newest is not None and self.newest.kind == "ray_vllm"
        return lasts(seconds, RAY_MIN_SECONDS if is_of_ray else MIN_SECONDS)

    def has_span(self, key: EngineKey) -> bool:
        """Return whether there are enough readings for changes."""
        return bool(self.spans(key))

    def rate(self, key: EngineKey, counter: str) -> float | None:
        """Return a counter's increase per second."""
        span = next(iter(self.spans(key)), None)
        increase = span.increase(counter) if span else None
        return None if span is None or increase is None else increase / span.seconds

    def ratio(self, key: EngineKey, part: str, whole: str) -> float | None:
        """Return the ratio of two counters' increases, over the shortest period in which the whole grew."""
        for span in self.spans(key):
            all_of_it, some = span.increase(whole), span.increase(part)
            if all_of_it is None or some is None:
                return None
            if all_of_it > 0:
                return some / all_of_it
        return None

    def position_ratios(self, key: EngineKey) -> tuple[float, ...]:
        """Return the share of drafts whose token at position 0, 1, 2 … was accepted."""
        for span in self.spans(key):
            drafts = span.increase("drafts")
            if drafts is None or len(span.old.position_accepted) != len(span.new.position_accepted):
                return ()
            if drafts > 0:
                pairs = zip(span.old.position_accepted, span.new.position_accepted, strict=True)
                ratios = tuple(min((new - old) / drafts, 1.0) for old, new in pairs)
                return ratios if min(ratios, default=0.0) >= 0 else ()
        return ()

    def recent(self, key: EngineKey, histogram: str) -> Histogram | None:
        """Return what a histogram of `STAGES` observed in the last minute, `None` if that is nothing."""
        spans = self.spans(key)
        if not spans:
            return None
        span = spans[-1]
        old, new = span.old.histograms.get(histogram), span.new.histograms.get(histogram)
        if old is None or new is None or old.bounds != new.bounds or new.sum < old.sum:
            return None
        counts = tuple(map(sub, new.counts, old.counts))
        if min(counts) < 0 or counts[-1] == 0:
            return None
        return Histogram(new.bounds, counts, new.sum - old.sum, new.is_estimate)


def _earlier(reading: MetricsReading) -> Mapping[EngineKey, EngineReading]:
    return {
        key: EngineReading(
            gauges={},
            counters=engine.counters,
            histograms={name: each for name, each in engine.histograms.items() if name in _HISTOGRAMS},
            requests_finished={},
            position_accepted=engine.position_accepted,
        )
        for key, engine in reading.engines.items()
    }
