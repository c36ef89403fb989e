# SPDX-License-Identifier: Apache-2.0
"""What /metrics reports: the last scrapes, whether they show progress, and whether the server was started again."""

from __future__ import annotations

import math

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import load_sample
from vllm_watch.daemon.capacity.tracker import CapacityTracker
from vllm_watch.daemon.catalog.reasons import MetricsReason
from vllm_watch.daemon.state.progress import EngineProgress
from vllm_watch.daemon.state.sleep_reports import ScrapedSleep
from vllm_watch.daemon.state.step_times import StepTimes, scraped_step
from vllm_watch.daemon.state.window import Window
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.metric_names import COUNTERS, HISTOGRAMS, INFERENCE_HANDLERS, REQUIRED
from vllm_watch_parsers.readings import EngineReading, MetricsReading, Unreadable


SAME_START_SECONDS = 1.0
"""Start times no further apart are those of one process."""

ALTERNATION_SECONDS = 600.0
"""For this long after an earlier start time came back, several servers are assumed to answer at one address."""

REMEMBERED_STARTS = 16

ProcessName = tuple[tuple[str, str], ...]
"""The labels that tell one server's series from another's; empty where there are none."""


class ServerStart(NamedTuple):
    """
    When a server was started.

    Args:
        reported: By its own clock.
        at: By the clock that scrapes are timed with.
        is_possible: Whether that was not after the scrape that reported it first.
    """

    reported: float
    at: float
    is_possible: bool


class ScrapedProcess:
    """Takes in the start times that one address reports, scrape by scrape."""

    def __init__(self) -> None:
        self.start: ServerStart | None = None
        """The start of the process that answers now, if it reports one."""
        self._starts: tuple[float, ...] = ()
        """Start times that were reported, each once, the present one last."""
        self.name: ProcessName = ()
        """What tells the process that answers now from others on the same page, if there are labels that do."""
        self._names: tuple[ProcessName, ...] = ()
        self._alternated_at: float | None = None

    def alternates(self, at: float, reported: float | None, name: ProcessName = ()) -> bool:
        """
        Take in a scrape's start time and its process's name; return whether several servers answer at one address.

        A start time that comes back is no restart, neither is a name that does. The address is taken to be shared until
        they have not taken turns for minutes.
        """
        if name and name != self.name:
            others = tuple(known for known in self._names if known != name)
            if len(others) < len(self._names):
                self._alternated_at = at
            self._names = (*others, name)[-REMEMBERED_STARTS:]
            self.name = name
        if reported is not None and not (self._starts and is_same_start(self._starts[-1], reported)):
            earlier = [start for start in self._starts if not is_same_start(start, reported)]
            if len(earlier) < len(self._starts):
                self._alternated_at = at
            self._starts = (*earlier, reported)[-REMEMBERED_STARTS:]
        return self._alternated_at is not None and at - self._alternated_at < ALTERNATION_SECONDS

    def note_start(self, at: float, reported: float | None, ahead: float) -> None:
        """
        Keep the start, with the clocks as they were when it was first reported: they are corrected later.

        Args:
            at: When the scrape was complete.
            reported: The start time in it.
            ahead: Seconds by which the wall clock was ahead of the clock that `at` is from.
        """
        if not reported:
            self.start = None
        elif self.start is None or not is_same_start(reported, self.start.reported):
            start = reported - ahead
            self.start = ServerStart(reported, start, is_possible=start <= at)

    def started_by(self, moment: float) -> float:
        """Return when the server was started, by the clock of scrapes: at the latest at a moment."""
        return self.start.at if self.start is not None and self.start.is_possible else moment

    def was_started_after(self, moment: float) -> bool:
        """Return whether the server reports a start after a moment, by a clock that can be right."""
        return self.start is not None and self.start.is_possible and moment < self.start.at


def is_same_start(one: float, other: float) -> bool:
    """Return whether two start times are of one process."""
    return abs(one - other) <= SAME_START_SECONDS


INTERVALS_UNTIL_STALE = 3
NOTHING_LISTENS: MetricsReason = "refused"
NO_ANSWERS: frozenset[MetricsReason] = frozenset(
    {NOTHING_LISTENS, "timeout", "http_error", "tls_error", "name_not_resolved", "unreachable"}
)
"""Why a scrape failed where no vLLM server has answered: some of these may come from a gateway."""

SEVERAL_SERVERS: MetricsReason = "several_servers"


class ScrapeResult(NamedTuple):
    """
    One attempt to read /metrics.

    Args:
        at: When the answer was complete, or the attempt given up.
        duration: Seconds it took.
        reading: What the server reports, or `None`.
        reason: ``ok``, or why there is nothing.
        ahead: Seconds by which the wall clock was ahead of the clock that `at` is from.
    """

    at: float
    duration: float
    reading: MetricsReading | None
    reason: MetricsReason
    ahead: float = 0.0


