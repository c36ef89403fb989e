# SPDX-License-Identifier: Apache-2.0
"""
The logs of one server, followed by path or glob: files may appear, be rotated, be truncated, be replaced.

Polling is the truth: each look compares what is open with what the path names now. Who wakes the looker does not
matter.
"""

from __future__ import annotations

import errno
import glob
import os

from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_watch.reading.log_reader import LogBatch, LogReader
from vllm_watch.reading.times import ArrivalTimes, LineTimes
from vllm_watch.sources.history import stretches, times_of
from vllm_watch.sources.logfile import READ_SIZE, FileId, NotRegularError, OpenLog
from vllm_watch.state.server import LogStatus
from vllm_watch.state.snapshot import TailCounts


ROTATE_WAIT = 10.0
"""Seconds for which a rotated file is still read: its writer may not have noticed yet."""

MAX_READS = 32
"""Pieces read at one look, so that nothing else waits for a backlog."""

MAX_FILES = 64

_GLOB_SIGNS = frozenset("*?[")
_REASONS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ELOOP: "symlink_loop",
    errno.EISDIR: "not_regular",
    errno.ENXIO: "not_regular",
}


class TailedBatch(NamedTuple):
    """What some lines said; history was written before the daemon looked for the first time."""

    batch: LogBatch
    is_history: bool


@dataclass(slots=True)
class _Followed:
    """A path's present file, and the one it was before while that may still be written."""

    path: str
    current: OpenLog
    reader: LogReader = field(default_factory=LogReader)
    rotated: OpenLog | None = None
    rotated_at: float = 0.0
    removed_at: float | None = None


