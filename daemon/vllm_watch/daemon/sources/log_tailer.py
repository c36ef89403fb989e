# SPDX-License-Identifier: Apache-2.0
"""
The log files of one server, followed by path or glob: they may appear, be rotated, truncated or replaced.

This module handles globs, and files that are missing or may not be read. Each poll compares what is open with what the
path names now; nothing depends on notifications.
"""

from __future__ import annotations

import errno
import glob
import math
import os

from collections.abc import Callable, Sequence
from copy import copy

import structlog

from vllm_watch.daemon.catalog.reasons import LogReason
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader, LogStatus, WatchMode
from vllm_watch.daemon.sources.checkpoint import FilePosition, Positions, may_name
from vllm_watch.daemon.sources.file_follower import MAX_READS, FileFollower
from vllm_watch.daemon.sources.journal_tailer import JournalTailer
from vllm_watch.daemon.sources.log_file import FileId, NotRegularError, ReadCounts
from vllm_watch.daemon.sources.rotation import ResumePoint, is_compressed, is_rotated_of
from vllm_watch.daemon.sources.startup_scan import MAX_SEARCH
from vllm_watch.daemon.support.clock import Clock


log = structlog.get_logger("vllm_watch.tail")

MAX_FILES = 64
"""How many of a glob's matches are followed: those that were written last."""

MAX_POSITIONS = 256
"""How many positions of files that are gone are kept; those of open files are always kept."""

MOVE_SECONDS = 300.0
"""How long ago a server may have been started that writes another log than before: it is found within a minute."""

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
"""Reasons why a file that exists cannot be opened: what it holds once it can be was written before."""


