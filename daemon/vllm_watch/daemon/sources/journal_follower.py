# SPDX-License-Identifier: Apache-2.0
"""
Keeps one journalctl running that follows the journal: starts it again after a delay, and names why it does not work.

What is read of the journal, and what its lines mean, is for others to decide: `journal_tailer`, `kernel_journal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vllm_watch.daemon.sources.journalctl import Journalctl
from vllm_watch.daemon.support.restart_delay import RestartDelay


JournalReason = Literal["ok", "starting", "no_entries", "permission_denied", "journalctl_missing", "journal_failed"]

SETTLED_AFTER = 10.0
"""Seconds without output after which journalctl counts as having printed all that there was."""


class JournalFollower:
    """
    Runs journalctl again and again.

    Args:
        reason: What is known of the journal before the first run.

    Attributes:
        reason: ``ok``, or why there are no lines.
        has_more: Whether the last `take` found as many lines as may wait: the child has more.
        has_bad_cursor: Whether the last run ended because it did not know the cursor that it was given.
    """

    def __init__(self, reason: JournalReason) -> None:
        self.reason: JournalReason = reason
        self.has_more = self.has_bad_cursor = False
        self._child: Journalctl | None = None
        self._restart_delay = RestartDelay()
        self._started_at = float("-inf")
        self._is_cold = self._is_settled = self._is_silent = self._is_over = False
        self._long_lines = 0
        """Lines that earlier children dropped for their length."""

    @property
    def is_running(self) -> bool:
        """Whether there is a journalctl; it may have ended since the last `judge`."""
        return self._child is not None

    @property
    def is_settled(self) -> bool:
        """Whether it has been silent for so long that it has printed all that there was."""
        return self._is_settled

    @property
    def pending(self) -> int | None:
        """Bytes that wait to be taken; `None` while nothing runs."""
        return self._child.pending if self._child is not None else None

    @property
    def long_lines(self) -> int:
        """How many lines were dropped for their length, in all runs."""
        return self._long_lines + (self._child.long_lines if self._child is not None else 0)

    def is_due(self, now: float) -> bool:
        """Tell whether journalctl is to be started."""
        return self._child is None and self._restart_delay.is_over(now)

    def start(self, arguments: Sequence[str], now: float, *, is_cold: bool) -> None:
        """
        Start it; if that fails, note why.

        Args:
            arguments: The whole command.
            now: The time.
            is_cold: Whether it prints what there is at all, and not only what comes after a cursor.
        """
        self._is_cold = is_cold
        self._is_settled = self.has_bad_cursor = False
        self._started_at = now
        try:
            self._child = Journalctl(arguments)
        except (FileNotFoundError, NotADirectoryError):
            self._fail("journalctl_missing", now)
        except PermissionError:
            self._fail("permission_denied", now)
        except OSError:
            self._fail("journal_failed", now)

    def take(self) -> list[bytes] | None:
        """Return the lines that were printed since the last call, without waiting; `None` while nothing runs."""
        self.has_more = False
        child = self._child
        if child is None:
            return None
        self._is_over = child.is_over  # Asked first: then no line comes after those taken now.
        lines, self.has_more = child.take()
        self._is_silent = not lines
        return lines

    def judge(self, now: float, *, has_read: bool) -> None:
        """
        Take a child for working once it has printed entries, or nothing for a while; until then name its failure.

        Call it after each `take`.

        Args:
            now: The time.
            has_read: Whether this run has printed an entry.
        """
        child = self._child
        if child is None:
            return
        self._is_settled = self._is_silent and now - self._started_at >= SETTLED_AFTER
        if has_read:
            self.reason = "ok"
            self._restart_delay.reset()
        elif child.lacks_permission:
            self.reason = "permission_denied"
        elif self._is_settled and not child.is_over:
            # After a cursor it is the log that is silent; without one there is no line at all.
            self.reason = "no_entries" if self._is_cold else "ok"
            self._restart_delay.reset()
        if self._is_over:
            self.has_bad_cursor = child.has_bad_cursor and not has_read
            reason: JournalReason = "permission_denied" if child.lacks_permission else "journal_failed"
            self.close()
            self._fail(reason, now)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._long_lines += self._child.long_lines
            self._child = None

    def _fail(self, reason: JournalReason, now: float) -> None:
        self.reason = reason
        self._restart_delay.fail(now)