def scrape_result(at: float, duration: float, reading: MetricsReading | Unreadable, ahead: float = 0.0) -> ScrapeResult:
    """Return the result of an attempt that got a whole body: what that reports, or why it cannot be read."""
    if isinstance(reading, Unreadable):
        return ScrapeResult(at, duration, None, reading.reason)
    return ScrapeResult(at, duration, reading, reading.reason, ahead)


_IN_FLIGHT = ("requests_running", "requests_waiting")


def _in_flight(reading: MetricsReading) -> float:
    """Return how many requests a server has at present: their access lines may still be unread."""
    return sum(engine.gauges.get(name, 0.0) for engine in reading.engines.values() for name in _IN_FLIGHT)


_ANSWERED, _FAILED_STATUS = "2xx", "5xx"
_FAILED = "error"

_COPIES = "request_params_n"
"""One request of the HTTP server may ask for several answers, of which the engine finishes each by itself."""


class GivenUp:
    """
    Counts the requests of one life of a server that gave up, scrape by scrape.

    No counter of vLLM has the clients that hung up (its reason ``abort`` reads 0 for them). Its HTTP server counts a
    request when its answer has ended, as 2xx also if the client ended it; the engine counts those that finished. So
    what the HTTP server has counted beyond the engine was given up. An answer that has just finished may not have ended
    yet: the difference may be too small for a moment, never too large. So it never falls.
    """

    def __init__(self) -> None:
        self._most: float | None = None
        self._last: float | None = None
        self._is_inexact = False

    @property
    def count(self) -> float | None:
        """How many; `None` where the two counts cannot be compared: several prompts in one HTTP request."""
        return None if self._is_inexact else self._most

    @property
    def difference(self) -> float:
        """What the last scrape has counted of answers beyond finished requests; it may be too small for a moment."""
        return self._last or 0.0

    def note(self, reading: MetricsReading) -> None:
        """Take in a scrape."""
        if not reading.http_requests or not reading.engines:
            return
        failed = _answered(reading, _FAILED_STATUS)
        errors = sum(engine.requests_finished.get(_FAILED, 0.0) for engine in reading.engines.values())
        # A stream that fails in the engine has been answered 200 before; others have a status of their own.
        finished = sum(_finished(engine) for engine in reading.engines.values()) + max(errors - failed, 0.0)
        difference = _answered(reading, _ANSWERED) - finished
        if not _in_flight(reading) and self._last is not None:
            # Nothing is about to end, so the difference is what it is, but for what failed after it was finished.
            self._is_inexact |= max(difference, self._last) + failed < 0
        # Several API servers write what they count at moments of their own: two scrapes must say it.
        if self._last is not None:
            self._most = max(self._most or 0.0, min(difference, self._last))
        self._last = difference


def _answered(reading: MetricsReading, status: str) -> float:
    return sum(
        count
        for request, count in reading.http_requests.items()
        if request.method == "POST" and request.handler in INFERENCE_HANDLERS and request.status == status
    )


def _finished(engine: EngineReading) -> float:
    finished = sum(count for reason, count in engine.requests_finished.items() if reason != _FAILED)
    copies = engine.histograms.get(_COPIES)
    return finished - (copies.sum - copies.observations if copies is not None else 0.0)


