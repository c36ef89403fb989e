# SPDX-License-Identifier: Apache-2.0
"""
One unit's lines from systemd's journal, through ``journalctl``: it knows the journal's formats, rights and rotations.

This module handles a journal that does not know the cursor of an earlier run. Where it resumes after a cursor, the last
lines up to it are read first, as history. One that cannot be read is handled in `journalctl`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader, LogStatus, TailCounts
from vllm_watch.daemon.sources.journal_reader import FIELDS, JournalReader
from vllm_watch.daemon.sources.journalctl import HISTORY_LINES, JournalFollower, last_entries


class JournalTailer:
    """
    Follows one unit's lines.

    Args:
        unit: The unit's name.
        cursor: Where to resume, from an earlier run; the last lines up to there, or of all without it, are history.
        command: How journalctl is called, before its options.
        wall: Returns the wall clock's time at a moment of `poll`: entries bear its times.

    Attributes:
        has_lost_place: Whether the journal does not know the cursor of the earlier run.
    """

    def __init__(
        self,
        unit: str,
        *,
        cursor: str | None = None,
        command: Sequence[str] = ("journalctl",),
        wall: Callable[[float], float] = lambda moment: moment,
        make_reader: Callable[[], LogReader] = LogReader,
    ) -> None:
        self.unit = unit
        self.has_lost_place = False
        self._command = tuple(command)
        self._wall = wall
        self._reader = JournalReader(cursor, make_reader)
        self._history_end = cursor
        """Where the history that is still to be read ends."""
        self._journal = JournalFollower("no_entries" if cursor is None else "ok")

    @property
    def cursor(self) -> str | None:
        """Where a later run resumes: the cursor of the last line that was read."""
        return self._reader.cursor

    @property
    def is_waiting(self) -> bool:
        """Whether journalctl was started and has not yet shown whether there is anything."""
        return self._journal.is_running and not self._journal.has_read and not self._journal.is_settled

    @property
    def has_more(self) -> bool:
        """Whether the last poll found as many lines as may wait: the child has more."""
        return self._journal.has_more

    def poll(self, now: float) -> list[LogBatch]:
        """Read what came since the last poll; start the child if it is due. Only for history is waited."""
        history: list[LogBatch] = []
        if self._journal.is_due(now):
            history = self._read_history(now)
            self._start(now)
        batches = self._reader.read(self._journal.take(now), now)
        if self._journal.is_settled:
            self._reader.backlog.end()
        if self._journal.has_bad_cursor:  # The next run reads the last lines instead.
            self._reader.drop_cursor()
            self.has_lost_place = True
        return history + batches

    def status(self) -> LogStatus:
        """Return how reading goes."""
        journal = self._journal
        is_up = journal.reason == "ok" and journal.is_running
        reader, cut_lines = self._reader, self._reader.cut_lines
        counts = TailCounts(
            lines=reader.lines,
            size=reader.size,
            lag=journal.pending if is_up else None,
            long_lines=cut_lines.long_lines + journal.long_lines,
            nul_bytes=cut_lines.nul_bytes,
            skipped_bytes=reader.skipped_bytes + cut_lines.skipped_bytes,
        )
        return LogStatus(is_up, journal.reason, counts)

    def close(self) -> None:
        """End the child."""
        self._journal.close()

    def _read_history(self, now: float) -> list[LogBatch]:
        """Return the last lines up to the cursor of an earlier run, once."""
        cursor = self._reader.cursor
        if cursor is None or cursor != self._history_end:
            return []
        options = ["--reverse", f"--lines={HISTORY_LINES}", f"--cursor={cursor}"]
        lines, is_cut = last_entries(self._arguments(*options))
        batches = self._reader.read_history(lines, now, ahead=self._wall(now) - now, is_cut=is_cut)
        if batches:
            self._history_end = None
        return batches

    def _start(self, now: float) -> None:
        cursor = self._reader.cursor
        self._reader.start_run(now, ahead=self._wall(now) - now)
        # Without --no-tail, --follow shows the last ten lines only.
        first = [f"--lines={HISTORY_LINES}"] if cursor is None else ["--no-tail", f"--after-cursor={cursor}"]
        self._journal.start(self._arguments("--follow", *first), now, is_cold=cursor is None)

    def _arguments(self, *options: str) -> list[str]:
        # Without --all, a message over 4 KiB is left out.
        common = ["--output=json", f"--output-fields={FIELDS}", "--all", "--no-pager", f"--unit={self.unit}"]
        return [*self._command, *common, *options]
