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

from collections.abc import Callable, Iterable
from dataclasses import asdict

import structlog

from vllm_watch.catalog.reasons import LogReason
from vllm_watch.reading.log_reader import LogBatch
from vllm_watch.sources.checkpoint import FilePosition
from vllm_watch.sources.file_follower import MAX_READS, FileFollower
from vllm_watch.sources.open_file import FileId, NotRegularError
from vllm_watch.sources.read_counts import ReadCounts
from vllm_watch.sources.resumption import ResumePoint
from vllm_watch.sources.rotated_names import is_compressed, is_rotated_of
from vllm_watch.sources.startup_scan import MAX_SEARCH
from vllm_watch.state.server import LogStatus
from vllm_watch.state.snapshot import TailCounts


log = structlog.get_logger("vllm_watch.tail")

MAX_FILES = 64
"""Of a glob's matches so many are followed: those that were written last."""

MAX_POSITIONS = 256
"""Of files that are gone no more are remembered, the ones that are open always are."""

_GLOB_SIGNS = frozenset("*?[")
_REASONS: dict[int, LogReason] = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ELOOP: "symlink_loop",
    errno.EISDIR: "not_regular",
    errno.ENXIO: "not_regular",
}
_HIDDEN: frozenset[LogReason] = frozenset({"permission_denied", "read_error"})
"""Reasons for which a file that is there cannot be begun: what is in it when it can was not written just now."""


