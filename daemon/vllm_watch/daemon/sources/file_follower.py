# SPDX-License-Identifier: Apache-2.0
"""
Follows one path: notices when the path names another file, and continues to read the files that it named before.

This module handles a path that names no file for a while, or a file that cannot be opened: the files that are already
open are still read.
"""

from __future__ import annotations

import math
import os

from contextlib import suppress

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.file_queue import FileQueue
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.sources.open_file import FileId, FileState
from vllm_watch.daemon.sources.queued_file import QueuedFile
from vllm_watch.daemon.sources.read_counts import ReadCounts
from vllm_watch.daemon.sources.resumption import ResumePoint, Resumption
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT, RotatedFiles
from vllm_watch.daemon.sources.startup_scan import MAX_SEARCH, read_history, recent_start, skip_into


MAX_READS = 32
"""Pieces read in one poll, so that nothing else waits for a backlog."""


class FileFollower:
    """
    Follows one path whose file is there. Raises `OSError` if that cannot be opened.

    Args:
        path: The path.
        counts: Counts for all paths of a server.
        reader: Reads the lines of its files.

    Attributes:
        path: The path.
        read_until: A moment, in seconds since the epoch, before which all that was written had been read; the caller
            sets it.
        problem: Why the path had no readable file at the last poll, if it had none.
    """

    def __init__(self, path: str, counts: ReadCounts, reader: LogReader) -> None:
        self.path = path
        self.read_until = 0.0
        self.problem: OSError | None = None
        self._counts = counts
        self._rotated = RotatedFiles(path, counts)
        self._queue = FileQueue(path, LogFile(path), self._rotated, counts, reader)
        self._unseen_since: float | None = None
        self._grown_at = float("-inf")

    @property
    def logs(self) -> list[LogFile]:
        """The files that are open, the oldest first."""
        return self._queue.logs

    @property
    def file_ids(self) -> set[FileId]:
        """The files that are open."""
        return self._queue.file_ids

    @property
    def present_id(self) -> FileId:
        """The file that the path named last."""
        return self._queue.present.log.file_id

    @property
    def real_path(self) -> str:
        """Where the file is that the path named last, with all links resolved."""
        return self._queue.present.log.real_path

    @property
    def is_failing(self) -> bool:
        """Whether the file itself could not be read at the last poll, and not only its path."""
        return self._queue.problem is not None

    @property
    def has_more(self) -> bool:
        """Whether the last poll stopped before the end of what was there."""
        return self._queue.has_more

    @property
    def has_read_all(self) -> bool:
        """Whether the last poll read all that there was: nothing failed, and nothing is left for the next one."""
        return self.problem is None and not self.has_more

    @property
    def position(self) -> FilePosition | None:
        """How far the oldest unread file had been read after the last poll: everything after it is read again."""
        return self._queue.position

    def lag(self) -> int:
        """Return how many bytes are not read yet, an unfinished line included."""
        return self._queue.lag()

    def is_at(self, point: ResumePoint) -> bool:
        """Tell whether reading stopped at a point in the path's present file. Raises `OSError`."""
        log = self._queue.present.log
        return point.position.offset > 0 and log.is_at(point.position)

    def start(
        self, point: ResumePoint | None, now: float, max_search: int = MAX_SEARCH, since: float = math.inf
    ) -> list[LogBatch]:
        """
        Read what happened before the first poll. Raises `OSError`; then nothing more can be done than to close.

        Args:
            point: Where reading stopped the last time; without it only the server's start and its last lines are read.
            now: The time: nothing was written after it, whatever the files' times are.
            max_search: Bytes that are searched for the server's start.
            since: When the server was watched already: without a point, a later start and what follows is for `poll`.
        """
        if point is not None:
            return Resumption(self._queue, self._rotated, self._counts).resume(point, now, max_search)
        log, reader = self._queue.present.log, self._queue.reader
        start = None if since > now else recent_start(log, since, now, max_search)
        if start is None:
            return read_history(log, reader, log.size(), now, max_search)
        skip_into(log, reader, start)
        self._queue.note_backlog(now)
        return []

    def poll(self, now: float, max_reads: int = MAX_READS) -> list[LogBatch]:
        """Read what was written since the last poll, at most `max_reads` pieces, also of a new file at the path."""
        self.problem = None
        self._check_path(now)
        if self.has_more:
            with suppress(OSError):
                self._queue.skip_far_behind()
        batches = self._queue.read(now, max_reads)
        self.problem = self._queue.problem or self.problem
        if batches:
            self._grown_at = now
        self._queue.note_position()
        return batches

    def is_over(self, now: float) -> bool:
        """Tell whether the path has named nothing that can be opened for long enough to give it up."""
        return self._unseen_since is not None and now - max(self._unseen_since, self._grown_at) >= ROTATE_WAIT

    def is_idle(self, now: float, state: FileState) -> bool:
        """
        Tell whether the file need not be open: all of it was read, to the end of a line, and nothing came for a while.

        Args:
            now: The time.
            state: The state of the path's file before the last poll.
        """
        return (
            self.has_read_all
            and [log.file_id for log in self.logs] == [state.file_id]
            and self.position is not None
            and 0 < self.position.offset == state.size
            and now - self._grown_at >= ROTATE_WAIT
        )

    def resume_point(self) -> ResumePoint | None:
        """Return where to resume when the path names something again."""
        if self.position is None:
            return None
        modified = 0.0
        with suppress(OSError):
            modified = self._queue.present.log.modified()
        return ResumePoint(self.position, modified, is_same_run=True)

    def close(self) -> None:
        """Close all files."""
        self._queue.close()

    def _check_path(self, now: float) -> None:
        """Compare the file that the path names now with the one it named before."""
        try:
            status = os.stat(self.path)
            if FileId(status.st_dev, status.st_ino) != self._queue.present.log.file_id:
                self._queue_successors(now)
            self._unseen_since = None
        except OSError as error:
            self.problem = error
            if self._unseen_since is None:
                self._unseen_since = now

    def _queue_successors(self, now: float) -> None:
        """Queue the path's new file, and before it those that it named between two polls."""
        new = LogFile(self.path)
        lost = self._counts.files_lost
        try:
            between = self._rotated.after(self._queue.present.log, self.file_ids | {new.file_id}, now)
        except OSError:
            new.close()
            raise
        is_after_gap = self._counts.files_lost > lost  # Which one is missing is not known.
        successors = []
        for each in between:
            if self._queue.is_read_copy(each):
                each.log.close()
            else:
                successors.append(QueuedFile(each.log, is_after_gap))
        successors.append(QueuedFile(new, is_after_gap))
        self._counts.rotations += len(successors)
        self._queue.append(successors)
