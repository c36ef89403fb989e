# SPDX-License-Identifier: Apache-2.0
"""
Follows one path: reads the file that it names, and first those that it named before and that are not read to their end.

This module handles rotation, truncation, a path that names no file for a while, and files that cannot be opened or read
(those after them wait only for a limited time). A file that was read to its end and then replaced is read for a while
longer: its writer opens the new file late, or never.
"""

from __future__ import annotations

import os

from collections import deque
from contextlib import suppress
from copy import copy
from dataclasses import dataclass

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.log_file import READ_SIZE, FileId, LogFile, ReadCounts
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT, ResumePoint, RotatedFiles
from vllm_watch.daemon.sources.startup_scan import MAX_SEARCH, read_history, recent_start, skip_into, times_of


MAX_READS = 32
"""Pieces read in one poll, so that nothing else waits for a backlog."""


class FileFollower:
    """
    Follows one path whose file is there. Raises `OSError` if that cannot be opened.

    Args:
        path: The path.
        counts: Counts what is read and lost.
        reader: Reads the lines of the oldest file.
        read_until: A moment, in seconds since the epoch, before which all that was written had been read.

    Attributes:
        position: How far the oldest unread file had been read after the last poll: everything after it is read again.
        problem: Why the path had no readable file at the last poll, if it had none.
        is_failing: Whether the file itself could not be read at the last poll, and not only its path.
        has_more: Whether the last poll stopped before the end of what was there.
    """

    def __init__(self, path: str, counts: ReadCounts, reader: LogReader, read_until: float) -> None:
        self.position: FilePosition | None = None
        self.problem: OSError | None = None
        self.is_failing = self.has_more = False
        self._path = path
        self._counts = counts
        self._reader = reader
        self._read_until = read_until
        self._rotated = RotatedFiles(path, counts)
        self._files = deque([LogFile(path)])
        """The files to be read, the oldest first, and last the one that the path names now."""
        self._draining = DrainingFiles(counts)
        self._is_after_gap = self._is_at_end = False
        self._unseen_since: float | None = None
        self._grown_at = float("-inf")

    @property
    def logs(self) -> list[LogFile]:
        """The files that are open, the oldest first."""
        return [*self._draining.logs, *self._files]

    @property
    def present(self) -> LogFile:
        """The file that the path named last."""
        return self._files[-1]

    @property
    def _has_read_all(self) -> bool:
        return self.problem is None and not self.has_more

    def lag(self) -> int:
        """Return how many bytes are not read yet, an unfinished line included; what came after a poll is not asked."""
        if self._is_at_end:
            return self.present.framer.pending
        lag = 0
        for log in self._files:
            with suppress(OSError):
                lag += max(log.size() - log.offset, 0) + log.framer.pending
        return lag

    def start(
        self, point: ResumePoint | None, now: float, max_search: int = MAX_SEARCH, since: float = float("inf")
    ) -> list[LogBatch]:
        """
        Read what happened before the first poll. Raises `OSError`; then nothing more can be done than to close.

        `point` is where reading stopped the last time; without it only the server's start and its last lines are read.
        If the server was watched already `since` a moment, a later start and what follows is for `poll` then.
        """
        if point is not None:
            batches = self._resume(point, now, max_search)
            self._note_backlog(now)
            return batches
        log = self.present
        start = None if since > now else recent_start(log, since, now, max_search)
        if start is None:
            return read_history(log, self._reader, log.size(), now, max_search)
        skip_into(log, self._reader, start)
        self._note_backlog(now)
        return []

    def poll(self, now: float, wall: float, max_reads: int = MAX_READS) -> list[LogBatch]:
        """
        Read what was written since the last poll, also of a new file at the path.

        `wall` is the wall clock's time at `now`, in seconds since the epoch; at most `max_reads` pieces are read.
        """
        self.problem = None
        self._check_path(now)
        batches = self._read(now, max_reads)
        if batches:
            self._grown_at = now
        if self._has_read_all:
            self._read_until = wall
        log = self._files[0]
        with suppress(OSError):  # Of a file that cannot be read now the last position stays.
            # Nothing identifies an empty file, and its writer may not have opened it yet.
            last = self._draining.last_named if log.offset == 0 else None
            position = (last or log).position(self._path, self._read_until)
            # One that stands still keeps its time: the checkpoint of a quiet log is not written again.
            if self.position is None or self.position.dated(self._read_until) != position:
                self.position = position
        return batches

    def is_over(self, now: float) -> bool:
        """Tell whether the path has named nothing that can be opened for long enough to give it up."""
        return self._unseen_since is not None and now - max(self._unseen_since, self._grown_at) >= ROTATE_WAIT

    def close(self) -> ResumePoint | None:
        """Close all files; return where to resume when the path names something again."""
        self._draining.close()
        for log in self._files:
            self._counts.close(log)
        return None if self.position is None else ResumePoint(self.position, is_same_run=True)

    def _resume(self, point: ResumePoint, now: float, max_search: int) -> list[LogBatch]:
        """Continue in the file in which reading stopped, knowing what was open there, or read what came after it."""
        if not self.present.is_at(point.position):
            rotated, is_found = self._rotated.since(point, self.present)
            self._files.extendleft(reversed(rotated))
            if not is_found:
                return []
        log, batches = self._files[0], list[LogBatch]()
        if point.is_same_run:
            skip_into(log, self._reader, point.position.offset)
        else:
            batches = read_history(log, self._reader, point.position.offset, now, max_search)
        log.resume_at(point.position)
        self._counts.add(rotations=len(self._files) - 1)
        return batches

    def _note_backlog(self, now: float) -> None:
        """Note that what all files hold now was written before they were found."""
        for log in self._files:
            log.printed, log.printed_until = times_of(log, log.offset, now), log.size()

    def _check_path(self, now: float) -> None:
        """Compare the file that the path names now with the one it named before."""
        try:
            status = os.stat(self._path)
            if FileId(status.st_dev, status.st_ino) != self.present.file_id:
                self._append_successors(now)
            self._unseen_since = None
        except OSError as error:
            self.problem = error
            if self._unseen_since is None:
                self._unseen_since = now
            with suppress(OSError):  # Files may come and go, and be compressed, while each poll finds no name.
                if self._rotated.has(self.present):
                    self._append_successors(now, is_there=False)

    def _append_successors(self, now: float, *, is_there: bool = True) -> None:
        """Have the path's new file read, if there is one, and first those that the path named between two polls."""
        new = [LogFile(self._path)] if is_there else []
        lost = self._counts.total.files_lost
        try:
            known = {log.file_id for log in (*self.logs, *new)}
            successors = [*self._rotated.after(self.present, known, now, self.position), *new]
        except OSError:
            for log in new:
                log.close()
            raise
        for log in successors:
            log.is_after_gap = self._counts.total.files_lost > lost  # Which one is missing is not known.
        self._counts.add(rotations=len(successors))
        self._is_at_end = self._is_at_end and not successors
        self._files.extend(successors)

    def _read(self, now: float, max_reads: int) -> list[LogBatch]:
        """Read what was written since the last poll, first by writers that still have an older file open."""
        self.has_more = self.is_failing = self._is_at_end = False
        is_successor_empty = len(self._files) == 1 and self.present.offset == 0
        batches = self._draining.read(now, is_successor_empty=is_successor_empty)
        while True:
            log = self._files[0]
            self._is_after_gap |= log.is_after_gap
            log.is_after_gap = False
            try:
                max_reads = self._read_file(log, max_reads, now, batches)
                log.failing_since = None
            except OSError as error:
                if not self._give_up(log, error, now):
                    return batches
                continue
            if not max_reads:
                self.has_more = True
                return batches
            if self._files[0] is not log:
                continue  # A copy was found that is to be read first.
            if len(self._files) == 1:
                self._is_at_end = True
                return batches
            self._files.popleft()
            self._draining.add(log, copy(self._reader), now)
            if self._files[0].offset == 0:
                self._files[0].framer.follow(log.framer)  # A container's line may continue here.

    def _read_file(self, log: LogFile, reads: int, now: float, batches: list[LogBatch]) -> int:
        """Read the oldest file to its end, or until the pieces are used up; return how many may still be read."""
        if log.was_rewritten():
            self._start_again(log, now)
        elif log.offset == 0 and log is self.present:  # Only copies show the truncation of a file that was not read.
            self._files.extendleft(reversed(self._copies(log, now)))
        while reads and self._files[0] is log and (data := log.read()):
            reads -= 1
            batch = self._reader.read(log.framer.feed(data), log.times(now))
            self._counts.add(lines=batch.lines, size=len(data))
            batches.append(batch._replace(is_after_gap=True) if self._is_after_gap else batch)
            self._is_after_gap = False
            if len(data) < READ_SIZE and log is self.present:
                break  # Its end; what comes meanwhile is for the next poll.
        return reads

    def _start_again(self, log: LogFile, now: float) -> None:
        """Go back to the start of a file that was rewritten, and read first the copies that hold what was unread."""
        lost = self._counts.total.files_lost
        copies = self._copies(log, now)
        if self._counts.total.files_lost > lost:
            for each in (*copies, log):
                each.is_after_gap = True
        self._counts.add(truncations=1, skipped_bytes=0 if copies else log.framer.pending)
        log.rewind()
        log.printed = None
        if not copies or copies[0].offset == 0:
            self._reader.start_file()
        self._files.extendleft(reversed(copies))

    def _copies(self, log: LogFile, now: float) -> list[LogFile]:
        return self._rotated.copies(log, {each.file_id for each in self.logs}, self.position, now)

    def _give_up(self, log: LogFile, error: OSError, now: float) -> bool:
        """Count that a file cannot be read; return whether it is given up after a while, for the files after it."""
        self._counts.add(read_errors=1)
        if log.failing_since is None:
            log.failing_since = now
        if len(self._files) > 1 and now - log.failing_since >= ROTATE_WAIT:
            self._counts.add(files_lost=1)
            self._files.popleft()
            self._files[0].is_after_gap = True
            self._counts.close(log)
            return True
        self.is_failing, self.problem = True, error
        with suppress(OSError):  # Its handle on a network file system may have expired.
            names = [each.path for each in self._rotated.all() if each.file_id == log.file_id]
            any(log.reopen(name) for name in [self._path, *names])
        return False


