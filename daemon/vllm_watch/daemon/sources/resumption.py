# SPDX-License-Identifier: Apache-2.0
"""
Where reading of a path resumes: where it stopped, in the path's file or in one that was rotated since.

This module handles restarts, and paths that named no file for a while: in the meantime the file may have been rotated,
truncated, replaced or removed.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.file_queue import FileQueue
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.sources.queued_file import QueuedFile
from vllm_watch.daemon.sources.read_counts import ReadCounts
from vllm_watch.daemon.sources.rotation import TIMES_MAY_LAG, RotatedFile, RotatedFiles, and_newer
from vllm_watch.daemon.sources.startup_scan import read_history, skip_into


class ResumePoint(NamedTuple):
    """
    Where reading a path stopped: in an earlier run of the daemon, or in this one when the path named nothing.

    Attributes:
        position: How far its file was read.
        stopped_at: When, in seconds since the epoch.
        is_same_run: Whether this run has read it: then what was read is known and counted. Its file was read to its
            end before it was closed: if it is gone, nothing is lost.
    """

    position: FilePosition
    stopped_at: float
    is_same_run: bool = False


class Resumption:
    """
    Finds where to resume, and queues the files that are to be read from there on.

    Args:
        queue: Holds the path's present file.
        rotated: The path's rotated files.
        counts: Counts files that are lost.
    """

    def __init__(self, queue: FileQueue, rotated: RotatedFiles, counts: ReadCounts) -> None:
        self._queue = queue
        self._rotated = rotated
        self._counts = counts

    def resume(self, point: ResumePoint, now: float, max_search: int) -> list[LogBatch]:
        """
        Resume at a point; return what must be read again to know how the server was started.

        Args:
            point: Where reading stopped.
            now: The time: nothing was written after it, whatever the files' times are.
            max_search: Bytes that are searched for the server's start.

        Raises:
            OSError: A file cannot be read. Nothing more can be done than to close the queue.
        """
        present = self._queue.present.log
        if point.position.offset > 0 and present.is_at(point.position):
            batches = self._resume_in(present, point, now, max_search)
        else:
            batches = self._resume_among_rotated(point, now, max_search)
        self._queue.note_backlog(now)
        return batches

    def _resume_in(self, log: LogFile, point: ResumePoint, now: float, max_search: int) -> list[LogBatch]:
        """Resume in the file in which reading stopped, knowing what was open there."""
        batches: list[LogBatch] = []
        if point.is_same_run:
            skip_into(log, self._queue.reader, point.position.offset)
        else:
            batches = read_history(log, self._queue.reader, point.position.offset, now, max_search)
        log.resume_at(point.position)
        return batches

    def _resume_among_rotated(self, point: ResumePoint, now: float, max_search: int) -> list[LogBatch]:
        """Resume in the rotated file in which reading stopped; what came after it is read from its start."""
        position = point.position
        present = self._queue.present
        opened = self._rotated.last({present.log.file_id})
        # Of a file of which nothing was read only the inode is known, and inodes are reused.
        same = [each for each in opened if position.offset > 0 and self._rotated.is_at(each, position)]
        if same:
            wanted = and_newer(same[0], opened, point.stopped_at)
            wanted = [each for each in wanted if each is same[0] or each not in same]
        else:
            wanted = [each for each in opened if each.name.modified >= point.stopped_at - TIMES_MAY_LAG]
        for each in opened:
            if each not in wanted:
                each.log.close()
        self._queue.prepend([QueuedFile(each.log) for each in wanted])
        if same:
            batches = self._resume_in(same[0].log, point, now, max_search)
            self._counts.rotations += len(wanted)
            return batches
        if not point.is_same_run or present.log.has_inode_of(position):
            self._count_missing(position, opened, present.log)
        return []

    def _count_missing(self, position: FilePosition, opened: list[RotatedFile], present: LogFile) -> None:
        """Count a file that is gone. The same inode is the same file, rewritten, or that of a later one."""
        if present.has_inode_of(position):
            self._counts.truncations += position.offset > 0
        elif position.offset > 0 or not any(each.log.has_inode_of(position) for each in opened):
            self._counts.files_lost += 1
