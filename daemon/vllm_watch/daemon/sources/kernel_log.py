# SPDX-License-Identifier: Apache-2.0
"""
The kernel's log, for what it says of GPUs, followed through ``journalctl``.

What was written before the daemon first read it is history, and so is what an earlier run of the daemon has read: the
cursor tells. Only the kernel's own messages are passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vllm_watch.daemon.catalog.reasons import KernelLogReason
from vllm_watch.daemon.sources.journal_reader import KERNEL_FIELDS, Backlog, JournalEntry, parse_entry
from vllm_watch.daemon.sources.journalctl import JournalFollower
from vllm_watch.daemon.state.xid_events import KernelLine


JOURNAL, NEVER = "journal", "never"
"""Where the kernel's log is read."""

_DRIVERS = ("proc/driver/nvidia", "sys/module/nvidia", "dev/kfd")
"""What is there while a driver is loaded that computes on GPUs: NVIDIA's, or AMD's."""


class KernelJournal:
    """
    Follows the kernel's messages in systemd's journal, from the machine's boot on.

    What follows the cursor, the last entry that an earlier run of the daemon has read, counts. Entries bear the times
    of the wall clock.
    """

    def __init__(
        self,
        *,
        cursor: str | None = None,
        command: Sequence[str] = ("journalctl",),
        wall: Callable[[float], float] = lambda moment: moment,
    ) -> None:
        self._command = tuple(command)
        self._wall = wall
        self._journal = JournalFollower("starting")
        self._backlog = Backlog()
        self._earlier = cursor
        """The cursor of an earlier run of the daemon, until its entry is read, or all that there was."""
        self._read_to: str | None = None

    @property
    def cursor(self) -> str | None:
        """The last entry that was read. Before that of an earlier run of the daemon is found, it is that one."""
        return self._earlier or self._read_to

    @property
    def reason(self) -> KernelLogReason:
        """``ok``, or why there is nothing."""
        return self._journal.reason

    @property
    def has_more(self) -> bool:
        """Whether there is more to read at once."""
        return self._journal.has_more

    def poll(self, now: float) -> list[KernelLine]:
        """Return the messages since the last poll, without waiting; start journalctl if it is due."""
        if self._journal.is_due(now):
            self._start(now)
        found = self._read(self._journal.take(now), now)
        if self._journal.is_settled:
            self._end_backlog()
        if self._journal.has_bad_cursor:
            self._read_to = None
        return found

    def close(self) -> None:
        """End journalctl."""
        self._journal.close()

    def _start(self, now: float) -> None:
        is_cold = self._read_to is None
        self._backlog = Backlog(now, self._wall(now) - now, is_history=True) if is_cold else Backlog()
        options = ["--dmesg", "--output=json", f"--output-fields={KERNEL_FIELDS}", "--all", "--no-pager"]
        # Without --no-tail, --follow shows the last ten lines only.
        follow = ["--follow", "--no-tail", *([] if is_cold else [f"--after-cursor={self._read_to}"])]
        self._journal.start([*self._command, *options, *follow], now, is_cold=is_cold)

    def _read(self, lines: Iterable[bytes], now: float) -> list[KernelLine]:
        found = []
        for line in lines:
            entry = parse_entry(line)
            if entry is None:
                continue
            is_history = self._is_history(entry, now)
            if entry.is_kernel:
                found.append(KernelLine(entry.written, entry.message.decode("utf-8", "replace"), is_history))
            self._read_to = entry.cursor
        return found

    def _is_history(self, entry: JournalEntry, now: float) -> bool:
        """Tell whether an entry was read before, or written before the daemon first watched."""
        is_history = self._backlog.moment(entry.written, now).is_history
        if not is_history:
            self._earlier = None
        elif entry.cursor == self._earlier:
            self._end_backlog()  # The entries after this one are news.
        return is_history

    def _end_backlog(self) -> None:
        self._backlog.end()
        self._earlier = None


def has_gpu_driver(root: str = "/") -> bool:
    """Tell whether a driver is loaded that computes on GPUs."""
    return any(Path(root, name).exists() for name in _DRIVERS)
