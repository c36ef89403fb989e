# SPDX-License-Identifier: Apache-2.0
"""
Turns the lines of one log into events with their times.

The first line of a record decides how the lines that continue it are read. `event_filter` decides which events count.
"""

from __future__ import annotations

import re

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.daemon.reading.access_lines import (
    NO_ACCESS,
    PART,
    SHORT_TEXT,
    AccessForm,
    Separated,
    access_form,
    separate,
)
from vllm_watch.daemon.reading.event_filter import EventFilter
from vllm_watch.daemon.reading.parsed_text import ParsedRun, ParsedText, steps_of, unpacked
from vllm_watch.daemon.reading.times import LineTimes
from vllm_watch_parsers.access import ACCESS_HEAD, ACCESS_START, parse_request
from vllm_watch_parsers.events import AccessRequest, Event
from vllm_watch_parsers.line import NOTHING, UNKNOWN_RECORD, Record, parse_line
from vllm_watch_parsers.prefix import parse_head, strip_ansi
from vllm_watch_parsers.usual_statistics import UsualStatistics, parse_usual_statistics


_LINES_OF_RECORD = re.compile(rb"(?:[^\n]*\r\n){0,1000}[^\n]*\n")
r"""Lines that end in ``\r``, and the line after them."""


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


class _Gathered:
    """What the lines of one batch report; `is_foreign` is that of the batch."""

    def __init__(self, *, is_foreign: bool) -> None:
        self._is_foreign = is_foreign
        self.events: list[TimedEvent] = []
        self.requests: Counter[AccessRequest] = Counter()
        self.requests_by_text: dict[bytes, int] = defaultdict(int)
        self.lines = self.continuations = self.rejected = 0

    def add_separated(self, found: Separated | ParsedText) -> None:
        """Take in what was found without a look at each line."""
        self.lines += found.lines
        self.requests.update(found.requests)
        for text, number in found.by_text.items():
            self.requests_by_text[text] += number

    def batch(self, size: int, times: LineTimes) -> LogBatch:
        """Return the batch; `size` is how many bytes the lines are."""
        for text, number in self.requests_by_text.items():
            request = parse_request(strip_ansi(text).rstrip(b"\r"))
            if request is not None:
                self.requests[request] += number
        batch = LogBatch(
            tuple(self.events), self.requests, self.lines, size, times.at(""), self.continuations, self.rejected
        )
        # Whatever is taken for vLLM's is not foreign, whatever its form.
        is_known = not self.lines or batch.events or batch.requests or self.continuations or self.rejected
        is_foreign = self._is_foreign and not is_known
        if times.are_known and not is_foreign:
            return batch  # Nearly all are: a copy of each would take time.
        return batch._replace(is_undated=not times.are_known, is_foreign=is_foreign)