class LogTailer:
    """
    Follows one path or glob.

    Args:
        pattern: The path, or a glob whose matches are all logs of the server.
        positions: How far its files had been read when the daemon was stopped, by path.
        stopped_at: When that was, in seconds since the epoch.
        wall: What the wall clock, and with it the files' times, say at a moment that `poll` is told.
    """

    def __init__(
        self,
        pattern: str,
        positions: Iterable[FilePosition] = (),
        stopped_at: float = 0.0,
        wall: Callable[[float], float] = float,
    ) -> None:
        self._pattern = pattern
        self._wall = wall
        self._is_glob = bool(_GLOB_SIGNS & set(pattern))
        self._followed: dict[str, FileFollower] = {}
        self._before = {
            position.path: ResumePoint(position._replace(read_until=0.0), position.read_until or stopped_at)
            for position in positions
        }
        self._passed_over: frozenset[str] = frozenset()
        self._taken_up: frozenset[str] = frozenset()
        self._hidden: set[str] = set()
        self._counts = ReadCounts()
        self._has_looked = False
        self._reason: LogReason = "not_found"
        self._said: set[int | None] = set()

    @property
    def pattern(self) -> str:
        """The absolute path or glob that is followed."""
        return os.path.abspath(self._pattern)

    @property
    def watched_paths(self) -> tuple[str, ...]:
        """The path or glob, and where the files are that it leads to: changes there are news."""
        return (self.pattern, *{followed.real_path for followed in self._followed.values()} - {self.pattern})

    @property
    def has_more(self) -> bool:
        """Whether the last look stopped before the end of what was there."""
        return any(followed.has_more for followed in self._followed.values())

    def poll(self, now: float) -> list[LogBatch]:
        """Look at all files once and return what is new."""
        batches: list[LogBatch] = []
        self._reason = "not_found"
        paths = dict.fromkeys([*self._paths(), *self._followed])
        for path in paths:
            batches += self._look_at(path, now, len(paths))
        self._has_looked = True
        return batches

    def positions(self) -> tuple[FilePosition, ...]:
        """
        Return how far the files have been read; what was found of an earlier run and not seen yet is kept.

        Where the last look did not come to the end, or something failed, it is said until when all had been read.
        """
        before = {
            path: remembered.position._replace(read_until=remembered.stopped_at)
            for path, remembered in self._before.items()
        }
        known = {
            path: at if followed.has_read_all else at._replace(read_until=followed.read_until)
            for path, followed in self._followed.items()
            if (at := followed.position) is not None
        }
        return tuple({**before, **known}.values())[-MAX_POSITIONS:]

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up = not all(followed.is_failing for followed in self._followed.values())
        open_counts = [followed.framing_counts() for followed in self._followed.values()]
        closed = TailCounts(**asdict(self._counts))
        tail = closed._replace(
            lag=sum(followed.lag() for followed in self._followed.values()) if is_up else None,
            long_lines=closed.long_lines + sum(long_lines for long_lines, _ in open_counts),
            nul_bytes=closed.nul_bytes + sum(nul_bytes for _, nul_bytes in open_counts),
            ignored_files=len(self._passed_over),
        )
        return LogStatus(is_up, "ok" if is_up else self._reason, tail)

    def close(self) -> None:
        """Close all files."""
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()

    def _paths(self) -> list[str]:
        """Return what is to be followed now: of a glob's matches those that were written last, the oldest first."""
        if not self._is_glob:
            return [self._pattern]
        found = [path for path in glob.glob(self._pattern) if not is_compressed(path)]
        logs = {*found, *self._followed, *self._before}
        # A rotated file belongs to its log; that is followed a while after its name is gone.
        matches = sorted((path for path in found if not is_rotated_of(path, logs)), key=_modified)
        for path in self._followed.keys() & (set(found) - set(matches[-MAX_FILES:])):
            self._forget(path)
        self._hidden &= set(found)
        self._taken_up = self._passed_over.intersection(matches[-MAX_FILES:])
        self._passed_over = frozenset(matches[:-MAX_FILES])
        return matches[-MAX_FILES:]

    def _look_at(self, path: str, now: float, number: int) -> list[LogBatch]:
        """Look at one of so many files."""
        looked_at = self._wall(now)
        batches: list[LogBatch] = []
        followed = self._followed.get(path)
        try:
            if followed is None:
                if self._is_glob and self._is_followed_elsewhere(path):
                    return []
                followed, batches = self._begin(path, now, number)
                followed.read_until = self._before[path].stopped_at if path in self._before else looked_at
        except OSError as error:
            self._note(error)
            if self._reason in _HIDDEN:
                self._hidden.add(path)
            return []
        batches += followed.poll(now, max(MAX_READS // number, 1))
        if followed.has_read_all:
            followed.read_until = looked_at
        if followed.position is not None:
            self._before.pop(path, None)
        if followed.problem is not None:
            self._note(followed.problem, is_counted=followed.is_failing)
        if followed.is_over(now):
            self._forget(path)
        return batches

    def _begin(self, path: str, now: float, number: int) -> tuple[FileFollower, list[LogBatch]]:
        before = self._before.get(path)
        followed = FileFollower(path, self._counts)
        batches: list[LogBatch] = []
        try:
            if before is not None or not self._has_looked or path in self._taken_up | self._hidden:
                batches = followed.start(before, now, MAX_SEARCH // number)
        except OSError:
            followed.close()
            raise
        self._hidden.discard(path)
        self._followed[path] = followed
        return followed, batches

    def _is_followed_elsewhere(self, path: str) -> bool:
        """Whether a rotated file was found again under its new name."""
        status = os.stat(path)
        file_id = FileId(status.st_dev, status.st_ino)
        return any(file_id in followed.file_ids for followed in self._followed.values())

    def _note(self, error: OSError, *, is_counted: bool = False) -> None:
        """Keep why a file cannot be opened or read, say it once, and count it if the file is not just missing."""
        self._reason = "not_regular" if isinstance(error, NotRegularError) else _reason(error)
        if self._reason == "read_error" and error.errno not in self._said:
            self._said.add(error.errno)
            log.warning("tail.read_error", log=self._pattern, error=str(error))
        if not is_counted and self._reason != "not_found":
            self._counts.read_errors += 1

    def _forget(self, path: str) -> None:
        """Let go of a path, and remember where its file was, for when it is there again."""
        followed = self._followed.pop(path)
        remembered = followed.resume_point()
        followed.close()
        if remembered is not None:
            self._before[path] = remembered
            while len(self._before) > MAX_POSITIONS:
                del self._before[next(iter(self._before))]


def _reason(error: OSError) -> LogReason:
    return _REASONS.get(error.errno or 0, "read_error")


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
