# SPDX-License-Identifier: Apache-2.0
"""
Reads what journalctl prints: entries, and the lines that a service printed in them.

This module handles the journal's backlog (entries from before journalctl was started have the journal's times), output
that is no entry, and cut lines. The journal cuts what a service prints into entries, and where it cuts inside a line
(after LineMax, 48 KiB by default, at a NUL, or when the process changes) the pieces cannot be joined again: entries of
other processes are between them. All pieces of such a line are dropped and counted, because what follows a cut is
untrusted text.
"""

from __future__ import annotations

import itertools
import math

from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

import msgspec

from vllm_watch.daemon.reading.framing import KEPT, MAX_LINE, shortened
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes


FIELDS = "MESSAGE,_LINE_BREAK,_STREAM_ID"
"""The fields that journalctl is asked for; it always adds the cursor and the time."""

KERNEL_FIELDS = "MESSAGE,_TRANSPORT,SYSLOG_FACILITY"
"""The same for the kernel's own messages: they have no streams, and the last two tell them from others."""

MAX_CUT_STREAMS = 64


class JournalEntry(msgspec.Struct, frozen=True):
    """
    An entry as ``journalctl -o json`` prints it.

    Attributes:
        cursor: Its place in the journal; it becomes an argument.
        microseconds: When it was written, since the epoch.
        printed: The message; one that is not printable UTF-8 is a list of numbers.
        line_break: Why the journal ended the message inside a line, if it did.
        stream: Which of the service's streams printed it; empty if the journal did not get it from a stream.
    """

    cursor: Annotated[str, msgspec.Meta(pattern=r"\A[^\0]+\Z")] = msgspec.field(name="__CURSOR")
    microseconds: Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,18}\Z")] = msgspec.field(name="__REALTIME_TIMESTAMP")
    printed: str | list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = msgspec.field(default=None, name="MESSAGE")
    line_break: str | None = msgspec.field(default=None, name="_LINE_BREAK")
    stream: str = msgspec.field(default="", name="_STREAM_ID")
    transport: str = msgspec.field(default="", name="_TRANSPORT")
    facility: str = msgspec.field(default="", name="SYSLOG_FACILITY")

    @property
    def written(self) -> float:
        """When it was written, in seconds since the epoch."""
        return int(self.microseconds) / 1e6

    @property
    def message(self) -> bytes:
        """What the service printed."""
        if isinstance(self.printed, str):
            return self.printed.encode("utf-8", "backslashreplace")
        return bytes(self.printed or ())

    @property
    def is_kernel(self) -> bool:
        """
        Whether the kernel itself wrote it, as far as the entry has `KERNEL_FIELDS`.

        Programs that write to the kernel's log have another facility, all others another transport.
        """
        return (self.transport, self.facility) == ("kernel", "0")


_decode = msgspec.json.Decoder(JournalEntry).decode


def parse_entry(line: bytes) -> JournalEntry | None:
    """Read a line of journalctl's output, or return `None` if it is no entry."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class CutLines:
    """
    Makes lines of entries, and drops the pieces of lines that were cut.

    Attributes:
        skipped_bytes: Bytes of messages that were dropped.
        long_lines: Lines that were dropped.
        nul_bytes: NUL bytes that were removed.
    """

    def __init__(self) -> None:
        self.skipped_bytes = self.long_lines = self.nul_bytes = 0
        self._cut_streams: dict[str, bytes] = {}
        """Streams in the middle of a line that was cut, and the first bytes of that line."""

    def forget(self) -> None:
        """Continue elsewhere in the journal, where nothing is known to be cut."""
        self._cut_streams.clear()

    def forget_counts(self) -> None:
        """Count from zero."""
        self.skipped_bytes = self.long_lines = self.nul_bytes = 0

    def line(self, entry: JournalEntry) -> bytes | None:
        """Return the line that an entry holds or completes, `shortened` if it was cut; of a piece of one nothing."""
        message, is_cut = entry.message, entry.line_break is not None
        first_bytes = self._cut_streams.pop(entry.stream, None)
        if first_bytes is None and not is_cut and len(message) <= MAX_LINE:
            return self._first_line(message)
        self.skipped_bytes += len(message)
        self.long_lines += first_bytes is None
        if first_bytes is None:
            first_bytes = message[:KEPT].replace(b"\0", b"")
        if not is_cut:
            return shortened(first_bytes, ends_open=message.endswith(b"\r"))
        if entry.line_break != "eof":  # The end of the stream.
            self._cut_streams[entry.stream] = first_bytes
            while len(self._cut_streams) > MAX_CUT_STREAMS:
                del self._cut_streams[next(iter(self._cut_streams))]  # The oldest has ended.
        return None

    def _first_line(self, message: bytes) -> bytes:
        r"""Remove NULs, and what follows a ``\n``: that is the text of one record and no line of its own."""
        self.nul_bytes += message.count(b"\0")
        line, end, rest = message.replace(b"\0", b"").partition(b"\n")
        self.skipped_bytes += len(rest)
        return line.removesuffix(b"\r") if end else line


class Moment(NamedTuple):
    """When entries were written, by the clock of `poll`, and whether before the daemon watched."""

    at: float
    is_history: bool


class Backlog:
    """
    Tells entries that were written before journalctl was started from new ones.

    Args:
        started_at: When it was started, by the clock of `poll`; by default there is no backlog.
        ahead: By how many seconds the wall clock, whose times entries bear, was ahead of that clock.
        is_history: Whether the backlog was written before the daemon watched.
    """

    def __init__(self, started_at: float | None = None, ahead: float = 0.0, *, is_history: bool = False) -> None:
        self._started_at = started_at
        self._ahead = ahead
        self._is_history = is_history

    def end(self) -> None:
        """Take all further entries for new. Times alone do not show it: the wall clock may have been set back."""
        self._started_at = None

    def moment(self, written: float, now: float) -> Moment:
        """Return the journal's time, to the second, for an entry of the backlog, and else that of arrival."""
        written -= self._ahead
        if self._started_at is not None and written <= self._started_at:
            return Moment(min(float(int(written)), now), self._is_history)
        self.end()
        return Moment(now, is_history=False)


