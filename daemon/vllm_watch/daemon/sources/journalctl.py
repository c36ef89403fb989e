# SPDX-License-Identifier: Apache-2.0
"""
Running journalctl: a child process with the thread that reads its output, kept running, and one that ends.

This module handles a journalctl that hangs, prints too much or never, ends, or may not read the journal. What is read
of the journal, and what its lines mean, is for others to decide: `journal_tailer`, `kernel_log`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading

from collections.abc import Sequence
from typing import Literal

from vllm_watch.daemon.reading.framing import LineFramer
from vllm_watch.daemon.support.clock import RestartDelay


QUEUE_SIZE = 4 * 1024 * 1024
"""Bytes that wait to be read; beyond them the child waits."""

MAX_ENTRY = 1024 * 1024
"""Longer entries are no lines of a log: a message of `MAX_LINE` bytes takes five characters for each at most."""

_READ_SIZE = 64 * 1024
_ERRORS_SIZE = 4096
_PATIENCE = 0.8
# The last of them ends the hint that others' messages are not shown.
_NO_PERMISSION = (b"insufficient permissions", b"Permission denied", b"turn off this notice")

JournalReason = Literal["ok", "starting", "no_entries", "permission_denied", "journalctl_missing", "journal_failed"]

SETTLED_AFTER = 10.0
"""Seconds without output after which journalctl counts as having printed all that there was."""

HISTORY_LINES = 2000

MAX_SECONDS = 10.0
"""How long old entries may take: new ones wait for them."""


class Journalctl:
    """
    A running journalctl, and the thread that reads what it prints. Raises `OSError` if it cannot be started.

    `pending` are the bytes that wait to be read.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it.
        try:
            self._process = subprocess.Popen(  # noqa: S603  # The configured command; no shell.
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                bufsize=0,
                env={**os.environ, "LC_ALL": "C"},  # Its errors are recognised by their words.
                start_new_session=True,  # A terminal's Ctrl-C is for the daemon.
            )
        except OSError:
            self._complaints.close()
            raise
        self._framer = LineFramer(MAX_ENTRY)
        self._lines: list[bytes] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return not self._thread.is_alive()

    @property
    def long_lines(self) -> int:
        """How many entries were dropped for their length."""
        return self._framer.long_lines

    @property
    def has_bad_cursor(self) -> bool:
        """Whether its last error is about the cursor that it was given."""
        return b"cursor" in self._last_error

    @property
    def lacks_permission(self) -> bool:
        """Whether its last error is that it may not read the journal."""
        return any(words in self._last_error for words in _NO_PERMISSION)

    def take(self) -> tuple[list[bytes], bool]:
        """Return the lines that wait, and whether they were as many as may wait."""
        with self._changed:
            lines, self._lines = self._lines, []
            was_full = self.pending >= QUEUE_SIZE
            self.pending = 0
            self._changed.notify_all()
        return lines, was_full

    def close(self) -> None:
        """End the process and the thread, and close the pipes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._end_process()
        self._thread.join()
        for file in (self._process.stdout, self._complaints):
            if file is not None:
                file.close()

    @property
    def _last_error(self) -> bytes:
        file = self._complaints.fileno()
        end = os.pread(file, _ERRORS_SIZE, max(os.fstat(file).st_size - _ERRORS_SIZE, 0))
        return end.rstrip().rpartition(b"\n")[2]

    def _end_process(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        while self._process.stdout is not None and (data := self._process.stdout.read(_READ_SIZE)):
            self._put(self._framer.feed(data))

    def _put(self, lines: list[bytes]) -> None:
        """Queue lines; while too many wait, wait too."""
        with self._changed:
            self._lines += lines
            self.pending += sum(map(len, lines))
            self._changed.wait_for(lambda: self.pending < QUEUE_SIZE or self._is_closed)


class JournalFollower:
    """
    Runs journalctl again and again.

    Args:
        reason: What is known of the journal before the first run.

    Attributes:
        reason: ``ok``, or why there are no lines.
        has_more: Whether the last `take` found as many lines as may wait: the child has more.
        has_bad_cursor: Whether the last run ended because it did not know the cursor that it was given.
        has_read: Whether the present run has printed an entry.
        is_settled: Whether it has been silent for so long that it has printed all that there was.
    """

    def __init__(self, reason: JournalReason) -> None:
        self.reason: JournalReason = reason
        self.has_more = self.has_bad_cursor = False
        self._child: Journalctl | None = None
        self._restart_delay = RestartDelay()
        self._started_at = float("-inf")
        self._is_cold = self.has_read = self.is_settled = False
        self._long_lines = 0
        """Lines that earlier children dropped for their length."""

    @property
    def is_running(self) -> bool:
        """Whether there is a journalctl; it may have ended since the last `take`."""
        return self._child is not None

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
        """Start it; if that fails, note why. `is_cold`: it prints what there is, not only what follows a cursor."""
        self._is_cold = is_cold
        self.has_read = self.is_settled = self.has_bad_cursor = False
        self._started_at = now
        try:
            self._child = Journalctl(arguments)
        except (FileNotFoundError, NotADirectoryError):
            self._fail("journalctl_missing", now)
        except PermissionError:
            self._fail("permission_denied", now)
        except OSError:
            self._fail("journal_failed", now)

    def take(self, now: float) -> list[bytes]:
        """
        Return the lines that were printed since the last call, without waiting.

        A child works once it has printed entries, or nothing for a while; until then `reason` names its failure.
        """
        self.has_more = False
        child = self._child
        if child is None:
            return []
        is_over = child.is_over  # Asked first: then no line comes after those taken now.
        lines, self.has_more = child.take()
        self.has_read = self.has_read or any(line.startswith(b"{") for line in lines)
        self.is_settled = not lines and now - self._started_at >= SETTLED_AFTER
        if self.has_read:
            self.reason = "ok"
            self._restart_delay.reset()
        elif child.lacks_permission:
            self.reason = "permission_denied"
        elif self.is_settled and not is_over:
            # After a cursor it is the log that is silent; without one there is no line at all.
            self.reason = "no_entries" if self._is_cold else "ok"
            self._restart_delay.reset()
        if is_over:
            self.has_bad_cursor = child.has_bad_cursor and not self.has_read
            reason: JournalReason = "permission_denied" if child.lacks_permission else "journal_failed"
            self.close()
            self._fail(reason, now)
        return lines

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._long_lines += self._child.long_lines
            self._child = None

    def _fail(self, reason: JournalReason, now: float) -> None:
        self.reason = reason
        self._restart_delay.fail(now)


def last_entries(arguments: Sequence[str]) -> tuple[list[bytes], bool]:
    """
    Return what a journalctl prints that ends, the newest entry first; and whether there may be more before it.

    The lines are in the order in which they were written. What is printed after `MAX_SECONDS` is given up.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  # As above.
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:  # The run that follows says why.
        return [], False
    with process:
        end = threading.Timer(MAX_SECONDS, process.kill)
        end.start()
        printed = process.stdout.read(QUEUE_SIZE) if process.stdout is not None else b""
        end.cancel()
        if len(printed) >= QUEUE_SIZE:
            process.kill()
    lines = printed.split(b"\n")[:-1]
    return lines[::-1], process.returncode != 0 or len(lines) >= HISTORY_LINES
