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

from collections.abc import Iterable

from vllm_watch.checkpoint import FilePosition
from vllm_watch.reading.log_reader import TailedBatch
from vllm_watch.sources.followed import FollowCounts, FollowedLog
from vllm_watch.sources.logfile import FileId, NotRegularError
from vllm_watch.state.server import LogStatus
from vllm_watch.state.snapshot import TailCounts


MAX_FILES = 64
MAX_POSITIONS = 256
"""Of files that are gone no more are remembered, the ones that are open always are."""

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


class LogTail:
    """
    Follows one path or glob.

    Args:
        pattern: The path, or a glob whose matches are all logs of the server.
        positions: How far its files had been read when the daemon was stopped, by path.
        stopped_at: When that was, in seconds since the epoch.
    """

    def __init__(self, pattern: str, positions: Iterable[FilePosition] = (), stopped_at: float = 0.0) -> None:
        self._pattern = pattern
        self._is_glob = bool(_GLOB_SIGNS & set(pattern))
        self._followed: dict[str, FollowedLog] = {}
        self._before = {position.path: position for position in positions}
        self._stopped_at = stopped_at
        self._known: dict[str, FilePosition] = {}
        self._counts = FollowCounts()
        self._has_looked = False
        self._reason = "not_found"

    @property
    def pattern(self) -> str:
        """The absolute path or glob that is followed."""
        return os.path.abspath(self._pattern)

    @property
    def has_more(self) -> bool:
        """Whether the last look stopped before the end of what was there."""
        return any(followed.has_more for followed in self._followed.values())

    def poll(self, now: float) -> list[TailedBatch]:
        """Look at all files once and return what is new."""
        batches: list[TailedBatch] = []
        self._reason = "not_found"
        for path in dict.fromkeys([*self._paths(), *self._followed]):
            batches += self._look_at(path, now)
        self._has_looked = True
        return batches

    def positions(self) -> tuple[FilePosition, ...]:
        """Return how far the files have been read; what was found of an earlier run and not seen yet is kept."""
        self._known = {path: followed.position() for path, followed in self._followed.items()}
        return tuple({**self._before, **self._known}.values())[-MAX_POSITIONS:]

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up = bool(self._followed)
        counts = self._counts
        open_counts = [followed.framing_counts() for followed in self._followed.values()]
        tail = TailCounts(
            lines=counts.lines,
            size=counts.size,
            lag=sum(followed.lag for followed in self._followed.values()) if is_up else None,
            truncations=counts.truncations,
            rotations=counts.rotations,
            lost_generations=counts.lost_generations,
            long_lines=counts.long_lines + sum(long_lines for long_lines, _ in open_counts),
            nul_bytes=counts.nul_bytes + sum(nul_bytes for _, nul_bytes in open_counts),
            skipped_bytes=counts.skipped_bytes,
        )
        return LogStatus(is_up, "ok" if is_up else self._reason, tail)

    def close(self) -> None:
        """Close all files."""
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()

    def _paths(self) -> list[str]:
        if not self._is_glob:
            return [self._pattern]
        return sorted(glob.glob(self._pattern), key=_modified)[:MAX_FILES]

    def _look_at(self, path: str, now: float) -> list[TailedBatch]:
        try:
            if path in self._followed:
                return self._followed[path].poll(now)
            return self._begin(path, now)
        except OSError as error:
            self._reason = "not_regular" if isinstance(error, NotRegularError) else _reason(error)
            return self._look_at_removed(path, now)

    def _begin(self, path: str, now: float) -> list[TailedBatch]:
        if self._is_glob and self._is_followed_elsewhere(path):
            return []
        followed = FollowedLog(path, self._counts)
        self._followed[path] = followed
        position = self._before.pop(path, None)
        if self._has_looked and position is None:
            return followed.poll(now)
        return followed.begin(position, self._stopped_at, now) + followed.poll(now)

    def _is_followed_elsewhere(self, path: str) -> bool:
        """Whether a rotated file was found again under its new name."""
        status = os.stat(path)
        file_id = FileId(status.st_dev, status.st_ino)
        return any(file_id in followed.file_ids for followed in self._followed.values())

    def _look_at_removed(self, path: str, now: float) -> list[TailedBatch]:
        """Read on although the path cannot be looked at; a file that cannot be read either is let go."""
        followed = self._followed.get(path)
        if followed is None:
            return []
        try:
            batches = followed.poll_removed(now)
        except OSError as error:
            self._reason = _reason(error)
            self._keep(path)
            self._forget(path)
            return []
        if followed.is_over(now):
            self._forget(path)
        return batches

    def _keep(self, path: str) -> None:
        """Remember where a file was that cannot be read any more, for when it can."""
        if path in self._known:
            self._before[path] = self._known[path]

    def _forget(self, path: str) -> None:
        self._followed.pop(path).close()


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, "read_error")


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
