# SPDX-License-Identifier: Apache-2.0
"""
One unit's lines from systemd's journal, through ``journalctl``: it knows the journal's formats, rights and rotations.

This module handles a journal that cannot be read, is empty, or does not know the cursor of an earlier run. Where it
resumes after a cursor, the last lines up to it are read first, as history.
"""

from __future__ import annotations

import contextlib

from collections.abc import Callable, Sequence

from vllm_watch.catalog.reasons import LogReason
from vllm_watch.reading.log_reader import LogBatch, LogReader
from vllm_watch.sources.journal_entries import FIELDS
from vllm_watch.sources.journal_history import HISTORY_LINES, HistoryRun
from vllm_watch.sources.journal_reader import JournalReader
from vllm_watch.sources.journalctl import Journalctl, RestartDelay
from vllm_watch.state.server import LogStatus
from vllm_watch.state.snapshot import TailCounts


SETTLED_AFTER = 10.0
"""Seconds without output after which journalctl counts as having printed all that there was."""


class JournalTailer:
    """
    Follows one unit's lines.

    Args:
        unit: The unit's name.
        cursor: Where to resume, from an earlier run; the last lines up to there, or of all without it, are history.
        command: How journalctl is called, before its options.
        wall: Returns the wall clock's time at a moment of `poll`: entries bear its times.
        make_reader: Returns a reader of the lines.

    Attributes:
        unit: The unit's name.
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
        self._command = tuple(command)
        self._wall = wall
        self._reader = JournalReader(cursor, make_reader)
        self._history_end = cursor
        """Where the history that is still to be read ends."""
        self._history_run: HistoryRun | None = None
        self._child: Journalctl | None = None
        self._restart_delay = RestartDelay()
        self._started_at = float("-inf")
        self._is_cold = self._is_settled = self._has_more = False
        self._reason: LogReason = "no_entries" if cursor is None else "ok"
        self._long_entries = 0
        """Entries that earlier children dropped for their length."""

    @property
    def cursor(self) -> str | None:
        """Where a later run resumes: the cursor of the last line that was read after which nothing was open."""
        return self._reader.cursor

    @property
    def is_waiting(self) -> bool:
        """Whether journalctl was started and has not yet shown whether there is anything."""
        if self._history_run is not None:
            return True
        return self._child is not None and not self._reader.has_read and not self._is_settled

    @property
    def has_more(self) -> bool:
        """Whether the last poll found as many lines as may wait: the child has more."""
        return self._has_more

    def poll(self, now: float) -> list[LogBatch]:
        """Read what came since the last poll, without waiting; start the child if it is due."""
        self._has_more = False
        history = self._poll_history(now)
        if self._is_due(now):
            self._start(now)
        child = self._child
        if child is None:
            return history
        is_over = child.is_over  # Asked first: then no line comes after those taken now.
        lines, self._has_more = child.take()
        batches = self._reader.read(lines, now)
        self._judge(child, now, is_silent=not lines)
        if is_over:
            self._note_end(child, now)
        return history + batches

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up = self._reason == "ok" and (self._child is not None or self._history_run is not None)
        reader, cut_lines = self._reader, self._reader.cut_lines
        long_entries = self._long_entries + (self._child.long_lines if self._child else 0)
        counts = TailCounts(
            lines=reader.lines,
            size=reader.size,
            lag=self._child.pending if is_up and self._child else None,
            long_lines=cut_lines.long_lines + long_entries,
            nul_bytes=cut_lines.nul_bytes,
            skipped_bytes=reader.skipped_bytes + cut_lines.skipped_bytes,
        )
        return LogStatus(is_up, self._reason, counts)

    def close(self) -> None:
        """End the child."""
        if self._history_run is not None:
            self._history_run.close()
            self._history_run = None
        if self._child is not None:
            self._child.close()
            self._long_entries += self._child.long_lines
            self._child = None

    def _is_due(self, now: float) -> bool:
        """Tell whether journalctl is to be started."""
        return self._child is None and self._history_run is None and self._restart_delay.is_over(now)

    def _poll_history(self, now: float) -> list[LogBatch]:
        """
        Read the last lines up to the cursor, without waiting; start the run that prints them if it is due.

        They are returned when all are there, once. If there is none, they are asked for again before the next child.
        """
        if self._history_run is None:
            self._start_history(now)
        run = self._history_run
        if run is None or not run.poll(now):
            return []
        self._history_run = None
        run.close()
        batches = self._reader.read_history(run.lines, now, ahead=self._wall(now) - now, is_cut=run.is_cut)
        if batches:
            self._history_end = None
        return batches

    def _start_history(self, now: float) -> None:
        """Start the run that prints history, if it is due; if that fails, the child that is started next says why."""
        cursor = self._reader.read_to
        if cursor is not None and cursor == self._history_end and self._is_due(now):
            options = ["--reverse", f"--lines={HISTORY_LINES}", f"--cursor={cursor}"]
            with contextlib.suppress(OSError):
                self._history_run = HistoryRun(self._arguments(*options), now)

    def _start(self, now: float) -> None:
        """Start the child; if that fails, note why."""
        read_to = self._reader.read_to
        self._is_cold = read_to is None
        self._is_settled = False
        self._started_at = now
        self._reader.start_run(now, ahead=self._wall(now) - now)
        # Without --no-tail, --follow shows the last ten lines only.
        first = [f"--lines={HISTORY_LINES}"] if read_to is None else ["--no-tail", f"--after-cursor={read_to}"]
        try:
            self._child = Journalctl(self._arguments("--follow", *first))
        except (FileNotFoundError, NotADirectoryError):
            self._fail("journalctl_missing", now)
        except PermissionError:
            self._fail("permission_denied", now)
        except OSError:
            self._fail("journal_failed", now)

    def _arguments(self, *options: str) -> list[str]:
        # Without --all, a message over 4 KiB is left out.
        common = ["--output=json", f"--output-fields={FIELDS}", "--all", "--no-pager", f"--unit={self.unit}"]
        return [*self._command, *common, *options]

    def _judge(self, child: Journalctl, now: float, *, is_silent: bool) -> None:
        """Take a child for working once it has printed lines, or nothing for a while; until then name its failure."""
        self._is_settled = is_silent and now - self._started_at >= SETTLED_AFTER
        if self._is_settled:
            self._reader.backlog.end()
        if self._reader.has_read:
            self._reason = "ok"
            self._restart_delay.reset()
        elif child.lacks_permission:
            self._reason = "permission_denied"
        elif self._is_settled and not child.is_over:
            # After a cursor it is the unit that is silent; without one there is no line of the unit at all.
            self._reason = "no_entries" if self._is_cold else "ok"
            self._restart_delay.reset()

    def _note_end(self, child: Journalctl, now: float) -> None:
        """Note why a child ended. If it did not know the cursor, the next one reads the last lines instead."""
        self.close()
        if child.has_bad_cursor and not self._reader.has_read:
            self._reader.drop_cursor()
        self._fail("permission_denied" if child.lacks_permission else "journal_failed", now)

    def _fail(self, reason: LogReason, now: float) -> None:
        self._reason = reason
        self._restart_delay.fail(now)
