# SPDX-License-Identifier: Apache-2.0
"""Recordings and old logs in virtual time: the daemon's own reading and state, hours in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from vllm_watch.analysis.replay.finished_log import FinishedLog, LogBytes, Progress
from vllm_watch.analysis.replay.recording import (
    GpusRead,
    MetricsRead,
    RecordedEvent,
    Recording,
    scrape_failure,
    server_name,
)
from vllm_watch.daemon.catalog.states import STATES, EngineState, worst
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch_parsers.events import EngineStats
from vllm_watch_parsers.scrape import DEFAULT_ENGINE, read_metrics


SETTLED_SECONDS = 1200.0
"""This long after a log's last line no value changes any more: all are stale, and no engine stalls later."""

SPARSE_SECONDS = 240.0
"""The distance of samples that do not change; Prometheus shows a value for five minutes."""

SILENCE_SECONDS = 86_400.0
"""The longest silence of a log through which there are samples."""


class ReplayedServer:
    """A server's state that takes in what was recorded, in order of time; `started` is in seconds since the epoch."""

    def __init__(self, state: ServerState, started: float) -> None:
        self._state = state
        self._started = started
        self._log = LogBytes() if state.settings.has_log else None
        apply_counts(state, TailCounts(0, 0, 0))

    def apply(self, event: RecordedEvent) -> None:
        """Take in what happened at one moment."""
        at = self._started + event.at
        if isinstance(event, MetricsRead):
            self._state.apply_scrape(recorded_scrape(event, at))
        elif isinstance(event, GpusRead):
            self._state.gpu.apply(event.use, event.interval)
        elif self._log is not None:
            if event.is_after_gap:
                self._log.lose_place()
            batch = self._log.read(event.data, ArrivalTimes(at))
            self._state.apply_log(batch._replace(is_history=event.is_history, is_after_gap=event.is_after_gap))
            apply_counts(self._state, self._log.counts)


class LogPeriod(NamedTuple):
    """The times of a log's first and last line, in seconds since the epoch."""

    start: float
    end: float


def run_recording(
    recording: Recording,
    state: ServerState,
    step: float,
    progress: Progress = lambda _share: None,
    server: str | None = None,
) -> Iterator[ServerSnapshot]:
    """
    Yield a snapshot every `step` seconds of a recorded server, after what happened until then.

    The first one is when its first scrape has ended, if that is within an interval: before, nothing had been looked at.
    """
    replayed = ReplayedServer(state, recording.started)
    sources = recording.sources[server_name(recording, server)]
    cost, moment = sources.cost_per_hour, _first_look(recording, server, sources.scrape_interval or 0.0)
    number = int(moment / step)
    for event in recording.events(server):
        while moment < event.at:
            yield state.snapshot(recording.started + moment)._replace(cost_per_hour=cost)
            progress(min(moment / recording.seconds, 1.0))
            number += 1
            moment = step * number
        replayed.apply(event)
    yield state.snapshot(recording.started + moment)._replace(cost_per_hour=cost)
    progress(1.0)


def _first_look(recording: Recording, server: str | None, interval: float) -> float:
    """Return when the first scrape has ended, in seconds since the recording's start; 0 if none has in an interval."""
    early = takewhile(lambda event: event.at <= interval, recording.events(server))
    return next((event.at for event in early if isinstance(event, MetricsRead)), 0.0)


def apply_counts(state: ServerState, counts: TailCounts) -> None:
    """Apply what was read of a log so far to a server's state."""
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=counts))


def recorded_scrape(event: MetricsRead, at: float) -> ScrapeResult:
    """Return the result of a scrape that gets the recorded answer."""
    if not event.body:
        return ScrapeResult(at, event.duration, None, scrape_failure(event.status))
    return scrape_result(at, event.duration, read_metrics(event.body))


def read_to_end(log: FinishedLog, state: ServerState, progress: Progress = lambda _share: None) -> LogPeriod:
    """Apply a finished log to a server's state; return from when to when it is."""
    start = log.end
    for batch in log.read():
        state.apply_log(batch)
        progress(log.share)
    apply_counts(state, log.counts)
    return LogPeriod(start, log.end)


def snapshot_after(state: ServerState, end: float, silence: float) -> ServerSnapshot:
    """
    Return what is known at the end of a finished log, with the states after so many seconds of silence since then.

    What follows a log's last line shows what it means: a server that works prints again.
    """
    last = state.snapshot(end)
    if not silence:
        return last
    later = state.snapshot(end + min(silence, SETTLED_SECONDS))
    engines = tuple(
        engine
        if engine.state == after.state
        else engine._replace(state=after.state, cause=after.cause, state_since=None)
        for engine, after in zip(last.engines, later.engines, strict=True)
    )
    return last._replace(engines=engines, sources=later.sources)


