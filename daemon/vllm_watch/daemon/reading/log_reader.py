# SPDX-License-Identifier: Apache-2.0
"""
Turns the lines of one log into events with their times; `LogBatch` has them, `LogStatus` how reading goes.

The first line of a record decides how the lines that continue it are read. `EventFilter` decides which events are new
and can be trusted, where one line is not enough to know: a line on speculative decoding or KV transfers belongs to the
statistics line before it; a crash prints its failure many times; each process of a server reports the server's start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.reasons import LogReason
from vllm_watch.daemon.reading.times import LineTimes
from vllm_watch_parsers.events import (
    AccessRequest,
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
from vllm_watch_parsers.line import NOTHING, UNKNOWN_RECORD, parse_line
from vllm_watch_parsers.prefix import ACCESS_HEAD, ACCESS_START, LogLine, Record, parse_head, parse_request, strip_ansi


WatchMode = Literal["events", "poll"]


class TailCounts(NamedTuple):
    """
    What has been read of the log so far, and what was lost: each field is a series.

    `watch_mode` is whether notifications report changes; `None` where there are no files to watch.
    """

    lines: int = 0
    size: int = 0
    lag: int | None = None
    truncations: int = 0
    rotations: int = 0
    files_lost: int = 0
    long_lines: int = 0
    nul_bytes: int = 0
    skipped_bytes: int = 0
    read_errors: int = 0
    ignored_files: int = 0
    watch_mode: WatchMode | None = None


class LogStatus(NamedTuple):
    """How reading the log goes: `reason` is ``ok`` or why it cannot be read."""

    is_up: bool
    reason: LogReason
    tail: TailCounts


class TimedEvent(NamedTuple):
    """An event and when it was written, in seconds since the epoch."""

    at: float
    event: Event


class KeptLines(NamedTuple):
    r"""
    The lines themselves, without their ``\n``, as a reader left them that keeps them.

    `removed` is how much it removed from them, by kind.
    """

    lines: tuple[bytes, ...]
    removed: Mapping[str, int]


class LogBatch(NamedTuple):
    """
    What some lines report.

    Args:
        events: Their events, in order, but for requests.
        requests: The requests in access lines, and how often each came.
        lines: How many lines they were.
        size: How many bytes.
        end: When the last one was written.
        continuation_lines: How many came while a record was open.
        rejected_lines: How many look like an event where none is printed: they may be forged.
        is_after_gap: Whether lines were skipped before the first one.
        is_undated: Whether it is not known when they were written: the times of events have their order and distances
            only.
        is_history: Whether they were written before the daemon first read the log: they inform, and are not counted.
        kept: The lines, if the reader keeps them.
        is_foreign: Whether no line of the log so far has the form of vLLM's.
    """

    events: tuple[TimedEvent, ...]
    requests: Mapping[AccessRequest, int]
    lines: int
    size: int
    end: float
    continuation_lines: int
    rejected_lines: int = 0
    is_after_gap: bool = False
    is_undated: bool = False
    is_history: bool = False
    kept: KeptLines | None = None
    is_foreign: bool = False


class LogReader:
    """Reads one log from its start or from somewhere inside it; takes in every line, in order."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._filter = EventFilter()
        self._is_terminal: bool | None = None
        self.is_foreign = True
        """Whether no line so far has the form of vLLM's, or was taken for one."""

    @property
    def is_in_record(self) -> bool:
        """Whether the next line is known to continue a record."""
        return self._record is not None and not self._record.is_unknown

    def read(self, lines: Sequence[bytes], times: LineTimes) -> LogBatch:
        r"""Read lines (without their ``\n``) and return what they report."""
        events: list[TimedEvent] = []
        texts: dict[bytes, int] = defaultdict(int)
        requests: Counter[AccessRequest] = Counter()
        continuations = rejected = 0
        record = self._record
        written = self.as_written(lines)
        for line, access in zip(written, map(ACCESS_HEAD.match, written), strict=True):
            if record is not None:
                continuations += 1
            elif access is not None:
                texts[line[access.end() :]] += 1  # Most of a log: parsed once for each text.
                continue
            parsed = parse_line(line, record)
            record = parsed.record
            if parsed is NOTHING:
                continue
            if not parsed.events or (parsed.prefix and not self._filter.has_own_prefix(parsed)):
                rejected += parsed.is_rejected or bool(parsed.events)
            elif type(parsed.events[0]) is AccessRequest:
                requests[parsed.events[0]] += 1
                times.at(parsed.time)
            else:
                events += self._filter.admit(parsed, times.at(parsed.time))
        self._record = record
        requests.update(_requests_of(texts))
        # Whatever is taken for vLLM's is not foreign, whatever its form.
        self.is_foreign &= not (events or requests or continuations or rejected)
        return LogBatch(
            tuple(events),
            requests,
            len(lines),
            sum(map(len, lines)) + len(lines),
            times.at(""),
            continuations,
            rejected,
            is_undated=not times.are_known,
            is_foreign=self.is_foreign and bool(lines),
        )

    def as_written(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        r"""
        Remove the ``\r`` that a terminal puts before each ``\n`` (``docker run --tty``, ``script``).

        It would make every record look like one of several lines. The first of uvicorn's lines decides whether there
        is a terminal: they have no ``\r`` of their own.
        """
        if self.is_foreign:
            self.is_foreign = not any(map(_is_vllms, lines))
        if self._is_terminal is None:
            access = next((line for line in lines if ACCESS_START in line and _is_uvicorns(line)), None)
            if access is not None:
                self._is_terminal = access.endswith(b"\r")
        if not self._is_terminal:
            return lines
        return [line[:-1] if line.endswith(b"\r") else line for line in lines]

    def start_file(self) -> None:
        """Continue at the start of a file: the next line continues no record."""
        self._record = None

    def lose_place(self) -> None:
        """Continue elsewhere: the next line may continue a record of which nothing is known."""
        self._record = UNKNOWN_RECORD

    def skip_lines(self, lines: Sequence[bytes]) -> None:
        """Read lines only to learn which record is open after them: their events are ignored."""
        for line in self.as_written(lines):
            self._record = parse_line(line, self._record).record


def _requests_of(texts: Mapping[bytes, int]) -> Counter[AccessRequest]:
    """Return the requests of access lines, by how often each text from the method on came."""
    requests: Counter[AccessRequest] = Counter()
    for text, count in texts.items():
        request = parse_request(strip_ansi(text).rstrip(b"\r"))
        if request is not None:
            requests[request] += count
    return requests


def _is_vllms(line: bytes) -> bool:
    """Return whether a line has the form of vLLM's records or of uvicorn's lines."""
    head = parse_head(strip_ansi(line))
    return bool(head.time) or head.message.startswith(ACCESS_START)


def _is_uvicorns(line: bytes) -> bool:
    """Return whether a line is uvicorn's own and not a record of vLLM that quotes one."""
    head = parse_head(strip_ansi(line))
    return not head.site and head.message.startswith(ACCESS_START)


CRASH_SECONDS = 60.0
"""Failures of one kind that follow each other within this time are one event: a dying engine prints several."""

MAX_PROCESSES = 1024

ONE_OF_SEVERAL = "(ApiServer_"
"""The name of a process that is one of several API servers: each prints only the requests that it had itself."""

_COMPANIONS = (SpecDecoding, KvTransfers, AchievedWork, DiffusionDecoding)
_COUNTED_EACH_TIME = frozenset({"kernel_compiled", "request_error", "shm_timeout", "stack_dumped", "stack_dump_failed"})


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

    def admit(self, line: LogLine, at: float) -> list[TimedEvent]:
        """Return those of a line's events that are news and can be believed, completed by the lines before it."""
        admitted = [self._admit(event, line, at) for event in line.events]
        return [TimedEvent(at, event) for event in admitted if event is not None]

    def _admit(self, event: Event, line: LogLine, at: float) -> Event | None:
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
        return event._replace(engine=self._engine_by_process.get(process))

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
