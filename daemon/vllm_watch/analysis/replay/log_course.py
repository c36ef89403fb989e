# SPDX-License-Identifier: Apache-2.0
"""What became of a server in the course of a finished log: its bad states and its highest values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.analysis.replay.replay import LogPeriod, Progress, apply_counts, moments
from vllm_watch.daemon.catalog.states import STATES, EngineState, worst
from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.snapshot import TailCounts
from vllm_watch_parsers.events import EngineStats
from vllm_watch_parsers.scrape import DEFAULT_ENGINE


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
    """
    Reads the parts of a finished log, in order, and follows what becomes of the server.

    Args:
        state: What the log goes into; it gives the states.
    """

    def __init__(self, state: ServerState) -> None:
        self._server = state
        apply_counts(state, TailCounts(lag=0))
        self._states: dict[EngineState, StateTimes] = {}
        self._peaks: dict[str, Peak] = {}
        self._state: EngineState | None = None
        self._since = self._last = 0.0

    def read(self, log: FinishedLog, progress: Progress) -> LogPeriod:
        """
        Read a part to its end; return from when to when it is.

        Raises:
            FileError: It cannot be read.
        """
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
        """Take in that the present state ends."""
        if self._state not in BAD_STATES or self._state is None:
            return
        known = self._states.get(self._state)
        seconds = self._last - self._since
        longest = (self._since, self._last)
        if known is not None and known.end - known.start >= seconds:
            longest = (known.start, known.end)
        times, total = (0, 0.0) if known is None else (known.times, known.seconds)
        self._states[self._state] = StateTimes(times + 1, total + seconds, *longest)