def run_logs(
    paths: Sequence[str], state: ServerState, step: float, progress: Progress = lambda _share: None
) -> Iterator[ServerSnapshot]:
    """
    Yield a snapshot every `step` seconds of a finished log in parts, from its first printed time to its last.

    In a silence there are fewer: every `step` until all values have settled, then as few as Prometheus needs to show
    the last one, and none after a day, since nobody knows what became of a server that prints nothing.
    """
    logs = sorted([FinishedLog(path) for path in paths], key=lambda log: log.end)
    whole, done = sum(log.size for log in logs), 0
    apply_counts(state, TailCounts(lag=0))
    moment = last = None
    for log in logs:
        for batch in log.read_apart():
            if batch.events or batch.requests:
                last = batch.end
                moment = last if moment is None else moment
                if last - moment >= step:
                    for each in moments(moment, last, step):
                        yield state.snapshot(each)
                    moment += step * int((last - moment) / step)
                    progress((done + log.share * log.size) / whole)
            state.apply_log(batch)
        done += log.size
    if moment is not None and last is not None:
        yield state.snapshot(max(moment, last))
    progress(1.0)


def moments(start: float, end: float, step: float) -> Iterator[float]:
    """Yield the moments between two events at which values may change: `step` apart, later fewer, none after a day."""
    moment = start
    last = min(end - step, start + SILENCE_SECONDS)
    while moment <= last:
        yield moment
        sparse = step * max(int(SPARSE_SECONDS / step), 1)
        moment += step if moment - start < SETTLED_SECONDS else sparse


STEP_SECONDS = 10.0
"""The distance of the moments at which the state is judged: an engine prints no statistics more often."""

BAD_STATES: frozenset[EngineState] = frozenset(
    name for name, state in STATES.items() if state.runbook and name != "sleeping"
)
"""The states in which something has to be done: whoever put a server to sleep knows it."""

_PEAKS = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")


class StateTimes(NamedTuple):
    """How often and for how many seconds a server was in a state, and from when to when for the longest time."""

    times: int
    seconds: float
    start: float
    end: float


class Peak(NamedTuple):
    """The highest value of a quantity, of one engine, and when it was printed first."""

    value: float
    at: float
    engine: str


class LogCourse(NamedTuple):
    """What became of a server: the bad states that it was in, and the highest values by quantity."""

    states: Mapping[EngineState, StateTimes]
    peaks: Mapping[str, Peak]


class CourseReader:
    """Reads the parts of a finished log, in order, and follows what becomes of the server."""

    def __init__(self, state: ServerState) -> None:
        self._server = state
        apply_counts(state, TailCounts(lag=0))
        self._states: dict[EngineState, StateTimes] = {}
        self._peaks: dict[str, Peak] = {}
        self._state: EngineState | None = None
        self._since = self._last = 0.0

    def read(self, log: FinishedLog, progress: Progress) -> LogPeriod:
        """Read a part to its end; return from when to when it is."""
        start = log.end
        for batch in log.read_apart():
            if batch.events or batch.requests:
                self._pass(batch.end)
            self._server.apply_log(batch)
            self._note(batch)
            progress(log.share)
        apply_counts(self._server, log.counts)
        return LogPeriod(start, log.end)

    def end(self, at: float) -> LogCourse:
        """Return what became of the server until a moment at or after the log's end."""
        self._pass(at)
        self._judge(at)
        self._close()
        return LogCourse(self._states, self._peaks)

    def _note(self, batch: LogBatch) -> None:
        for at, event in batch.events:
            if isinstance(event, EngineStats):
                for name in _PEAKS:
                    value, peak = getattr(event, name), self._peaks.get(name)
                    if value is not None and (peak is None or value > peak.value):
                        self._peaks[name] = Peak(value, at, event.engine or DEFAULT_ENGINE)
        if batch.events:
            self._judge(batch.end)

    def _pass(self, until: float) -> None:
        """Judge the moments until the next line: an engine stalls in the silence before it."""
        if self._state is not None:
            for moment in moments(self._last + STEP_SECONDS, until, STEP_SECONDS):
                self._judge(moment)

    def _judge(self, moment: float) -> None:
        state = worst(self._server.engine_states(moment).values())
        if state != self._state:
            self._last = moment
            self._close()
            self._state, self._since = state, moment
        self._last = moment

    def _close(self) -> None:
        if self._state not in BAD_STATES or self._state is None:
            return
        known = self._states.get(self._state)
        seconds = self._last - self._since
        longest = (self._since, self._last)
        if known is not None and known.end - known.start >= seconds:
            longest = (known.start, known.end)
        times, total = (0, 0.0) if known is None else (known.times, known.seconds)
        self._states[self._state] = StateTimes(times + 1, total + seconds, *longest)
