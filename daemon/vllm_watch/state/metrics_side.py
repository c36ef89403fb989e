# SPDX-License-Identifier: Apache-2.0
"""What /metrics says: the last pages, whether they move, and whether the server was started again."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from vllm_watch.state.progress import EngineProgress
from vllm_watch.state.window import Window
from vllm_watch_parsers.metrics import EngineKey, EngineReading, MetricsReading
from vllm_watch_parsers.vocabulary import REQUIRED


INTERVALS_UNTIL_STALE = 3
SAME_START_SECONDS = 1.0
"""Start times no further apart are of one process."""


class ScrapeResult(NamedTuple):
    """
    One attempt to read /metrics.

    Args:
        at: When the answer was complete, or the attempt given up.
        duration: Seconds it took.
        reading: The page, or `None`.
        reason: ``ok``, or why there is no page, from `vllm_watch.sources.scrape.REASONS`.
        ahead: Seconds by which the wall clock was ahead of the clock that `at` is from.
    """

    at: float
    duration: float
    reading: MetricsReading | None
    reason: str
    ahead: float = 0.0


class ServerStart(NamedTuple):
    """When a server says that it was started: by its own clock, and by the one that scrapes are timed with."""

    said: float
    at: float


class MetricsSide:
    """Takes in one server's scrapes, in order."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.window = Window(interval)
        self.last: ScrapeResult | None = None
        self.failing_since: float | None = None
        self.progress: dict[EngineKey, EngineProgress] = {}
        self.refused: Counter[str] = Counter()
        self.dropped = 0
        """Engines, models and words that were over the limit, added up over the pages."""
        self.restarts = 0
        self.start: ServerStart | None = None

    def apply(self, result: ScrapeResult) -> None:
        """Take in an attempt."""
        if result.reading is None:
            if self.last is None or self.last.reason != result.reason:
                self.failing_since = result.at
            self.last = result
            return
        self.failing_since = None
        self.last = result
        self.refused.update(result.reading.refused)
        self.dropped += result.reading.dropped
        self._note_reset(result.reading)
        self._note_start(result.reading.process_start_seconds, result.ahead)
        self.window.add(result.at, result.reading)
        self._note_progress(result.at, result.reading)

    @property
    def reading(self) -> MetricsReading | None:
        """The newest page."""
        newest = self.window.newest
        return newest.reading if newest else None

    @property
    def read_at(self) -> float | None:
        """When the newest page was read."""
        newest = self.window.newest
        return newest.at if newest else None

    def is_recent(self, now: float) -> bool:
        """Whether the newest page is young enough to be the present."""
        read_at = self.read_at
        return read_at is not None and now - read_at <= INTERVALS_UNTIL_STALE * self._interval

    def is_fresh(self, now: float) -> bool:
        """Whether the newest page is recent and no later attempt has failed."""
        return self.is_recent(now) and self.last is not None and self.last.reading is not None

    def missing(self) -> dict[str, bool]:
        """Tell for each required quantity whether the newest page lacks it."""
        reading = self.reading
        if reading is None:
            return {}
        engines = list(reading.engines.values())
        return {name: not any(_has(engine, name) for engine in engines) for name in REQUIRED}

    def moved_since(self, moment: float) -> bool:
        """Whether any engine computed tokens after a moment."""
        return any(engine.served_at is not None and engine.served_at > moment for engine in self.progress.values())

    def _note_reset(self, reading: MetricsReading) -> None:
        """Begin anew if the counters did: the server was started again, or it made its metrics anew."""
        last = self.reading
        if last is None:
            return
        has_fallen = any(
            _fell(engine, reading.engines[key]) for key, engine in last.engines.items() if key in reading.engines
        )
        old_start, new_start = last.process_start_seconds, reading.process_start_seconds
        if old_start is not None and new_start is not None:
            is_restart = abs(new_start - old_start) > SAME_START_SECONDS
        else:
            is_restart = has_fallen
        self.restarts += is_restart
        if is_restart or has_fallen:
            self.window.clear()
            self.progress.clear()

    def _note_start(self, said: float | None, ahead: float) -> None:
        """Keep when the server was started, as it was when it was first said: wall clocks are corrected later."""
        if not said:
            self.start = None
        elif self.start is None or abs(said - self.start.said) > SAME_START_SECONDS:
            self.start = ServerStart(said, said - ahead)

    def _note_progress(self, at: float, reading: MetricsReading) -> None:
        for key in [key for key in self.progress if key not in reading.engines]:
            del self.progress[key]
        for key, engine in reading.engines.items():
            known = self.progress.get(key)
            if known is None:
                self.progress[key] = EngineProgress.begin(at, engine)
            else:
                known.add(at, engine)


def _fell(old: EngineReading, new: EngineReading) -> bool:
    return any(new.counters.get(name, value) < value for name, value in old.counters.items())


def _has(engine: EngineReading, name: str) -> bool:
    return name in engine.gauges or name in engine.counters or name in engine.histograms
