# SPDX-License-Identifier: Apache-2.0
"""
Lines of one log to events in time: what takes more than one line to know.

A line on speculative decoding belongs to the statistics line before it; a crash prints its failure many times;
a line that continues a record is judged by how the record began. The parsers know nothing of this, so it is here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_watch.reading.times import LineTimes
from vllm_watch_parsers.access import ACCESS_BLANKS, ACCESS_START, PEER_END, parse_request
from vllm_watch_parsers.events import (
    AccessRequest,
    EngineStats,
    Event,
    Failure,
    Lifecycle,
    Notice,
    SpecDecoding,
    StartupFact,
)
from vllm_watch_parsers.line import NOTHING, UNKNOWN_RECORD, LogLine, Record, parse_line
from vllm_watch_parsers.prefix import parse_head, strip_ansi


CRASH_SECONDS = 60.0
"""Failures of one kind that follow each other within this time are one event: a dying engine says it often."""

MAX_PROCESSES = 1024

_ONE_OF_SEVERAL = "(ApiServer_"
"""So a process is called that is one of several API servers: each prints the requests that it had itself."""

_COUNTED_EACH_TIME = frozenset({"shm_timeout", "request_error"})


class TimedEvent(NamedTuple):
    """An event and when it was written, in seconds since the epoch."""

    at: float
    event: Event


class LogBatch(NamedTuple):
    """
    What a run of lines said.

    `continuation_lines` counts lines that came while a record was open, `refused_lines` those that look like news and
    stand where none is printed. Before the first line of a batch that `is_after_gap` others were passed over. When
    one was written that `is_undated` nobody can say: its events have their order and distances only.
    """

    events: tuple[TimedEvent, ...]
    requests: Mapping[AccessRequest, int]
    lines: int
    size: int
    end: float
    continuation_lines: int
    refused_lines: int = 0
    is_after_gap: bool = False
    is_undated: bool = False


class TailedBatch(NamedTuple):
    """What some lines said; history was written before the daemon looked for the first time."""

    batch: LogBatch
    is_history: bool


class LogReader:
    """Reads one log from its start or from somewhere inside it; feed it every line, in order."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._engine_by_process: dict[str, str] = {}
        self._api_server_of: dict[str, str] = {}
        self._are_partial = False
        self._phase: str | None = None
        self._started: set[str | None] = set()
        """The ranks of the processes that have said that they start, since the server's last start."""
        self._failed_at: dict[str, float] = {}
        self._prefix = ""
        self._is_terminal: bool | None = None

    @property
    def is_in_record(self) -> bool:
        """Whether the next line is known to continue a record."""
        return self._record is not None and not self._record.is_unknown

    def read(self, lines: Sequence[bytes], times: LineTimes) -> LogBatch:
        r"""Read lines (without their ``\n``) and return what they say."""
        events: list[TimedEvent] = []
        requests: Counter[AccessRequest] = Counter()
        requests_by_text: dict[bytes, int] = defaultdict(int)
        continuations = refused = 0
        record = self._record
        for line in self._as_written(lines):
            if record is not None:
                continuations += 1
            elif line.startswith(ACCESS_START):
                # Most of a log: counted by their text, and parsed once for each text.
                peer, _, text = line.partition(PEER_END)
                if text and peer.count(b" ") == ACCESS_BLANKS:
                    requests_by_text[text] += 1
                    continue
            parsed = parse_line(line, record)
            if parsed is NOTHING:  # Most of the others.
                record = None
                continue
            record = parsed.record
            if not parsed.events:
                refused += parsed.is_refused
                continue
            if parsed.prefix and not self._is_own_prefix(parsed):
                refused += 1
                continue
            at = times.at(parsed.time)
            if type(parsed.events[0]) is AccessRequest:
                requests[parsed.events[0]] += 1
                continue
            events += [TimedEvent(at, event) for event in self.admit(parsed, at)]
        self._record = record
        _add_by_text(requests, requests_by_text)
        size = sum(map(len, lines)) + len(lines)
        batch = LogBatch(tuple(events), requests, len(lines), size, times.at(""), continuations, refused)
        return batch if times.are_known else batch._replace(is_undated=True)

    def read_line(self, line: bytes, times: LineTimes) -> tuple[TimedEvent, ...]:
        """Read one line and return its events, those of the access log included."""
        (written,) = self._as_written([line])
        parsed = parse_line(written, self._record)
        self._record = parsed.record
        if not parsed.events or (parsed.prefix and not self._is_own_prefix(parsed)):
            return ()
        at = times.at(parsed.time)
        return tuple(TimedEvent(at, event) for event in self.admit(parsed, at))

    def _as_written(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        r"""
        Take away the ``\r`` that a terminal puts before each ``\n`` (``docker run --tty``, ``script``).

        It would make every record look like one of several lines. Uvicorn's lines tell: they have no ``\r`` of
        their own. The first one decides.
        """
        if self._is_terminal is None:
            told = next((line for line in lines if ACCESS_START in line and _is_uvicorns(line)), None)
            if told is not None:
                self._is_terminal = told.endswith(b"\r")
        if not self._is_terminal:
            return lines
        return [line[:-1] if line.endswith(b"\r") else line for line in lines]

    def begin(self) -> None:
        """Go on at the start of a file: the next line continues no record."""
        self._record = None

    def skip(self) -> None:
        """Go on elsewhere: the next line may continue a record of which nothing is known."""
        self._record = UNKNOWN_RECORD

    def pass_over(self, lines: Sequence[bytes]) -> None:
        """Read lines only to learn what is open after them: what they say is not believed."""
        for line in self._as_written(lines):
            self._record = parse_line(line, self._record).record

    def admit(self, line: LogLine, at: float) -> tuple[Event, ...]:
        """Return those of a line's events that are news and can be believed."""
        if len(line.events) == 1:
            only = self._admit(line.events[0], line, at)
            return () if only is None else (only,)
        admitted = [self._admit(event, line, at) for event in line.events]
        return tuple([event for event in admitted if event is not None])

    def _is_own_prefix(self, line: LogLine) -> bool:
        if any(isinstance(event, StartupFact) and event.version for event in line.events):
            self._prefix = line.prefix
        return line.prefix == self._prefix

    def _admit(self, event: Event, line: LogLine, at: float) -> Event | None:
        if isinstance(event, EngineStats):
            if self._is_partial(line.process, event.engine):
                return Notice("api_servers_more_than_one")
            self._remember_engine(line.process, event.engine)
            return event
        if isinstance(event, SpecDecoding):
            if self._are_partial and _ONE_OF_SEVERAL in line.process:
                return None
            return SpecDecoding(self._engine_by_process.get(line.process), *event[1:])
        if isinstance(event, Lifecycle):
            return self._admit_phase(event)
        if isinstance(event, Failure):
            return self._admit_failure(event, at, is_bare=line.is_bare)
        return event

    def _is_partial(self, process: str, engine: str | None) -> bool:
        """Tell whether a line is of a part of an engine's requests: another API server has printed of it, too."""
        if _ONE_OF_SEVERAL not in process or engine is None:
            return False
        if len(self._api_server_of) < MAX_PROCESSES:
            first = self._api_server_of.setdefault(engine, process)
            self._are_partial = self._are_partial or first != process
        return self._are_partial

    def _remember_engine(self, process: str, engine: str | None) -> None:
        if engine is not None and (process in self._engine_by_process or len(self._engine_by_process) < MAX_PROCESSES):
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
        Tell whether a process that starts belongs to a start that was counted already.

        The processes of one server say that they start one by one, in any order, and the first may be ready before
        the last has begun. Of a server that is ready one rank alone may be started anew; the rank 0 stands for all.
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
        if event.kind in _COUNTED_EACH_TIME:
            return event
        is_failing = any(at - failed <= CRASH_SECONDS for failed in self._failed_at.values())
        if is_bare and not is_failing and self._phase != "starting":
            return None  # Anyone's text can stand in the traceback of one request.
        last = self._failed_at.get(event.kind)
        self._failed_at[event.kind] = at
        return None if last is not None and at - last <= CRASH_SECONDS else event


def _add_by_text(requests: Counter[AccessRequest], numbers: Mapping[bytes, int]) -> None:
    """Add requests that were counted by their text."""
    for text, number in numbers.items():
        request = parse_request(text.rstrip(b"\r"))
        if request is not None:
            requests[request] += number


def _is_uvicorns(line: bytes) -> bool:
    """Tell whether a line is uvicorn's own and not a record of vLLM that quotes one."""
    head = parse_head(strip_ansi(line))
    return not head.site and head.message.startswith(ACCESS_START)


__all__ = ["CRASH_SECONDS", "LogBatch", "LogReader", "TailedBatch", "TimedEvent"]