MAX_DRAINING = 16
"""Files with a successor that are kept open."""


@dataclass(slots=True)
class _DrainingFile:
    """A file that has a successor, the reader of its lines, and when it was last found to have grown."""

    log: LogFile
    reader: LogReader
    grown_at: float


class DrainingFiles:
    """Reads what is still written to files that have a successor; closes those that nobody writes to any more."""

    def __init__(self, counts: ReadCounts) -> None:
        self._counts = counts
        self._files: list[_DrainingFile] = []

    @property
    def logs(self) -> list[LogFile]:
        """The files, the oldest first."""
        return [file.log for file in self._files]

    @property
    def last_named(self) -> LogFile | None:
        """The newest file, if it still has a name. Raises `OSError`."""
        if not self._files or self._files[-1].log.is_unlinked():
            return None
        return self._files[-1].log

    def add(self, log: LogFile, reader: LogReader, now: float) -> None:
        """Keep a file for a while; of too many the oldest is closed."""
        self._files.append(_DrainingFile(log, reader, now))
        if len(self._files) > MAX_DRAINING:
            self._close(self._files[0])

    def read(self, now: float, *, is_successor_empty: bool) -> list[LogBatch]:
        """
        Read a piece of each file that has grown.

        If only the path's present file comes after the newest one, and is empty, the writer is silent or has not opened
        it yet.
        """
        batches: list[LogBatch] = []
        for file in list(self._files):
            try:
                if file.log.was_rewritten():
                    # It holds something else now, such as the next copy of the log.
                    self._counts.add(truncations=1)
                    self._close(file)
                    continue
                data = file.log.read()
            except OSError:
                self._counts.add(read_errors=1)
                data = b""
            if data:
                file.grown_at = now
                batch = file.reader.read(file.log.framer.feed(data), ArrivalTimes(now))
                self._counts.add(lines=batch.lines, size=len(data))
                batches.append(batch)
            elif now - file.grown_at >= ROTATE_WAIT and not (is_successor_empty and self._may_be_written(file)):
                self._close(file)
        return batches

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            self._counts.close(file.log)
        self._files.clear()

    def _close(self, file: _DrainingFile) -> None:
        self._files.remove(file)
        self._counts.add(skipped_bytes=file.log.framer.pending)
        self._counts.close(file.log)

    def _may_be_written(self, file: _DrainingFile) -> bool:
        """Tell whether a writer that is silent may still have this file open: it is the newest, and has a name."""
        try:
            return file is self._files[-1] and not file.log.is_unlinked()
        except OSError:
            return False
