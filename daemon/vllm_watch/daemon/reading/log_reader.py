# SPDX-License-Identifier: Apache-2.0
"""
Turns the lines of one log into events with their times.

The first line of a record decides how the lines that continue it are read. `event_filter` decides which events count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_watch.daemon.reading.event_filter import EventFilter
from vllm_watch.daemon.reading.times import LineTimes
from vllm_watch_parsers.access import ACCESS_HEAD, ACCESS_START, parse_request
from vllm_watch_parsers.events import AccessRequest, Event
from vllm_watch_parsers.line import NOTHING, UNKNOWN_RECORD, LogLine, Record, parse_line
from vllm_watch_parsers.prefix import parse_head, strip_ansi


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
                self._admit(parsed, times, events)
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

    def _admit(self, parsed: LogLine, times: LineTimes, events: list[TimedEvent]) -> None:
        at = times.at(parsed.time)
        events += [TimedEvent(at, event) for event in self._filter.admit(parsed, at)]

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
