# SPDX-License-Identifier: Apache-2.0
"""What /metrics says: the last pages, whether they move, and whether the server was started again."""

from __future__ import annotations

import math

from collections import Counter, deque
from typing import NamedTuple

from vllm_watch.catalog.reasons import MetricsReason
from vllm_watch.state.http_labels import PAUSING, WAKE_UP
from vllm_watch.state.progress import EngineProgress
from vllm_watch.state.sleeping import Sleep
from vllm_watch.state.window import Window
from vllm_watch_parsers.events import Pause
from vllm_watch_parsers.metric_names import HISTOGRAMS, REQUIRED
from vllm_watch_parsers.scrape import EngineKey, EngineReading, MetricsReading


INTERVALS_UNTIL_STALE = 3
NOTHING_LISTENS: MetricsReason = "refused"
NO_ANSWERS: frozenset[MetricsReason] = frozenset(
    {NOTHING_LISTENS, "timeout", "http_error", "tls_error", "name_not_resolved", "unreachable"}
)
"""Why there is no page where no server has answered: one of them may be a gateway's word."""

SAME_START_SECONDS = 1.0
"""Start times no further apart are of one process."""

SEVERAL_SERVERS: MetricsReason = "several_servers"
ALTERNATION_SECONDS = 600.0
"""For so long after a start time came back several servers are taken to answer at one address."""

REMEMBERED_STARTS = 16

_PAUSE, _RESUME = PAUSING


class ScrapeResult(NamedTuple):
    """
    One attempt to read /metrics.

    Args:
        at: When the answer was complete, or the attempt given up.
        duration: Seconds it took.
        reading: The page, or `None`.
        reason: ``ok``, or why there are no values.
        ahead: Seconds by which the wall clock was ahead of the clock that `at` is from.
    """

    at: float
    duration: float
    reading: MetricsReading | None
    reason: MetricsReason
    ahead: float = 0.0


class ServerStart(NamedTuple):
    """
    When a server says that it was started: by its own clock, and by the one that scrapes are timed with.

    It is possible if that was not after it was first said.
    """

    said: float
    at: float
    is_possible: bool