class LogTail:
    """
    Follows one path or glob.

    Args:
        pattern: The path, or a glob whose matches are all logs of the server.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._is_glob = bool(_GLOB_SIGNS & set(pattern))
        self._followed: dict[str, _Followed] = {}
        self._has_looked = False
        self._has_more = False
        self._reason = "not_found"
        self._lines = self._size = self._truncations = self._rotations = 0
        self._long_lines = self._nul_bytes = 0

    @property
    def pattern(self) -> str:
        """The absolute path or glob that is followed."""
        return os.path.abspath(self._pattern)

    @property
    def has_more(self) -> bool:
        """Whether the last look stopped before the end of what was there."""
        return self._has_more

    def poll(self, now: float) -> list[TailedBatch]:
        """Look at all files once and return what is new."""
        self._has_more = False
        batches: list[TailedBatch] = []
        self._reason = "not_found"
        for path in dict.fromkeys([*self._paths(), *self._followed]):
            batches += self._look_at(path, now)
        self._has_looked = True
        return batches

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up = bool(self._followed)
        lag = sum(max(item.current.size() - item.current.offset, 0) for item in self._followed.values())
        pending = sum(item.current.framer.pending for item in self._followed.values())
        counts = TailCounts(
            lines=self._lines,
            size=self._size,
            lag=lag + pending if is_up else None,
            truncations=self._truncations,
            rotations=self._rotations,
            long_lines=self._long_lines + sum(item.current.framer.long_lines for item in self._followed.values()),
            nul_bytes=self._nul_bytes + sum(item.current.framer.nul_bytes for item in self._followed.values()),
        )
        return LogStatus(is_up, "ok" if is_up else self._reason, counts)

    def close(self) -> None:
        """Close all files."""
        for followed in self._followed.values():
            followed.current.close()
            if followed.rotated is not None:
                followed.rotated.close()
        self._followed.clear()

    def _paths(self) -> list[str]:
        if not self._is_glob:
            return [self._pattern]
        return sorted(glob.glob(self._pattern), key=_modified)[:MAX_FILES]  # A pattern of strings.

    def _look_at(self, path: str, now: float) -> list[TailedBatch]:
        try:
            return self._follow(path, now)
        except OSError as error:
            self._reason = _REASONS.get(error.errno or 0, "read_error")
            if isinstance(error, NotRegularError):
                self._reason = "not_regular"
            return self._finish_removed(path, now) if path in self._followed else []

    def _follow(self, path: str, now: float) -> list[TailedBatch]:
        status = os.stat(path)
        file_id = FileId(status.st_dev, status.st_ino)
        followed = self._followed.get(path)
        if followed is None:
            if self._is_glob and self._is_followed_elsewhere(file_id):
                return []
            followed = self._followed[path] = _Followed(path, OpenLog(path))
            if not self._has_looked:
                return self._read_history(followed)
            return self._read_on(followed, followed.current, ArrivalTimes(now))
        followed.removed_at = None
        batches = self._read_rotated(followed, now)
        if file_id == followed.current.file_id:
            return batches + self._read_current(followed, now)
        return batches + self._rotate(followed, now)

    def _is_followed_elsewhere(self, file_id: FileId) -> bool:
        """Whether a rotated file was found again under its new name."""
        for followed in self._followed.values():
            old = followed.rotated.file_id if followed.rotated else None
            if file_id in {followed.current.file_id, old}:
                return True
        return False

    def _read_current(self, followed: _Followed, now: float) -> list[TailedBatch]:
        current = followed.current
        if current.was_rewritten():
            self._truncations += 1
            current.rewind()
            followed.reader = LogReader()
        return self._read_on(followed, current, ArrivalTimes(now))

    def _rotate(self, followed: _Followed, now: float) -> list[TailedBatch]:
        new = OpenLog(followed.path)
        batches = self._read_on(followed, followed.current, ArrivalTimes(now))
        self._rotations += 1
        if followed.rotated is not None:
            self._retire(followed.rotated)
        followed.rotated, followed.rotated_at = followed.current, now
        followed.current = new
        return batches + self._read_on(followed, new, ArrivalTimes(now))

    def _read_rotated(self, followed: _Followed, now: float) -> list[TailedBatch]:
        if followed.rotated is None:
            return []
        batches = self._read_on(followed, followed.rotated, ArrivalTimes(now))
        if not batches and now - followed.rotated_at >= ROTATE_WAIT:
            self._retire(followed.rotated)
            followed.rotated = None
        return batches

    def _finish_removed(self, path: str, now: float) -> list[TailedBatch]:
        """Read what is left of a file whose path is gone, and wait a little for its writer."""
        followed = self._followed[path]
        batches = self._read_on(followed, followed.current, ArrivalTimes(now))
        if batches or followed.removed_at is None:
            followed.removed_at = now
        elif now - followed.removed_at >= ROTATE_WAIT:
            self._retire(followed.current)
            del self._followed[path]
        return batches

    def _retire(self, log: OpenLog) -> None:
        self._long_lines += log.framer.long_lines
        self._nul_bytes += log.framer.nul_bytes
        log.close()

    def _read_on(self, followed: _Followed, log: OpenLog, times: LineTimes) -> list[TailedBatch]:
        batches: list[TailedBatch] = []
        for _ in range(MAX_READS):
            data = log.read()
            if not data:
                return batches
            batches.append(TailedBatch(self._digest(followed, log.lines(data), data, times), is_history=False))
        self._has_more = True
        return batches

    def _digest(self, followed: _Followed, lines: list[bytes], data: bytes, times: LineTimes) -> LogBatch:
        batch = followed.reader.read(lines, times)
        self._lines += batch.lines
        self._size += len(data)
        return batch

    def _read_history(self, followed: _Followed) -> list[TailedBatch]:
        """Read how the server was started and what it said last; none of it is counted."""
        log = followed.current
        times = times_of(log)
        batches = []
        for stretch in stretches(log):
            log.skip_to(stretch.start)
            followed.reader.skip()
            while log.offset < stretch.end:
                data = log.read(min(READ_SIZE, stretch.end - log.offset))
                if not data:
                    break
                batches.append(TailedBatch(followed.reader.read(log.lines(data), times), is_history=True))
        return batches


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
