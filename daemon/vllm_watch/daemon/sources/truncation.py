# SPDX-License-Identifier: Apache-2.0
"""
Files that were truncated, and the copies that contain what was not read before (logrotate's ``copytruncate``).

This module handles truncation: a file that is emptied, filled again, or copied and then emptied, once or several times
between two polls. `rewrite_check` detects it.
"""

from __future__ import annotations

import math

from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.sources.open_file import FileId, FileState
from vllm_watch.daemon.sources.queued_file import QueuedFile
from vllm_watch.daemon.sources.read_counts import ReadCounts
from vllm_watch.daemon.sources.rotation import RotatedFile, RotatedFiles
from vllm_watch.daemon.sources.startup_scan import skip_into


LIST_SECONDS = 5.0
"""How often the folder of an empty log is listed although nothing shows a change: two writes may have the same time."""


class Truncations:
    """
    Finds what was not read of a file before it was truncated.

    Args:
        rotated: The path's rotated files: a copy is one of them.
        counts: Counts truncations, and what is lost.
    """

    def __init__(self, rotated: RotatedFiles, counts: ReadCounts) -> None:
        self._rotated = rotated
        self._counts = counts
        self._seen: FileState | None = None
        """The state of a file of which nothing was read, when copies of it were looked for last."""
        self._listed_at = -math.inf

    def start_again(
        self, item: QueuedFile, reader: LogReader, known: set[FileId], position: FilePosition | None, now: float
    ) -> list[QueuedFile]:
        """
        Go back to the start of a file that was rewritten; return the copies to be read before it, the oldest first.

        Args:
            item: The file.
            reader: Reads its lines.
            known: The files that are open.
            position: How far the oldest unread file had been read after the last poll.
            now: The time.
        """
        lost = self._counts.files_lost
        copies = self.copies(item.log, known, position, now)
        if self._counts.files_lost > lost:
            for each in (*copies, item):
                each.is_after_gap = True
        self._counts.truncations += 1
        if not copies:
            self._counts.skipped_bytes += item.log.framer.pending
        item.log.rewind()
        item.printed = None
        if not copies or copies[0].log.offset == 0:
            reader.start_file()
        return copies

    def copies_of_unread(
        self, log: LogFile, known: set[FileId], position: FilePosition | None, now: float
    ) -> list[QueuedFile]:
        """Open the copies of a file of which nothing was read, as `copies` does: only they show its truncation."""
        state = log.state()
        if state == self._seen and now < self._listed_at + LIST_SECONDS:
            return []
        self._seen = None  # If listing fails it is tried again.
        found = self.copies(log, known, position, now)
        self._seen, self._listed_at = state, now
        return found

    def copies(self, log: LogFile, known: set[FileId], position: FilePosition | None, now: float) -> list[QueuedFile]:
        """Open the copies that hold what was not read of a file before it was truncated, the oldest first."""
        opened = self._rotated.new(known, now)
        try:
            return self._unread(log, opened, position)
        except OSError:
            self._rotated.put_back(opened)
            raise

    def is_read_copy(self, file: RotatedFile, original: LogFile, position: FilePosition | None) -> bool:
        """Tell whether a file is a copy of an open one: made by hand, or with ``copy`` in logrotate's configuration."""
        position = _position_in(original, position)
        return position is not None and self._rotated.is_at(file, position)

    def _unread(self, log: LogFile, opened: list[RotatedFile], position: FilePosition | None) -> list[QueuedFile]:
        """Drop the copies that were made before the one in which reading stopped, and continue there in that one."""
        if log.line_start == 0:
            return [QueuedFile(each.log) for each in opened]
        position = _position_in(log, position)
        same = [each for each in opened if position is not None and self._rotated.is_at(each, position)]
        if not same or position is None:
            self._counts.files_lost += bool(opened)  # The first copy is gone already.
            return [QueuedFile(each.log) for each in opened]
        place = opened.index(same[0])
        for each in opened[:place]:
            each.log.close()
        skip_into(same[0].log, LogReader(), position.offset)  # The path's own reader knows already what is open there.
        same[0].log.resume_at(position)
        return [QueuedFile(each.log) for each in opened[place:]]


def _position_in(log: LogFile, position: FilePosition | None) -> FilePosition | None:
    """Return the position if it is in this file, and not at its start."""
    return position if position and position.offset > 0 and log.has_inode_of(position) else None