class ScrapeSource:
    """Takes in one server's scrapes, in order."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.window = Window(interval)
        self.last: ScrapeResult | None = None
        self.refused_since: float | None = None
        """When nothing listened first since the last page; `None` if something has listened ever since."""
        self.refused_at = -math.inf
        """When nothing listened last."""
        self.progress: dict[EngineKey, EngineProgress] = {}
        self.repose = Sleep()
        """What the server's own count of ``/pause`` and ``/resume`` tells."""
        self.refused: Counter[str] = Counter()
        self.dropped = 0
        """Engines, models and words that were over the limit, added up over the pages."""
        self.long_lines = 0
        """Lines that were passed over for their length, added up over the pages."""
        self.restarts = 0
        self.start: ServerStart | None = None
        self._starts: deque[float] = deque(maxlen=REMEMBERED_STARTS)
        """What servers have said of their starts, each once, the present one last."""
        self._alternated_at: float | None = None

    def apply(self, result: ScrapeResult) -> None:
        """Take in an attempt."""
        if result.reading is not None and self._alternates(result.at, result.reading.process_start_seconds):
            self._forget_pages()
            result = result._replace(reading=None, reason=SEVERAL_SERVERS)
        if result.reading is None:
            self._note_refusal(result)
            self.last = result
            return
        self.refused_since = None
        self.last = result
        self.refused.update(result.reading.refused)
        self.dropped += result.reading.dropped
        self.long_lines += result.reading.long_lines
        self._note_reset(result.reading)
        self._note_start(result)
        self._note_calls(result.at, result.reading)
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

    @property
    def is_before_first_request(self) -> bool:
        """Whether the newest page is that of a server which nobody has asked for anything yet."""
        return self.reading is not None and self.reading.is_before_first_request

    def is_recent(self, now: float) -> bool:
        """Whether the newest page is young enough to be the present."""
        read_at = self.read_at
        return read_at is not None and now - read_at <= INTERVALS_UNTIL_STALE * self._interval

    def is_fresh(self, now: float) -> bool:
        """Whether the newest page is recent and no later attempt has failed."""
        return self.is_recent(now) and self.last is not None and self.last.reading is not None

    def missing(self) -> dict[str, bool]:
        """
        Tell for each required quantity whether the newest page lacks it.

        Before anything was generated histograms are not missed, which V0 and the Rust front end show with their first
        observation, and on a page before its first request nothing is.
        """
        reading = self.reading
        if reading is None:
            return {}
        engines = list(reading.engines.values())
        is_unused = not any(engine.counters.get("generation_tokens") for engine in engines)
        lazy = {*REQUIRED} if reading.is_before_first_request else {*HISTOGRAMS} if is_unused else set()
        return {name: name not in lazy and not any(_has(engine, name) for engine in engines) for name in REQUIRED}

    def moved_since(self, moment: float) -> bool:
        """Whether any engine computed anything after a moment: what a page tells may be from just before it."""
        return any(engine.done_from is not None and engine.done_from >= moment for engine in self.progress.values())

    def _note_refusal(self, result: ScrapeResult) -> None:
        """Keep since when nothing listens; of answers in between a gateway's are none."""
        if result.reason == NOTHING_LISTENS:
            self.refused_at = result.at
            if self.refused_since is None:
                self.refused_since = result.at
        elif result.reason not in NO_ANSWERS:
            self.refused_since = None

    @property
    def is_unanswered(self) -> bool:
        """Whether the last attempt got no answer from a server."""
        return self.last is not None and self.last.reason in NO_ANSWERS

    def _alternates(self, at: float, said: float | None) -> bool:
        """
        Whether several servers answer at one address: a start time that comes back is no restart.

        It is held against them until they have not taken turns for minutes.
        """
        if said is not None and not (self._starts and _is_same_start(self._starts[-1], said)):
            earlier = [start for start in self._starts if not _is_same_start(start, said)]
            if len(earlier) < len(self._starts):
                self._alternated_at = at
            self._starts = deque([*earlier, said], maxlen=REMEMBERED_STARTS)
        return self._alternated_at is not None and at - self._alternated_at < ALTERNATION_SECONDS

    def _forget_pages(self) -> None:
        self.window.clear()
        self.progress.clear()
        self.repose.forget()

    def _note_reset(self, reading: MetricsReading) -> None:
        """Begin anew if the counters did: the server was started again, or it made its metrics anew."""
        last = self.reading
        if last is None:
            return
        has_fallen = reading.is_before_first_request and bool(last.engines)
        has_fallen |= any(
            _fell(engine, reading.engines[key]) for key, engine in last.engines.items() if key in reading.engines
        )
        old_start, new_start = last.process_start_seconds, reading.process_start_seconds
        if old_start is not None and new_start is not None:
            is_restart = not _is_same_start(old_start, new_start)
        else:
            is_restart = has_fallen
        self.restarts += is_restart
        if is_restart or has_fallen:
            self._forget_pages()

    def _note_start(self, result: ScrapeResult) -> None:
        """Keep when the server was started, as it was when it was first said: wall clocks are corrected later."""
        said = result.reading.process_start_seconds if result.reading is not None else None
        if not said:
            self.start = None
        elif self.start is None or not _is_same_start(said, self.start.said):
            at = said - result.ahead
            self.start = ServerStart(said, at, is_possible=at <= result.at)

    def _note_calls(self, at: float, reading: MetricsReading) -> None:
        """
        Note that the operator has paused or resumed the server since the last page.

        Totals tell nothing of that: who is paused twice is paused, and who is resumed twice is not.
        """
        before = self.reading
        if before is None:
            if _calls(reading, _PAUSE) > _calls(reading, _RESUME):
                self.repose.begin_paused()
            return
        moved = {handler for handler in (*PAUSING, WAKE_UP) if _calls(reading, handler) > _calls(before, handler)}
        self.repose.apply_calls(at, [kind for handler, kind in PAUSING.items() if handler in moved])
        if WAKE_UP in moved and all(engine.gauges.get("awake", 1.0) > 0 for engine in reading.engines.values()):
            self.repose.apply(at, Pause("resumed"))

    def _note_progress(self, at: float, reading: MetricsReading) -> None:
        for key in [key for key in self.progress if key not in reading.engines]:
            del self.progress[key]
        for key, engine in reading.engines.items():
            known = self.progress.get(key)
            if known is None:
                self.progress[key] = EngineProgress.begin(at, engine)
            else:
                known.add(at, engine)


def _calls(reading: MetricsReading, handler: str) -> float:
    """Return how often an operation was asked for and done."""
    done = ("POST", handler, "2xx")
    return sum(count for request, count in reading.http_requests.items() if request == done)


def _is_same_start(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_START_SECONDS


def _fell(old: EngineReading, new: EngineReading) -> bool:
    return any(new.counters.get(name, value) < value for name, value in old.counters.items())


def _has(engine: EngineReading, name: str) -> bool:
    return name in engine.gauges or name in engine.counters or name in engine.histograms