class JournalReader:
    """
    Reads one unit's entries in order, over all runs of journalctl.

    Args:
        cursor: The entry after which reading starts, from an earlier run of the daemon, if there was one.

    Attributes:
        cursor: The last entry that was read: where the next run of journalctl, or of the daemon, resumes.
        backlog: Tells which entries are old.
        cut_lines: Makes lines of entries.
        lines: Lines read so far, without history.
        size: Their bytes.
        skipped_bytes: Bytes of output that was no entry.
    """

    def __init__(self, cursor: str | None = None, make_reader: Callable[[], LogReader] = LogReader) -> None:
        self.cursor = cursor
        self.backlog = Backlog()
        self.cut_lines = CutLines()
        self.lines = self.size = self.skipped_bytes = 0
        self._make_reader = make_reader
        self._log_reader = make_reader()
        self._is_after_gap = False

    def start_run(self, started_at: float, ahead: float) -> None:
        """Prepare for the output of a new run of journalctl; without a cursor its first lines are history."""
        is_cold = self.cursor is None
        self.backlog = Backlog(started_at, ahead, is_history=is_cold)
        if is_cold:
            self._log_reader = self._make_reader()
            self.cut_lines.forget()

    def read_history(self, lines: Iterable[bytes], now: float, *, ahead: float, is_cut: bool) -> list[LogBatch]:
        """
        Return the messages in lines of journalctl's output that end at the cursor; nothing is counted.

        `ahead` is by how many seconds the wall clock is ahead of that of `now`. If the lines are cut, there may be some
        before them, and the first one may continue a record.
        """
        past = JournalReader(make_reader=self._make_reader)
        past.backlog = Backlog(math.inf, ahead, is_history=True)
        if is_cut:
            past._log_reader.lose_place()
        batches = past.read(lines, now)
        if batches:  # What follows the cursor is read as if there had been no restart.
            self._log_reader, self.cut_lines = past._log_reader, past.cut_lines
            self.cut_lines.forget_counts()
        return batches

    def drop_cursor(self) -> None:
        """Start again with the last entries: the cursor does not belong to this journal."""
        self.cursor = None
        self._is_after_gap = True

    def read(self, lines: Iterable[bytes], now: float) -> list[LogBatch]:
        """Return the messages in lines of journalctl's output that arrive now."""
        batches = []
        parsed = ((parse_entry(line), len(line)) for line in lines)
        for moment, group in itertools.groupby(parsed, lambda each: self._moment(each[0], now)):
            if moment is None:
                self._lose_place(sum(size for _, size in group))
                continue
            entries = [entry for entry, _ in group if entry is not None]
            texts = [text for entry in entries if (text := self.cut_lines.line(entry)) is not None]
            batches.append(self._read_texts(texts, moment))
            self.cursor = entries[-1].cursor
        return batches

    def _moment(self, entry: JournalEntry | None, now: float) -> Moment | None:
        return None if entry is None else self.backlog.moment(entry.written, now)

    def _lose_place(self, size: int) -> None:
        """Skip output that is no entry: a record may have been opened in it."""
        self.skipped_bytes += size
        self._log_reader.lose_place()
        self._is_after_gap = True

    def _read_texts(self, texts: list[bytes], moment: Moment) -> LogBatch:
        batch = self._log_reader.read(texts, ArrivalTimes(moment.at))._replace(is_after_gap=self._is_after_gap)
        self._is_after_gap = False
        if not moment.is_history:
            self.lines += batch.lines
            self.size += batch.size
        return batch._replace(is_history=moment.is_history)
