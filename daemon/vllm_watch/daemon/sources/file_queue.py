# SPDX-License-Identifier: Apache-2.0
"""
The files that one path has named and that are not yet read to their end. They are read in order.

This module handles files that cannot be read (the files after them wait only for a limited time) and a backlog that is
too long to read completely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from copy import copy

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.draining import DrainingFiles
from vllm_watch.daemon.sources.log_file import READ_SIZE, LogFile
from vllm_watch.daemon.sources.open_file import FileId
from vllm_watch.daemon.sources.queued_file import QueuedFile
from vllm_watch.daemon.sources.read_counts import ReadCounts
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT, RotatedFile, RotatedFiles
from vllm_watch.daemon.sources.startup_scan import skip_into
from vllm_watch.daemon.sources.truncation import Truncations


MAX_BACKLOG = 1024 * 1024 * 1024
"""Bytes of backlog that are read: of a longer one the first part is skipped, and counted."""


class FileQueue:
    """
    Reads the files of one path in order: the oldest first, and last the one that the path names now.

    Args:
        path: The path.
        present: The file that it names now.
        rotated: Its rotated files.
        counts: Counts what is read and lost.
        reader: Reads the lines of the oldest file.

    Attributes:
        reader: Reads the lines of the oldest file.
        position: How far the oldest unread file had been read after the last poll; everything after it is read again.
        problem: Why a file could not be read at the last poll, if it could not.
        has_more: Whether the last poll stopped before the end of what was there.
    """

    def __init__(
        self, path: str, present: LogFile, rotated: RotatedFiles, counts: ReadCounts, reader: LogReader
    ) -> None:
        self.reader = reader
        self.position: FilePosition | None = None
        self.problem: OSError | None = None
        self.has_more = False
        self._path = path
        self._files: deque[QueuedFile] = deque([QueuedFile(present)])
        self._draining = DrainingFiles(counts)
        self._rotated = rotated
        self._truncations = Truncations(rotated, counts)
        self._counts = counts
        self._is_after_gap = False
        self._is_at_end = False

    @property
    def present(self) -> QueuedFile:
        """The file that the path named last."""
        return self._files[-1]

    @property
    def logs(self) -> list[LogFile]:
        """All files that are open, the oldest first."""
        logs = [item.log for item in self._files]
        return [*self._draining.logs, *logs] if self._draining else logs

    @property
    def file_ids(self) -> set[FileId]:
        """The files that are open."""
        return {log.file_id for log in self.logs}

    def append(self, items: Iterable[QueuedFile]) -> None:
        """Add files that came after all others."""
        self._is_at_end = False
        self._files.extend(items)

    def prepend(self, items: list[QueuedFile]) -> None:
        """Add files that came before all others, in order."""
        self._is_at_end = False
        self._files.extendleft(reversed(items))

    def note_backlog(self, now: float) -> None:
        """Note that what all files hold now was written before they were found, and skip what is too much of it."""
        for item in self._files:
            item.note_backlog(now)
        self.skip_far_behind()

    def lag(self) -> int:
        """Return how many bytes are not read yet, an unfinished line included; what came after a poll is not asked."""
        if self._is_at_end:
            return self.present.log.framer.pending
        lag = 0
        for item in self._files:
            with suppress(OSError):
                lag += max(item.log.size() - item.log.offset, 0) + item.log.framer.pending
        return lag

    def skip_far_behind(self) -> None:
        """Skip the first part of a backlog of more than `MAX_BACKLOG`, and count it. Raises `OSError`."""
        too_much = self.lag() - MAX_BACKLOG
        for item in self._files:
            if too_much <= 0:
                return
            offset, line_start = item.log.offset, item.log.line_start
            skip_into(item.log, self.reader, min(offset + too_much, item.log.size()))
            # The line that this leads into is known from its start, and read.
            self._counts.skipped_bytes += max(item.log.line_start - line_start, 0)
            self._is_after_gap = True
            too_much -= item.log.offset - offset

    def is_read_copy(self, file: RotatedFile) -> bool:
        """Tell whether a rotated file is a copy of the present one."""
        return self._truncations.is_read_copy(file, self.present.log, self.position)

    def read(self, now: float, max_reads: int) -> list[LogBatch]:
        """
        Read what was written since the last poll, first by writers that still have an older file open.

        Args:
            now: The time.
            max_reads: Pieces to read at most, so that nothing else waits for a backlog.
        """
        self.has_more, self.problem, self._is_at_end = False, None, False
        batches: list[LogBatch] = []
        if self._draining:
            is_successor_empty = len(self._files) == 1 and self.present.log.offset == 0
            batches = self._draining.read(now, is_successor_empty=is_successor_empty)
        while True:
            item = self._files[0]
            self._is_after_gap |= item.is_after_gap
            item.is_after_gap = False
            try:
                max_reads = self._read_file(item, max_reads, now, batches)
                item.failing_since = None
            except OSError as error:
                if not self._give_up(item, error, now):
                    return batches
                continue
            if not max_reads:
                self.has_more = True
                return batches
            if self._files[0] is not item:
                continue  # A copy was found that is to be read first.
            if len(self._files) == 1:
                self._is_at_end = True
                return batches
            self._files.popleft()
            self._draining.add(item.log, copy(self.reader), now)
            self._files[0].log.follow(item.log)

    def note_position(self) -> None:
        """Note how far everything is read; of a file that cannot be read now the last position stays."""
        log = self._files[0].log
        if log.offset == 0:
            # Nothing identifies an empty file, and its writer may not have opened it yet.
            try:
                log = self._draining.last_named or log
            except OSError:
                return
        self.position = log.position(self._path)

    def close(self) -> None:
        """Close all files."""
        self._draining.close()
        for item in self._files:
            self._counts.close(item.log)
        self._files.clear()

    def _read_file(self, item: QueuedFile, reads: int, now: float, batches: list[LogBatch]) -> int:
        """Read the oldest file to its end, or until the pieces are used up; return how many may still be read."""
        if item.log.was_rewritten():
            self.prepend(self._truncations.start_again(item, self.reader, self.file_ids, self.position, now))
        elif item.log.offset == 0 and item is self.present:
            self.prepend(self._truncations.copies_of_unread(item.log, self.file_ids, self.position, now))
        while reads and self._files[0] is item and (data := item.log.read()):
            reads -= 1
            batch = self.reader.read(item.log.lines(data), item.times(now))
            self._counts.add(batch, len(data))
            batches.append(batch._replace(is_after_gap=True) if self._is_after_gap else batch)
            self._is_after_gap = False
            if len(data) < READ_SIZE and item is self.present:
                break  # Its end; what comes meanwhile is for the next poll.
        return reads

    def _give_up(self, item: QueuedFile, error: OSError, now: float) -> bool:
        """Count that a file cannot be read; return whether it is given up after a while, for the files after it."""
        self._counts.read_errors += 1
        if item.failing_since is None:
            item.failing_since = now
        if len(self._files) > 1 and now - item.failing_since >= ROTATE_WAIT:
            self._counts.files_lost += 1
            self._files.popleft()
            self._files[0].is_after_gap = True
            self._counts.close(item.log)
            self.problem = None
            return True
        self.problem = error
        with suppress(OSError):
            self._reopen(item.log)
        return False

    def _reopen(self, log: LogFile) -> None:
        """Open a file again that could not be read: its handle on a network file system may have expired."""
        names = [each.path for each in self._rotated.all() if each.file_id == log.file_id]
        any(log.reopen(name) for name in [self._path, *names])