class _Written(NamedTuple):
    r"""
    Many lines as vLLM wrote them.

    Args:
        text: The lines, each with its ``\n``, after a ``\n``.
        form: The form of their access lines.
        times: Their times.
    """

    text: bytes
    form: AccessForm
    times: LineTimes


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
        return self._read_each(self.as_written(lines), sum(map(len, lines)) + len(lines), times)

    def read_text(self, text: bytes, times: LineTimes) -> LogBatch:
        r"""
        Read many lines at once and return what they report, as `read` does.

        Args:
            text: Whole lines, each with its ``\n``. None is too long, and there is no NUL.
            times: The times of the lines.
        """
        written = self._text_as_written(text, times)
        return self._read_part(written, 1, len(written.text))._replace(size=len(text))

    def read_parsed(self, parsed: ParsedText, times: LineTimes) -> LogBatch | None:
        """Return what `read_text` returns for a text that was parsed elsewhere; `None` where that is not possible."""
        if not self.can_read_parsed():
            return None
        gathered = _Gathered(is_foreign=self.is_foreign)
        gathered.add_separated(parsed)
        for line in parsed.others:
            if isinstance(line, bytes):
                self._read_lines([line], times, gathered)
            else:
                self._add_statistics(unpacked(line), times, gathered)
        return self._batch(gathered, parsed.size, times)

    def _add_statistics(self, usual: UsualStatistics, times: LineTimes, gathered: _Gathered) -> None:
        at = times.at(usual.time)
        admitted = self._filter.admit_statistics(usual.event, usual.process)
        if admitted is not None:
            gathered.events.append(TimedEvent(at, admitted))

    def read_steps(self, text: bytes, times: LineTimes, alone: Collection[bytes] = ()) -> Iterator[LogBatch]:
        r"""
        Read many lines and yield what they report in batches: each line with an event is one of its own.

        Args:
            text: Whole lines, each with its ``\n``. None is too long, and there is no NUL.
            times: The times of the lines.
            alone: Access lines with one of these texts are batches of their own, too.
        """
        written = self._text_as_written(text, times)
        if self._record is None and b"\r" not in written.text:
            yield from self.read_parsed_steps(steps_of(written.text, written.form, alone), times)
            return
        start = 1
        for found in NO_ACCESS.finditer(written.text):
            line = found[1]
            yield from self._read_run(written, start, found.start(1), alone)
            yield self._read_each([line], len(line) + 1, times)
            start = found.end() + 1
        yield from self._read_run(written, start, len(written.text), alone)

    def can_read_parsed(self) -> bool:
        """Return whether `read_parsed_steps` gives what `read_steps` would."""
        return self._record is None and self._is_terminal is not None

    def read_parsed_steps(self, steps: Iterable[bytes | ParsedRun], times: LineTimes) -> Iterator[LogBatch]:
        """Yield what `read_steps` yields for a text that was parsed elsewhere, in as many batches or more."""
        for step in steps:
            if isinstance(step, bytes):
                yield self._read_each([step], len(step) + 1, times)
                continue
            gathered = _Gathered(is_foreign=self.is_foreign)
            gathered.add_separated(step.found)
            self._read_lines(step.found.others, times, gathered)
            yield self._batch(gathered, step.size, times)

    def _read_run(self, written: _Written, start: int, end: int, alone: Collection[bytes]) -> Iterator[LogBatch]:
        """Yield what lines without an event report, at once or, where one of them must be alone, one by one."""
        if start >= end:
            return
        if any(written.text.find(each, start, end) >= 0 for each in alone):
            for line in written.text[start : end - 1].split(b"\n"):
                yield self._read_each([line], len(line) + 1, written.times)
        else:
            yield self._read_part(written, start, end)

    def _read_part(self, written: _Written, start: int, end: int) -> LogBatch:
        r"""Read a part of a text: it starts after a ``\n``."""
        text, form, times = written
        gathered = _Gathered(is_foreign=self.is_foreign)
        at = start
        while at < end:
            found = None
            if self._record is None:
                stop = _end_of_lone_lines(text, at, end)
                if stop - at > SHORT_TEXT and text[stop - 2 : stop] != b"\r\n":
                    found = separate(text, at, stop, form)
            else:
                stop = _LINES_OF_RECORD.match(text, at, end).end()  # type: ignore[union-attr]  # There is a line.
            if found is None:
                lines = text[at : stop - 1].split(b"\n")
                gathered.lines += len(lines)
            else:
                lines = found.others
                gathered.add_separated(found)
            self._read_lines(lines, times, gathered)
            at = stop
        return self._batch(gathered, end - start, times)

    def _read_each(self, lines: Sequence[bytes], size: int, times: LineTimes) -> LogBatch:
        gathered = _Gathered(is_foreign=self.is_foreign)
        gathered.lines = len(lines)
        self._read_lines(lines, times, gathered)
        return self._batch(gathered, size, times)

    def _batch(self, gathered: _Gathered, size: int, times: LineTimes) -> LogBatch:
        batch = gathered.batch(size, times)
        if gathered.lines:
            self.is_foreign = batch.is_foreign
        return batch

    def _read_lines(self, lines: Iterable[bytes], times: LineTimes, gathered: _Gathered) -> None:
        record = self._record
        requests_by_text = gathered.requests_by_text
        for line in lines:
            if record is not None:
                gathered.continuations += 1
            elif (access := ACCESS_HEAD.match(line)) is not None:
                # Most of a log: counted by their text, and parsed once for each text.
                requests_by_text[line[access.end() :]] += 1
                continue
            else:
                usual = parse_usual_statistics(line)
                if usual is not None:
                    self._add_statistics(usual, times, gathered)
                    continue
            parsed = parse_line(line, record)
            if parsed is NOTHING:  # Most of the others.
                record = None
                continue
            record = parsed.record
            if not parsed.events:
                gathered.rejected += parsed.is_rejected
                continue
            if parsed.prefix and not self._filter.has_own_prefix(parsed):
                gathered.rejected += 1
                continue
            at = times.at(parsed.time)
            if type(parsed.events[0]) is AccessRequest:
                gathered.requests[parsed.events[0]] += 1
                continue
            gathered.events += [TimedEvent(at, event) for event in self._filter.admit(parsed, at)]
        self._record = record

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
        if self.is_foreign:
            self.is_foreign = not any(map(_is_vllms, lines))
        if self._is_terminal is None:
            access = next((line for line in lines if ACCESS_START in line and _is_uvicorns(line)), None)
            if access is not None:
                self._is_terminal = access.endswith(b"\r")
        if not self._is_terminal:
            return lines
        return [line[:-1] if line.endswith(b"\r") else line for line in lines]

    def _text_as_written(self, text: bytes, times: LineTimes) -> _Written:
        """Remove what `as_written` removes from lines."""
        if self.is_foreign:
            self.is_foreign = not any(map(_is_vllms, text.split(b"\n")))
        if self._is_terminal is None:
            access = next((line for line in _lines_with(ACCESS_START, text) if _is_uvicorns(line)), None)
            if access is not None:
                self._is_terminal = access.endswith(b"\r")
        written = b"\n" + (text.replace(b"\r\n", b"\n") if self._is_terminal else text)
        return _Written(written, access_form(written), times)

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


def _end_of_lone_lines(text: bytes, start: int, end: int) -> int:
    r"""Return where some lines end of which none ends in ``\r``; if the first one does, where that ends."""
    if end - start > PART:
        end = text.rfind(b"\n", start, start + PART) + 1 or text.find(b"\n", start) + 1
    sign = text.find(b"\r", start, end)  # Quicker than both bytes together, and most logs have none.
    opening = text.find(b"\r\n", sign, end) if sign >= 0 else -1
    return end if opening < 0 else text.rfind(b"\n", start, opening) + 1 or opening + 2


def _lines_with(sign: bytes, text: bytes) -> Iterator[bytes]:
    """Yield the lines that have a text in them."""
    at = text.find(sign)
    while at >= 0:
        end = text.find(b"\n", at)
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(sign, end)


def _is_vllms(line: bytes) -> bool:
    """Return whether a line has the form of vLLM's records or of uvicorn's lines."""
    head = parse_head(strip_ansi(line))
    return bool(head.time) or head.message.startswith(ACCESS_START)


def _is_uvicorns(line: bytes) -> bool:
    """Return whether a line is uvicorn's own and not a record of vLLM that quotes one."""
    head = parse_head(strip_ansi(line))
    return not head.site and head.message.startswith(ACCESS_START)


__all__ = ["KeptLines", "LogBatch", "LogReader", "TimedEvent"]
