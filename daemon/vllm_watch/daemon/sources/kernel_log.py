# SPDX-License-Identifier: Apache-2.0
"""
The kernel's log, for what it says of GPUs: followed through ``journalctl``, or read from ``/dev/kmsg``.

What was written before the daemon first read it is history, and so is what an earlier run of the daemon has read: the
cursor tells. Only the kernel's own messages are passed on. ``/dev/kmsg`` is for places without a journal: containers,
machines without systemd. One read of it is a record: ``priority,sequence,microseconds since boot,flags;text``,
then lines with further fields (Linux, Documentation/ABI/testing/dev-kmsg). Records that were overwritten before they
were read are passed over.
"""

from __future__ import annotations

import errno
import os
import re
import time

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vllm_watch.daemon.catalog.reasons import KernelLogReason
from vllm_watch.daemon.sources.journal_reader import KERNEL_FIELDS, Backlog, JournalEntry, parse_entry
from vllm_watch.daemon.sources.journalctl import JournalFollower
from vllm_watch.daemon.state.xid_events import KernelLine
from vllm_watch.daemon.support.clock import RestartDelay


JOURNAL, NEVER = "journal", "never"
"""Where the kernel's log is read, if it is not a file."""

_DRIVERS = ("proc/driver/nvidia", "sys/module/nvidia", "dev/kfd")
"""What is there while a driver is loaded that computes on GPUs: NVIDIA's, or AMD's."""

_RECORD_SIZE = 16_384
"""The kernel's records have at most 8 KiB."""

_MAX_RECORDS = 10_000
"""Of one poll."""

_HEAD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};([^\n]*)")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_FACILITY_SHIFT = 3
"""A priority is a facility and, in its lowest bits, a level. The kernel's facility is 0; programs have others."""

_REASONS: dict[int, KernelLogReason] = {
    errno.ENOENT: "not_found",
    errno.EPERM: "permission_denied",
    errno.EACCES: "permission_denied",
}


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
        self._has_read = False

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
        lines = self._journal.take()
        if lines is None:
            return []
        found = self._read(lines, now)
        self._journal.judge(now, has_read=self._has_read)
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
        self._has_read = False
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
            self._has_read = True
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


def this_boot() -> str:
    """Return the id of this machine's present boot, empty if it is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Kmsg:
    """
    Reads the records of the kernel's ring buffer, from the oldest that it has.

    The cursor is the last record that an earlier run of the daemon has read; it counts if the machine was not booted
    since.
    """

    def __init__(  # noqa: PLR0913 - The last two are the machine's.
        self,
        path: str,
        *,
        cursor: str | None = None,
        wall: Callable[[float], float],
        boot: str,
        uptime: Callable[[], float] = time.monotonic,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._path = path
        self._wall = wall
        self._boot, self._uptime = boot, uptime
        self._read_once = read
        self._known = self._known_until(cursor)
        """The number of the last record that is history, as far as it is known."""
        self._read_to: int | None = None
        self._descriptor: int | None = None
        self._restart_delay = RestartDelay()
        self._has_drained = False
        self.reason: KernelLogReason = "starting"
        self.has_more = False

    @property
    def cursor(self) -> str | None:
        """The last record that was read, with the boot that it is of."""
        last = max((number for number in (self._read_to, self._known) if number is not None), default=None)
        return None if last is None else f"{self._boot} {last}"

    def poll(self, now: float) -> list[KernelLine]:
        """Return the kernel's own messages since the last poll, without waiting; open the device if it is due."""
        if self._descriptor is None:
            self._open(now)
        if self._descriptor is None:
            return []
        offset = self._wall(now) - self._uptime()
        found = []
        self.has_more = True
        for _ in range(_MAX_RECORDS):
            record = self._next_record(self._descriptor, now)
            if record is None:
                self.has_more = False
                break
            line = self._line(record, offset)
            if line is not None:
                found.append(line)
        if not self.has_more and self._descriptor is not None:
            self._has_drained = True
        return found

    def close(self) -> None:
        """Close the device."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, now: float) -> None:
        if not self._restart_delay.is_over(now):
            return
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            self._fail(error, now)
        else:
            self.reason = "ok"

    def _next_record(self, descriptor: int, now: float) -> bytes | None:
        """Return the next record; `None` if there is none now."""
        for _ in range(_MAX_RECORDS):
            try:
                record = self._read_once(descriptor, _RECORD_SIZE)
            except BlockingIOError:
                return None
            except BrokenPipeError:
                continue  # Records were overwritten: the next read returns the oldest that is there.
            except OSError as error:
                self.close()
                self._fail(error, now)
                return None
            self._restart_delay.reset()
            return record or None
        return None

    def _line(self, record: bytes, offset: float) -> KernelLine | None:
        """Return a record's message, if it is one of the kernel itself and was not read before."""
        head = _HEAD.match(record)
        if head is None:
            return None
        priority, number, microseconds = (int(head[group]) for group in (1, 2, 3))
        if self._read_to is not None and number <= self._read_to:
            return None  # The device was opened again.
        self._read_to = number
        if priority >> _FACILITY_SHIFT:
            return None
        text = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), head[4]).decode("utf-8", "replace")
        is_history = number <= self._known if self._known is not None else not self._has_drained
        return KernelLine(offset + microseconds / 1e6, text, is_history)

    def _known_until(self, cursor: str | None) -> int | None:
        boot, _, number = (cursor or "").partition(" ")
        return int(number) if boot and boot == self._boot and number.isascii() and number.isdigit() else None

    def _fail(self, error: OSError, now: float) -> None:
        self.reason = _REASONS.get(error.errno or 0, "read_error")
        self._restart_delay.fail(now)


KernelLog = KernelJournal | Kmsg
"""A way to read the kernel's log."""


def kernel_log(place: str, cursor: str | None, wall: Callable[[float], float]) -> KernelLog:
    """Return what reads the kernel's log in a place: `JOURNAL`, or a path such as ``/dev/kmsg``."""
    if place == JOURNAL:
        return KernelJournal(cursor=cursor, wall=wall)
    return Kmsg(place, cursor=cursor, wall=wall, boot=this_boot())


def has_gpu_driver(root: str = "/") -> bool:
    """Tell whether a driver is loaded that computes on GPUs."""
    return any(Path(root, name).exists() for name in _DRIVERS)
