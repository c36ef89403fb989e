# SPDX-License-Identifier: Apache-2.0
"""
Turns the lines of one log into events with their times.

The first line of a record decides how the lines that continue it are read. `event_filter` decides which events count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_watch.reading.event_filter import EventFilter
from vllm_watch.reading.times import LineTimes
from vllm_watch_parsers.access import ACCESS_BLANKS, ACCESS_START, PEER_END, parse_request
from vllm_watch_parsers.events import AccessRequest, Event
from vllm_watch_parsers.line import NOTHING, UNKNOWN_RECORD, Record, parse_line
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


class LogReader:
    """Reads one log from its start or from somewhere inside it; takes in every line, in order."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._filter = EventFilter()
        self._is_terminal: bool | None = None

    @property
    def is_in_record(self) -> bool:
        """Whether the next line is known to continue a record."""
        return self._record is not None and not self._record.is_unknown

    def read(self, lines: Sequence[bytes], times: LineTimes) -> LogBatch:
        r"""Read lines (without their ``\n``) and return what they report."""
        events: list[TimedEvent] = []
        requests: Counter[AccessRequest] = Counter()
        requests_by_text: dict[bytes, int] = defaultdict(int)
        continuations = rejected = 0
        record = self._record
        for line in self.as_written(lines):
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
                rejected += parsed.is_rejected
                continue
            if parsed.prefix and not self._filter.has_own_prefix(parsed):
                rejected += 1
                continue
            at = times.at(parsed.time)
            if type(parsed.events[0]) is AccessRequest:
                requests[parsed.events[0]] += 1
                continue
            events += [TimedEvent(at, event) for event in self._filter.admit(parsed, at)]
        self._record = record
        _add_by_text(requests, requests_by_text)
        size = sum(map(len, lines)) + len(lines)
        batch = LogBatch(tuple(events), requests, len(lines), size, times.at(""), continuations, rejected)
        return batch if times.are_known else batch._replace(is_undated=True)

    def read_line(self, line: bytes, times: LineTimes) -> tuple[TimedEvent, ...]:
        """Read one line and return its events, those of the access log included."""
        batch = self.read([line], times)
        requests = (TimedEvent(batch.end, request) for request in batch.requests)
        return (*batch.events, *requests)

    def as_written(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        r"""
        Remove the ``\r`` that a terminal puts before each ``\n`` (``docker run --tty``, ``script``).

        It would make every record look like one of several lines. The first of uvicorn's lines decides whether there
        is a terminal: they have no ``\r`` of their own.
        """
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


def _add_by_text(requests: Counter[AccessRequest], numbers: Mapping[bytes, int]) -> None:
    """Add requests that were counted by their text."""
    for text, number in numbers.items():
        request = parse_request(text.rstrip(b"\r"))
        if request is not None:
            requests[request] += number


def _is_uvicorns(line: bytes) -> bool:
    """Return whether a line is uvicorn's own and not a record of vLLM that quotes one."""
    head = parse_head(strip_ansi(line))
    return not head.site and head.message.startswith(ACCESS_START)


__all__ = ["KeptLines", "LogBatch", "LogReader", "TimedEvent"]