class ScrapeSource:
    """Takes in one server's scrapes, in order."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.window = Window(interval)
        self.last: ScrapeResult | None = None
        self.process = ScrapedProcess()
        self.restarts = 0
        self.progress: dict[EngineKey, EngineProgress] = {}
        self.capacity: dict[EngineKey, CapacityTracker] = {}
        """What each engine has shown of its capacity since its server was started."""
        self.step_times: dict[EngineKey, StepTimes] = {}
        self.kv_cache_tokens: Mapping[str, int] = {}
        """The size of each engine's KV cache in tokens, as far as the log has it."""
        self.given_up = GivenUp()
        self.sleep = ScrapedSleep()
        self.refused_since: float | None = None
        """When nothing listened for the first time since the last scrape; `None` if something has listened since."""
        self.refused_at = -math.inf
        """When nothing listened for the last time."""
        self.out_of_range: Counter[str] = Counter()
        """Values out of range, by quantity."""
        self.dropped = 0
        """Engines, models and values of labels that were over the limit, added up over the scrapes."""
        self.long_lines = 0
        """Lines that were skipped for their length, added up over the scrapes."""

    def apply(self, result: ScrapeResult) -> None:
        """Take in an attempt."""
        reading, former = result.reading, self.process.name
        start, name = (None, ()) if reading is None else (reading.process_start_seconds, reading.process)
        if reading is not None and self.process.alternates(result.at, start, name):
            self._forget_readings()
            result, reading = result._replace(reading=None, reason=SEVERAL_SERVERS), None
        self.last = result
        if reading is None:
            self._note_refusal(result)
            return
        self.refused_since = None
        self._count(reading)
        self._note_restart(reading, is_other=bool(former) and self.process.name != former)
        self.process.note_start(result.at, reading.process_start_seconds, result.ahead)
        before = self.reading.http_requests if self.reading is not None else None
        self.sleep.note_operations(result.at, reading.server_values)
        is_awake = all(engine.gauges.get("awake", 1.0) > 0 for engine in reading.engines.values())
        self.sleep.note_calls(result.at, before, reading.http_requests, is_awake=is_awake)
        self._note_step_times(result.at, reading)
        self.window.add(result.at, reading)
        self.given_up.note(reading)
        self._note_progress(result.at, reading)

    @property
    def reading(self) -> MetricsReading | None:
        """The last reading."""
        return self.window.newest

    @property
    def read_at(self) -> float | None:
        """When the last reading was taken."""
        return None if self.window.newest is None else self.window.at

    @property
    def is_before_first_request(self) -> bool:
        """Whether the last reading is that of a server which has had no request yet."""
        return self.reading is not None and self.reading.is_before_first_request

    def is_recent(self, now: float) -> bool:
        """Whether the last reading is recent enough to be the present."""
        read_at = self.read_at
        return read_at is not None and now - read_at <= INTERVALS_UNTIL_STALE * self._interval

    def is_fresh(self, now: float) -> bool:
        """Whether the last reading is recent and no later attempt has failed."""
        return self.is_recent(now) and self.last is not None and self.last.reading is not None

    def missing(self) -> dict[str, bool]:
        """
        Return for each required quantity whether the last reading lacks it.

        Before anything was generated, histograms do not count as missing (V0 and the Rust front end show them with the
        first observation), through Ray neither do counters, and where no engine is shown nothing does.
        """
        reading = self.reading
        if reading is None:
            return {}
        engines = list(reading.engines.values())
        is_unused = not any(engine.counters.get("generation_tokens") for engine in engines)
        late = {*HISTOGRAMS, *COUNTERS} if reading.kind == "ray_vllm" else {*HISTOGRAMS}
        has_none = reading.is_before_first_request or reading.is_undecided
        lazy = {*REQUIRED} if has_none else late if is_unused else set()
        return {name: name not in lazy and not any(_has(engine, name) for engine in engines) for name in REQUIRED}

    def moved_since(self, moment: float) -> bool:
        """Return whether any engine computed anything after a moment, for certain."""
        return any(engine.done_from is not None and engine.done_from >= moment for engine in self.progress.values())

    def _note_refusal(self, result: ScrapeResult) -> None:
        """Keep since when nothing listens; answers that may be a gateway's do not end it."""
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

    def _forget_readings(self) -> None:
        self.window.clear()
        self.progress.clear()
        self.given_up = GivenUp()
        self.capacity.clear()
        self.step_times.clear()
        self.sleep.forget()

    def _count(self, reading: MetricsReading) -> None:
        self.out_of_range.update(reading.out_of_range)
        self.dropped += reading.dropped
        self.long_lines += reading.long_lines

    def _note_restart(self, reading: MetricsReading, *, is_other: bool) -> None:
        """
        Forget the earlier readings if the counters were reset: by a restart, or by the server itself.

        Args:
            reading: The next reading.
            is_other: Whether its labels name another process.
        """
        last = self.reading
        if last is None:
            return
        has_fallen = reading.is_before_first_request and bool(last.engines)
        has_fallen |= any(
            _fell(engine, reading.engines[key]) for key, engine in last.engines.items() if key in reading.engines
        )
        old_start, new_start = last.process_start_seconds, reading.process_start_seconds
        if old_start is not None and new_start is not None:
            is_restart = not is_same_start(old_start, new_start)
        else:
            is_restart = has_fallen or is_other
        self.restarts += is_restart
        if is_restart or has_fallen:
            self._forget_readings()

    def _note_step_times(self, at: float, reading: MetricsReading) -> None:
        """Measure the steps since the last reading; Ray's agent does not tell between which moments values grew."""
        last = self.window.newest
        if last is None or reading.kind == "ray_vllm":
            return
        for key in [key for key in self.step_times if key not in reading.engines]:
            del self.step_times[key]
        for key, engine in reading.engines.items():
            before = last.engines.get(key)
            if before is not None:
                kv_cache_tokens = self.kv_cache_tokens.get(key.engine, reading.kv_cache_tokens.get(key.engine))
                measured = scraped_step(at - self.window.at, before, engine, kv_cache_tokens)
                self.step_times.setdefault(key, StepTimes()).add(at, measured)

    def _note_progress(self, at: float, reading: MetricsReading) -> None:
        for key in [key for key in self.progress if key not in reading.engines]:
            del self.progress[key]
            self.capacity.pop(key, None)
        for key, engine in reading.engines.items():
            known = self.progress.get(key)
            if known is None:
                self.progress[key] = EngineProgress.first(at, engine, self.given_up.difference)
            else:
                known.add(at, engine, self.given_up.difference)
            sample = None if reading.kind == "ray_vllm" else load_sample(at, engine)
            if sample is not None:
                self.capacity.setdefault(key, CapacityTracker()).add(sample)


def _fell(old: EngineReading, new: EngineReading) -> bool:
    return any(new.counters.get(name, value) < value for name, value in old.counters.items())


def _has(engine: EngineReading, name: str) -> bool:
    return name in engine.gauges or name in engine.counters or name in engine.histograms
