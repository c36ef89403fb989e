# SPDX-License-Identifier: Apache-2.0
"""
Decides which events of a log are new and can be trusted, where one line is not enough to know.

Examples: a line on speculative decoding or KV transfers belongs to the statistics line before it; a crash prints its
failure many times; each process of a server reports the server's start.
"""

from __future__ import annotations

from vllm_watch_parsers.events import (
    AchievedWork,
    DiffusionDecoding,
    EngineStats,
    Event,
    Failure,
    KvTransfers,
    Lifecycle,
    Notice,
    SpecDecoding,
    StartupFact,
)
from vllm_watch_parsers.line import LogLine


CRASH_SECONDS = 60.0
"""Failures of one kind that follow each other within this time are one event: a dying engine prints several."""

MAX_PROCESSES = 1024

ONE_OF_SEVERAL = "(ApiServer_"
"""The name of a process that is one of several API servers: each prints only the requests that it had itself."""

_COMPANIONS = (SpecDecoding, KvTransfers, AchievedWork, DiffusionDecoding)
_COUNTED_EACH_TIME = frozenset({"shm_timeout", "request_error"})


class EventFilter:
    """Takes in the parsed lines of one log, in order, and returns the events that count."""

    def __init__(self) -> None:
        self._engine_by_process: dict[str, str] = {}
        self._api_server_of: dict[str, str] = {}
        self._are_partial = False
        self._phase: str | None = None
        self._started: set[str | None] = set()
        """The ranks of the processes that have reported their start, since the server's last start."""
        self._failed_at: dict[str, float] = {}
        self._prefix = ""

    def has_own_prefix(self, line: LogLine) -> bool:
        """Return whether a line's prefix (VLLM_LOGGING_PREFIX) is that of the server's own line on its version."""
        if any(isinstance(event, StartupFact) and event.version for event in line.events):
            self._prefix = line.prefix
        return line.prefix == self._prefix

    def admit(self, line: LogLine, at: float) -> tuple[Event, ...]:
        """Return those of a line's events that are news and can be believed."""
        if len(line.events) == 1:
            only = self._admit(line.events[0], line, at)
            return () if only is None else (only,)
        admitted = [self._admit(event, line, at) for event in line.events]
        return tuple([event for event in admitted if event is not None])

    def _admit(self, event: Event, line: LogLine, at: float) -> Event | None:
        """Return an event, completed by the lines before it, or `None`."""
        if isinstance(event, EngineStats):
            return self._admit_stats(event, line.process)
        if isinstance(event, _COMPANIONS):
            return self._admit_companion(event, line.process)
        if isinstance(event, Lifecycle):
            return self._admit_phase(event)
        if isinstance(event, Failure):
            return self._admit_failure(event, at, is_bare=line.is_bare)
        return event

    def _admit_stats(self, event: EngineStats, process: str) -> Event:
        """Return statistics if they are about all of an engine's requests."""
        engine = event.engine
        if ONE_OF_SEVERAL in process and self._is_partial(process, engine):
            return Notice("api_servers_more_than_one")
        if engine is not None and self._engine_by_process.get(process) != engine:
            self._remember_engine(process, engine)
        return event

    def _admit_companion(
        self, event: SpecDecoding | KvTransfers | AchievedWork | DiffusionDecoding, process: str
    ) -> Event | None:
        """Return what a line below one of statistics reports, with the engine of that where it names none."""
        if self._are_partial and ONE_OF_SEVERAL in process:
            return None
        if event.engine is not None:
            return event
        engine = self._engine_by_process.get(process)
        return SpecDecoding(engine, *event[1:]) if type(event) is SpecDecoding else event._replace(engine=engine)

    def _is_partial(self, process: str, engine: str | None) -> bool:
        """Return whether a line is about a part of an engine's requests: another API server has printed it, too."""
        if engine is None:
            return False
        if len(self._api_server_of) < MAX_PROCESSES:
            first = self._api_server_of.setdefault(engine, process)
            self._are_partial = self._are_partial or first != process
        return self._are_partial

    def _remember_engine(self, process: str, engine: str) -> None:
        if process in self._engine_by_process or len(self._engine_by_process) < MAX_PROCESSES:
            self._engine_by_process[process] = engine

    def _admit_phase(self, event: Lifecycle) -> Lifecycle | None:
        phase = event.phase
        if phase == "starting":
            if self._is_part_of_the_start(event.rank):
                return None
            self._forget_server(event.rank)
        elif phase == self._phase or (phase == "shutting_down" and self._phase == "stopped"):
            return None
        self._phase = phase
        return event

    def _is_part_of_the_start(self, rank: str | None) -> bool:
        """
        Return whether a process that starts belongs to a start that was counted already.

        The processes of one server report their starts one by one, in any order, and the first may be ready before the
        last has started. While a server is ready one rank alone may be started again; rank 0 counts for all.
        """
        if rank is None or self._phase not in {"starting", "ready"}:
            return False
        if rank in self._started:
            return self._phase == "ready" and rank != "0"
        if len(self._started) < MAX_PROCESSES:
            self._started.add(rank)
        return True

    def _forget_server(self, rank: str | None) -> None:
        self._failed_at.clear()
        self._engine_by_process.clear()
        self._api_server_of.clear()
        self._are_partial = False
        self._started = {rank}

    def _admit_failure(self, event: Failure, at: float, *, is_bare: bool) -> Failure | None:
        """Return a failure unless it belongs to one before it, or is a traceback of anyone's request."""
        if event.kind in _COUNTED_EACH_TIME:
            return event
        is_failing = any(at - failed <= CRASH_SECONDS for failed in self._failed_at.values())
        if is_bare and not is_failing and self._phase != "starting":
            return None  # The traceback of one request can hold any text.
        last = self._failed_at.get(event.kind)
        self._failed_at[event.kind] = at
        return None if last is not None and at - last <= CRASH_SECONDS else event