class LogTailer:
    """
    Follows one path or glob.

    Args:
        pattern: The path, or a glob whose matches are all logs of the server.
        positions: How far files had been read when the daemon was stopped, those of other logs included: one of them
            may have been renamed.
        wall: Returns the wall clock's time, which files' times are in, at a moment of `poll`.
        make_reader: Returns a reader of the lines of one path.
        max_reads: Pieces read in one poll.

    Attributes:
        watch_mode: How changes of the files are noticed, `None` if that is not said; the caller sets it.
        has_more: Whether the last poll stopped before the end of what was there.
    """

    def __init__(
        self,
        pattern: str,
        positions: Sequence[FilePosition] = (),
        wall: Callable[[float], float] = float,
        make_reader: Callable[[], LogReader] = LogReader,
        *,
        max_reads: int = MAX_READS,
    ) -> None:
        self.watch_mode: WatchMode | None = None
        self.has_more = False
        self._pattern = pattern
        self.pattern = os.path.abspath(pattern)
        """The absolute path or glob that is followed."""
        self._wall = wall
        self._make_reader = make_reader
        self._max_reads = max_reads
        self._is_glob = bool(_GLOB_SIGNS & set(pattern))
        self._followers: dict[str, FileFollower] = {}
        self._resume_points = {each.path: ResumePoint(each) for each in positions if may_name(pattern, each.path)}
        furthest_last = sorted(positions, key=lambda each: each.offset)
        self._stopped = {FileId(each.device, each.inode): ResumePoint(each) for each in furthest_last}
        """Where files stopped being read, whatever their paths were: in an earlier run, or before `move`."""
        self._started_since = math.inf
        self._ignored_files = 0
        self._passed_over: set[str] = set()
        """Files that are there and are not followed: too many others are newer, or they cannot be read."""
        self._counts = ReadCounts()
        self._has_polled = False
        self._reason: LogReason = "not_found"
        self._logged_errors: set[int | None] = set()

    def move(self, pattern: str, now: float) -> None:
        """
        Follow another path or glob from the next poll on, for the same server.

        A file that only has another name is read on where it was left. In any other a start of the last `MOVE_SECONDS`
        and all after it is new; what was before is history, as at the first poll.
        """
        open_files = [(path, log) for path, follower in self._followers.items() for log in follower.logs]
        self._stopped |= {
            log.file_id: ResumePoint(log.position(path, self._wall(now)), is_same_run=True) for path, log in open_files
        }
        self.close()
        self._pattern, self._is_glob = pattern, bool(_GLOB_SIGNS & set(pattern))
        self.pattern = os.path.abspath(pattern)
        self._ignored_files, self._passed_over = 0, set()
        self._has_polled, self._started_since = False, now - MOVE_SECONDS

    def poll(self, now: float) -> list[LogBatch]:
        """Poll all files once and return what is new."""
        batches: list[LogBatch] = []
        self._reason = "not_found"
        self.has_more = False
        paths = dict.fromkeys([*self._paths(), *self._followers]) if self._is_glob else (self._pattern,)
        for path in paths:
            batches += self._poll_path(path, now, len(paths))
        self._has_polled = True
        if self._followers:
            self._stopped = {}
        return batches

    def positions(self) -> tuple[FilePosition, ...]:
        """
        Return how far the files have been read; positions of an earlier run whose files were not seen yet are kept.

        If the last poll of a file did not reach its end, or failed, its position says until when all had been read.
        """
        earlier = {path: point.position for path, point in self._resume_points.items()}
        followers = self._followers.items()
        present = {path: follower.position for path, follower in followers if follower.position is not None}
        return tuple({**earlier, **present}.values())[-MAX_POSITIONS:]

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up, lag = False, 0
        counts = copy(self._counts)
        for follower in self._followers.values():
            is_up |= not follower.is_failing
            lag += follower.lag()
            for each in follower.logs:
                counts.add_framed(each)
        tail = counts.total._replace(
            lag=lag if is_up else None, ignored_files=self._ignored_files, watch_mode=self.watch_mode
        )
        return LogStatus(is_up, "ok" if is_up else self._reason, tail)

    def close(self) -> None:
        """Close all files."""
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def _paths(self) -> list[str]:
        """Return what of the glob to follow now: the matches that were written last, the oldest first."""
        found = [path for path in glob.glob(self._pattern) if not is_compressed(path)]
        logs = {*found, *self._followers, *self._resume_points}
        # A rotated file belongs to its log, which is followed for a while after its name is gone.
        matches = sorted((path for path in found if not is_rotated_of(path, logs)), key=_modified)
        for path in self._followers.keys() & (set(found) - set(matches[-MAX_FILES:])):
            self._forget(path)
        ignored = matches[:-MAX_FILES]
        self._ignored_files = len(ignored)
        self._passed_over = (self._passed_over & set(found)) | set(ignored)
        return matches[-MAX_FILES:]

    def _poll_path(self, path: str, now: float, number: int) -> list[LogBatch]:
        """Poll one of `number` files."""
        wall = self._wall(now)
        batches: list[LogBatch] = []
        follower = self._followers.get(path)
        try:
            if follower is None:
                follower, batches = self._start(path, now, wall, number)
                if follower is None:
                    return []
        except OSError as error:
            self._note(error)
            if self._reason in _HIDDEN:
                self._passed_over.add(path)
            return []
        batches += follower.poll(now, wall, max(self._max_reads // number, 1))
        if follower.position is not None:
            self._resume_points.pop(path, None)
        if follower.problem is not None:
            self._note(follower.problem, is_counted=follower.is_failing)
        self.has_more |= follower.has_more
        if follower.is_over(now):
            self._forget(path)
        return batches

    def _start(self, path: str, now: float, wall: float, number: int) -> tuple[FileFollower | None, list[LogBatch]]:
        """
        Follow a path whose file is there: what it held before the first poll, or while passed over, is history.

        A match that is another one's file under a new name is not followed.
        """
        stopped = self._resume_points.get(path)
        read_until = wall if stopped is None else stopped.position.read_until
        follower = FileFollower(path, self._counts, self._make_reader(), read_until)
        batches: list[LogBatch] = []
        open_ids = {log.file_id for each in self._followers.values() for log in each.logs}
        try:
            if follower.present.file_id in open_ids:
                follower.close()
                return None, []
            point = self._resume_point(path, follower)
            if point is not None or not self._has_polled or path in self._passed_over:
                batches = follower.start(point, now, MAX_SEARCH // number, self._started_since)
        except OSError:
            follower.close()
            raise
        self._passed_over.discard(path)
        self._followers[path] = follower
        return follower, batches

    def _resume_point(self, path: str, follower: FileFollower) -> ResumePoint | None:
        """Return where to resume: where the path stopped being read, unless its file did under another name."""
        point, renamed = self._resume_points.get(path), self._stopped.get(follower.present.file_id)
        is_known = point is not None and follower.present.is_at(point.position)
        return renamed if renamed is not None and not is_known and follower.present.is_at(renamed.position) else point

    def _note(self, error: OSError, *, is_counted: bool = False) -> None:
        """Note why a file cannot be opened or read, log it once, and count it if the file is not just missing."""
        is_other = isinstance(error, NotRegularError)
        self._reason = "not_regular" if is_other else _REASONS.get(error.errno or 0, "read_error")
        if self._reason == "read_error" and error.errno not in self._logged_errors:
            self._logged_errors.add(error.errno)
            log.warning("tail.read_error", log=self._pattern, error=str(error))
        if not is_counted and self._reason != "not_found":
            self._counts.add(read_errors=1)

    def _forget(self, path: str) -> None:
        """Stop following a path, and keep where its file was read to, in case it appears again."""
        point = self._followers.pop(path).close()
        if point is not None:
            self._keep(path, point)

    def _keep(self, path: str, point: ResumePoint) -> None:
        """Keep where to resume; of too many paths, for the last ones."""
        self._resume_points[path] = point
        while len(self._resume_points) > MAX_POSITIONS:
            del self._resume_points[next(iter(self._resume_points))]


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


Tailer = LogTailer | JournalTailer


def tailer_of(
    config: ServerConfig,
    before: Positions,
    clock: Clock,
    make_reader: Callable[[], LogReader] = LogReader,
    *,
    max_reads: int = MAX_READS,
) -> Tailer:
    """Return what follows the log of a server that has one, from where an earlier run has read it."""
    if config.journal is not None:
        cursors = [position.cursor for position in before.of(None, config.journal).journals]
        cursor = cursors[0] if cursors else None
        return JournalTailer(config.journal, cursor=cursor, wall=clock.wall, make_reader=make_reader)
    if config.log is None:
        raise ValueError(f"server {config.name} has no log")
    return LogTailer(config.log, before.files, clock.wall, make_reader, max_reads=max_reads)
