# SPDX-License-Identifier: Apache-2.0
"""
Lines of one log to events in time: what takes more than one line to know.

A line on speculative decoding belongs to the statistics line before it; a crash prints its failure many times;
a line that continues a record is judged by how the record began. The parsers know nothing of this, so it is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_watch.reading.times import LineTimes
from vllm_watch_parsers.events import (
    AccessRequest,
    EngineStats,
    Event,
    Failure,
    Lifecycle,
    SpecDecoding,
    StartupFact,
)
from vllm_watch_parsers.line import LogLine, Record, parse_line


CRASH_SECONDS = 60.0
"""Failures of one kind that follow each other within this time are one event: a dying engine says it often."""

MAX_PROCESSES = 1024

_COUNTED_EACH_TIME = frozenset({"shm_timeout", "request_error"})


class Timed(NamedTuple):
    """An event and when it was written, in seconds since the epoch."""

    at: float
    event: Event


class LogBatch(NamedTuple):
    """What a run of lines said. `continuation_lines` counts lines that continue a record."""

    events: tuple[Timed, ...]
    requests: Mapping[AccessRequest, int]
    lines: int
    size: int
    end: float
    continuation_lines: int


class LogReader:
    """Reads one log from its start or from somewhere inside it; feed it every line, in order."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._engine_by_process: dict[str, str] = {}
        self._phase: str | None = None
        self._failed_at: dict[str, float] = {}
        self._prefix = ""

    def read(self, lines: Iterable[bytes], times: LineTimes) -> LogBatch:
        r"""Read lines (without their ``\n``) and return what they say."""
        events: list[Timed] = []
        requests: Counter[LogLine] = Counter()
        count = size = continuations = 0
        record = self._record
        for line in lines:
            count += 1
            size += len(line)
            if record is not None:
                continuations += 1
            parsed = parse_line(line, record)
            record = parsed.record
            if not parsed.events:
                continue
            if type(parsed.events[0]) is AccessRequest:
                requests[parsed] += 1
                continue
            at = times.at(parsed.time)
            events += [Timed(at, event) for event in self.admit(parsed, at)]
        self._record = record
        return LogBatch(tuple(events), _by_request(requests), count, size + count, times.at(""), continuations)

    def read_line(self, line: bytes, times: LineTimes) -> tuple[Timed, ...]:
        """Read one line and return its events, those of the access log included."""
        parsed = parse_line(line, self._record)
        self._record = parsed.record
        if not parsed.events:
            return ()
        at = times.at(parsed.time)
        return tuple(Timed(at, event) for event in self.admit(parsed, at))

    def skip(self) -> None:
        """Go on elsewhere: the next line continues no record."""
        self._record = None

    def admit(self, line: LogLine, at: float) -> tuple[Event, ...]:
        """Return those of a line's events that are news and can be believed."""
        if line.prefix and not self._is_own_prefix(line):
            return ()
        admitted = (self._admit(event, line, at) for event in line.events)
        return tuple(event for event in admitted if event is not None)

    def _is_own_prefix(self, line: LogLine) -> bool:
        if any(isinstance(event, StartupFact) and event.version for event in line.events):
            self._prefix = line.prefix
        return line.prefix == self._prefix

    def _admit(self, event: Event, line: LogLine, at: float) -> Event | None:
        if isinstance(event, EngineStats):
            self._remember_engine(line.process, event.engine)
            return event
        if isinstance(event, SpecDecoding):
            return event._replace(engine=self._engine_by_process.get(line.process))
        if isinstance(event, Lifecycle):
            return self._admit_phase(event)
        if isinstance(event, Failure):
            return self._admit_failure(event, at, is_bare=line.is_bare)
        return event

    def _remember_engine(self, process: str, engine: str | None) -> None:
        if engine is not None and (process in self._engine_by_process or len(self._engine_by_process) < MAX_PROCESSES):
            self._engine_by_process[process] = engine

    def _admit_phase(self, event: Lifecycle) -> Lifecycle | None:
        phase = event.phase
        if phase == "starting":
            if self._phase == "starting" and event.rank not in {None, "0"}:
                return None  # Another API server of the same start.
            self._forget_server()
        elif phase == self._phase or (phase == "shutting_down" and self._phase == "stopped"):
            return None
        self._phase = phase
        return event

    def _forget_server(self) -> None:
        self._failed_at.clear()
        self._engine_by_process.clear()

    def _admit_failure(self, event: Failure, at: float, *, is_bare: bool) -> Failure | None:
        if event.kind in _COUNTED_EACH_TIME:
            return event
        is_failing = any(at - failed <= CRASH_SECONDS for failed in self._failed_at.values())
        if is_bare and not is_failing and self._phase != "starting":
            return None  # Anyone's text can stand in the traceback of one request.
        last = self._failed_at.get(event.kind)
        self._failed_at[event.kind] = at
        return None if last is not None and at - last <= CRASH_SECONDS else event


def _by_request(counted: Mapping[LogLine, int]) -> dict[AccessRequest, int]:
    requests: dict[AccessRequest, int] = {}
    for line, count in counted.items():
        request = line.events[0]
        if isinstance(request, AccessRequest):
            requests[request] = requests.get(request, 0) + count
    return requests


__all__ = ["CRASH_SECONDS", "LogBatch", "LogReader", "Timed"]
