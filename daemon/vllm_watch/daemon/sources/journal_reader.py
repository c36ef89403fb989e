# SPDX-License-Identifier: Apache-2.0
"""
Turns what journalctl prints into batches of messages, and keeps the cursor at which a later run resumes.

This module handles the journal's backlog (entries from before journalctl was started have the journal's times) and
output that is not an entry. A later run resumes only where no line and no record is unfinished: the text that continues
one is untrusted.
"""

from __future__ import annotations

import itertools
import math

from collections.abc import Callable, Iterable
from typing import NamedTuple

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources.journal_entries import CutLines, JournalEntry, parse_entry


MAX_REPEATED = 1000
"""Entries that a later run may read again; a line or record that stays open for longer is not waited for."""


class _Line(NamedTuple):
    """A line of journalctl's output: an entry, or nothing that can be read."""

    entry: JournalEntry | None
    size: int


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
        make_reader: Returns a reader of the lines.

    Attributes:
        cursor: Where a later run of the daemon resumes: the last entry that was read after which nothing was open.
        read_to: The last entry that was read: where the next run of journalctl resumes.
        backlog: Tells which entries are old.
        cut_lines: Makes lines of entries.
        has_read: Whether the present run of journalctl has printed an entry.
        lines: Lines read so far, without history.
        size: Their bytes.
        skipped_bytes: Bytes of output that was no entry.
    """

    def __init__(self, cursor: str | None = None, make_reader: Callable[[], LogReader] = LogReader) -> None:
        self.cursor = self.read_to = cursor
        self.backlog = Backlog()
        self.cut_lines = CutLines()
        self.has_read = False
        self.lines = self.size = self.skipped_bytes = 0
        self._make_reader = make_reader
        self._log_reader = make_reader()
        self._repeated = 0
        self._is_after_gap = False

    def start_run(self, started_at: float, ahead: float) -> None:
        """Prepare for the output of a new run of journalctl; without a cursor its first lines are history."""
        is_cold = self.read_to is None
        self.backlog = Backlog(started_at, ahead, is_history=is_cold)
        self.has_read = False
        if is_cold:
            self._log_reader = self._make_reader()
            self.cut_lines.forget()

    def read_history(self, lines: Iterable[bytes], now: float, *, ahead: float, is_cut: bool) -> list[LogBatch]:
        """
        Return the messages in lines of journalctl's output that end at the cursor; nothing is counted.

        Args:
            lines: The lines, the oldest first.
            now: The time.
            ahead: By how many seconds the wall clock is ahead of that of `now`.
            is_cut: Whether there may be lines before them: the first one may continue a record.
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
        self.cursor = self.read_to = None
        self._is_after_gap = True

    def read(self, lines: Iterable[bytes], now: float) -> list[LogBatch]:
        """Return the messages in lines of journalctl's output that arrive now."""
        batches = []
        parsed = (_Line(parse_entry(line), len(line)) for line in lines)
        for moment, group in itertools.groupby(parsed, lambda line: self._moment(line, now)):
            if moment is None:
                self._lose_place(group)
                continue
            entries = [line.entry for line in group if line.entry is not None]
            texts = [text for entry in entries if (text := self.cut_lines.line(entry)) is not None]
            batches.append(self._read_texts(texts, moment))
            self._note_cursor(entries)
        return batches

    def _moment(self, line: _Line, now: float) -> Moment | None:
        return None if line.entry is None else self.backlog.moment(line.entry.written, now)

    def _lose_place(self, lines: Iterable[_Line]) -> None:
        """Skip output that is no entry: a line may have been cut in it, or a record opened."""
        self.skipped_bytes += sum(line.size for line in lines)
        self._log_reader.lose_place()
        self.cut_lines.lose_place()
        self._is_after_gap = True

    def _read_texts(self, texts: list[bytes], moment: Moment) -> LogBatch:
        batch = self._log_reader.read(texts, ArrivalTimes(moment.at))._replace(is_after_gap=self._is_after_gap)
        self._is_after_gap = False
        if not moment.is_history:
            self.lines += batch.lines
            self.size += batch.size
        return batch._replace(is_history=moment.is_history)

    def _note_cursor(self, entries: list[JournalEntry]) -> None:
        self.read_to, self.has_read = entries[-1].cursor, True
        self._repeated += len(entries)
        if self._repeated > MAX_REPEATED or not (self.cut_lines.cut_streams or self._log_reader.is_in_record):
            self.cursor, self._repeated = self.read_to, 0
