# SPDX-License-Identifier: Apache-2.0
"""
One followed path: the file that it names now, those that it named before, and what is still to be read of them.

Files stand in a queue, the oldest first and the present one last. A file that was read to its end and has a successor
is kept open for a while: its writer may not have noticed yet.
"""

from __future__ import annotations

import os

from collections import deque
from contextlib import suppress
from copy import copy
from dataclasses import dataclass

from vllm_watch.reading.log_reader import LogReader, TailedBatch
from vllm_watch.reading.times import ArrivalTimes, LineTimes
from vllm_watch.sources.checkpoint import FilePosition
from vllm_watch.sources.log_file import READ_SIZE, FileId, OpenLog
from vllm_watch.sources.resume_point import ResumePoint
from vllm_watch.sources.rotation import TIMES_MAY_LAG, FollowCounts, Opened, RotatedFiles, from_place
from vllm_watch.sources.startup_scan import MAX_SEARCH, go_inside, stretches, times_of


ROTATE_WAIT = 30.0
"""Seconds for which a file that stays as it is is still looked at: a busy vLLM prints statistics every 10 s."""

MAX_READS = 32
"""Pieces read at one look, so that nothing else waits for a backlog."""

MAX_LATE = 16
"""Files with a successor that are kept open."""

MAX_BACKLOG = 1024 * 1024 * 1024
"""Of a longer backlog the beginning is skipped, and counted: being late for ever helps nobody."""


@dataclass(slots=True)
class _Queued:
    """
    A file to be read; what it held when it was found was written when it says, the rest just now.

    Before one that `is_after_gap` there was another that is lost.
    """

    log: OpenLog
    is_after_gap: bool = False
    printed: LineTimes | None = None
    printed_until: int = 0
    failing_since: float | None = None

    def times(self, now: float) -> LineTimes:
        if self.printed is not None and self.log.offset < self.printed_until:
            return self.printed
        return ArrivalTimes(now)

    def note_backlog(self, now: float) -> None:
        """Take what the file holds now for written while nobody watched."""
        self.printed, self.printed_until = times_of(self.log, self.log.offset, now), self.log.size()


@dataclass(slots=True)
class _Late:
    """A file that has a successor, when it was last found to have grown, and what its lines continue."""

    log: OpenLog
    reader: LogReader
    grown_at: float


class FileFollower:
    """
    Follows one path whose file is there. Raises `OSError` where that cannot be opened.

    `read_until` is a moment before which all that was written had been read, by the wall clock; who looks keeps it.

    `problem` is why the path could not be looked at, or its file not be read, at the last look. `is_failing` tells
    whether it was the file: what is open is read on although its path names nothing, or nothing readable.

    Args:
        path: The path.
        counts: What is counted for all paths of a server.
    """

    def __init__(self, path: str, counts: FollowCounts) -> None:
        self.path = path
        self.problem: OSError | None = None
        self.is_failing = False
        self.has_more = False
        self.read_until = 0.0
        self._counts = counts
        self._reader = LogReader()
        self._rotated = RotatedFiles(path, counts)
        self._queue: deque[_Queued] = deque([_Queued(OpenLog(path))])
        self._late: list[_Late] = []
        self._unseen_since: float | None = None
        self._grown_at = float("-inf")
        self._position: FilePosition | None = None
        self._is_after_gap = False

    @property
    def file_ids(self) -> set[FileId]:
        """The files that are open."""
        return {log.file_id for log in self._open_logs()}

    @property
    def real_path(self) -> str:
        """Where the file is that the path named last, behind all links."""
        return self._queue[-1].log.real_path

    @property
    def has_read_all(self) -> bool:
        """Whether the last look read all that there was: nothing failed, and nothing is left for the next one."""
        return self.problem is None and not self.has_more

    @property
    def position(self) -> FilePosition | None:
        """How far the oldest unread file had been read after the last look: from there on all is read again."""
        return self._position

    def lag(self) -> int:
        """Return how many bytes are not read yet, an unfinished line included."""
        lag = 0
        for item in self._queue:
            with suppress(OSError):
                lag += max(item.log.size() - item.log.offset, 0) + item.log.framer.pending
        return lag

    def framing_counts(self) -> tuple[int, int]:
        """Return long lines dropped and NUL bytes taken out in the files that are open."""
        framers = [log.framer for log in self._open_logs()]
        return sum(framer.long_lines for framer in framers), sum(framer.nul_bytes for framer in framers)

    def begin(self, before: ResumePoint | None, now: float, max_search: int = MAX_SEARCH) -> list[TailedBatch]:
        """
        Find out what was before the first look. Raises `OSError`; then nothing more can be done than to close.

        Args:
            before: Where reading stopped the last time; without it only how things stand is read.
            now: The time: nothing was written after it, whatever the files say.
            max_search: How many bytes are searched for the server's start.
        """
        current = self._queue[-1]
        if before is None:
            return self._read_history(current.log, current.log.size(), now, max_search)
        if before.position.offset > 0 and current.log.is_at(before.position):
            return self._resume(before, now, max_search)
        return self._begin_among_siblings(before, now, max_search)

    def poll(self, now: float, max_reads: int = MAX_READS) -> list[TailedBatch]:
        """Look once: read what is new, of a new file if the path names one, at most so many pieces."""
        self.problem, self.is_failing = None, False
        self._look(now)
        if self.has_more:
            with suppress(OSError):
                self._skip_far_behind()
        batches = self._read(now, max_reads)
        if batches:
            self._grown_at = now
        self._note_position()
        return batches

    def is_over(self, now: float) -> bool:
        """Whether the path has named nothing that can be opened for so long that nothing more will come."""
        return self._unseen_since is not None and now - max(self._unseen_since, self._grown_at) >= ROTATE_WAIT

    def remember(self) -> ResumePoint | None:
        """Return what is to be known when the path names something again: where and when reading stopped."""
        if self._position is None:
            return None
        modified = 0.0
        with suppress(OSError):
            modified = self._queue[-1].log.modified()
        return ResumePoint(self._position, modified, is_same_run=True)

    def close(self) -> None:
        """Close all files."""
        for log in self._open_logs():
            self._close(log)
        self._queue.clear()
        self._late.clear()

    def _open_logs(self) -> list[OpenLog]:
        return [late.log for late in self._late] + [item.log for item in self._queue]

    def _look(self, now: float) -> None:
        try:
            status = os.stat(self.path)
            if FileId(status.st_dev, status.st_ino) != self._queue[-1].log.file_id:
                self._succeed()
            self._unseen_since = None
        except OSError as error:
            self.problem = error
            if self._unseen_since is None:
                self._unseen_since = now

    def _succeed(self) -> None:
        """Queue the path's new file, and before it those that it named between two looks."""
        old = self._queue[-1].log
        new = OpenLog(self.path)
        lost = self._counts.files_lost
        try:
            between = self._rotated.after(old, self.file_ids | {new.file_id})
        except OSError:
            new.close()
            raise
        is_after_gap = self._counts.files_lost > lost  # Which one is missing nobody knows.
        for each in between:
            if self._is_read_copy(each.log, old):
                each.log.close()
            else:
                self._queue.append(_Queued(each.log, is_after_gap))
        self._counts.rotations += 1
        self._queue.append(_Queued(new, is_after_gap))

    def _is_read_copy(self, log: OpenLog, old: OpenLog) -> bool:
        """Whether a file is a copy of one that is open: someone made it by hand, or with ``copy`` in logrotate."""
        position = self._position_in(old)
        return position is not None and self._is_at(log, position)

    def _begin_among_siblings(self, before: ResumePoint, now: float, max_search: int) -> list[TailedBatch]:
        """Go on in the rotated file where reading stopped; what came after it is read from the start."""
        position = before.position
        current = self._queue.pop()
        opened = self._rotated.last({current.log.file_id})
        # Of a file of which nothing was read only the inode is known, and inodes are used again.
        same = [each for each in opened if position.offset > 0 and self._is_at(each.log, position)]
        if same:
            wanted = from_place(same[0], opened, before.stopped_at)
            wanted = [each for each in wanted if each is same[0] or each not in same]
        else:
            wanted = [each for each in opened if each.sibling.modified >= before.stopped_at - TIMES_MAY_LAG]
        for each in opened:
            if each not in wanted:
                each.log.close()
        self._queue.extend([*(_Queued(each.log) for each in wanted), current])
        batches: list[TailedBatch] = []
        if same:
            batches = self._go_on(same[0].log, before, now, max_search)
            self._counts.rotations += len(wanted)
        elif not before.is_same_run:
            self._count_missing(position, opened, current.log)
        for item in self._queue:
            item.note_backlog(now)
        self._skip_far_behind()
        return batches

    def _count_missing(self, position: FilePosition, opened: list[Opened], current: OpenLog) -> None:
        """Count a file that is not there as it was. The same inode is the same file, rewritten, or a later one's."""
        if self._is_of(position, current):
            self._counts.truncations += position.offset > 0
        elif position.offset > 0 or not any(self._is_of(position, each.log) for each in opened):
            self._counts.files_lost += 1

    def _resume(self, before: ResumePoint, now: float, max_search: int) -> list[TailedBatch]:
        current = self._queue[-1]
        batches = self._go_on(current.log, before, now, max_search)
        current.note_backlog(now)
        self._skip_far_behind()
        return batches

    def _go_on(self, log: OpenLog, before: ResumePoint, now: float, max_search: int) -> list[TailedBatch]:
        """Go on where reading stopped, knowing what was open there."""
        batches: list[TailedBatch] = []
        if before.is_same_run:
            go_inside(log, self._reader, before.position.offset)
        else:
            batches = self._read_history(log, before.position.offset, now, max_search)
        log.go_on_at(before.position)
        return batches

    def _skip_far_behind(self) -> None:
        too_much = self.lag() - MAX_BACKLOG
        for item in self._queue:
            if too_much <= 0:
                return
            offset, line_start = item.log.offset, item.log.line_start
            go_inside(item.log, self._reader, min(offset + too_much, item.log.size()))
            # The line that this leads into is known from its beginning, and read.
            self._counts.skipped_bytes += max(item.log.line_start - line_start, 0)
            self._is_after_gap = True
            too_much -= item.log.offset - offset

    def _read_history(self, log: OpenLog, end: int, now: float, max_search: int) -> list[TailedBatch]:
        """Read how the server was started and what it said last before `end`; none of it is counted."""
        batches = []
        is_after_gap = False
        for stretch in stretches(log, end, max_search):
            times = times_of(log, stretch.start, now)
            go_inside(log, self._reader, stretch.start)
            while log.offset < stretch.end:
                data = log.read(min(READ_SIZE, stretch.end - log.offset))
                if not data:
                    break
                batch = self._reader.read(log.lines(data), times)._replace(is_after_gap=is_after_gap)
                batches.append(TailedBatch(batch, is_history=True))
                is_after_gap = False
            is_after_gap = True
        return batches

    def _read(self, now: float, reads: int) -> list[TailedBatch]:
        self.has_more = False
        batches = self._read_late(now)
        while True:
            item = self._queue[0]
            self._is_after_gap |= item.is_after_gap
            item.is_after_gap = False
            try:
                reads = self._read_item(item, reads, now, batches)
                item.failing_since = None
            except OSError as error:
                if not self._gives_up(item, error, now):
                    return batches
                continue
            if not reads:
                self.has_more = True
                return batches
            if self._queue[0] is not item:
                continue
            if len(self._queue) == 1:
                return batches
            self._queue.popleft()
            self._late.append(_Late(item.log, copy(self._reader), now))
            self._queue[0].log.follow(item.log)
            if len(self._late) > MAX_LATE:
                self._let_go(self._late[0])

    def _read_item(self, item: _Queued, reads: int, now: float, batches: list[TailedBatch]) -> int:
        """Read a file to its end, or until the pieces are used up; return how many may still be read."""
        if item.log.was_rewritten():
            self._begin_again(item)
        elif item.log.offset == 0 and item is self._queue[-1]:
            # Of a file of which nothing was read nothing is missed: only a copy tells that something was in it.
            self._queue.extendleft(reversed(self._copies(item.log)))
        while reads and self._queue[0] is item and (data := item.log.read()):
            reads -= 1
            batch, is_history = self._digest(item.log, self._reader, data, item.times(now))
            batches.append(TailedBatch(batch._replace(is_after_gap=self._is_after_gap), is_history))
            self._is_after_gap = False
        return reads

    def _gives_up(self, item: _Queued, error: OSError, now: float) -> bool:
        """Count that a file cannot be read; after a while the next one's turn comes, if there is one."""
        self._counts.read_errors += 1
        self.problem, self.is_failing = error, True
        if item.failing_since is None:
            item.failing_since = now
        if len(self._queue) > 1 and now - item.failing_since >= ROTATE_WAIT:
            self._counts.files_lost += 1
            self._queue.popleft()
            self._queue[0].is_after_gap = True
            self._close(item.log)
            self.problem, self.is_failing = None, False
            return True
        with suppress(OSError):
            self._reopen(item.log)
        return False

    def _reopen(self, log: OpenLog) -> None:
        """Open a file anew that could not be read: what is open of a network's file system may have expired."""
        names = [each.path for each in self._rotated.all() if each.file_id == log.file_id]
        any(log.reopen(name) for name in [self.path, *names])

    def _read_late(self, now: float) -> list[TailedBatch]:
        batches: list[TailedBatch] = []
        for late in list(self._late):
            try:
                if late.log.was_rewritten():
                    # Something else stands in it now, such as the next copy of the log.
                    self._counts.truncations += 1
                    self._let_go(late)
                    continue
                data = late.log.read()
            except OSError:
                self._counts.read_errors += 1
                data = b""
            if data:
                late.grown_at = now
                batches.append(self._digest(late.log, late.reader, data, ArrivalTimes(now)))
            elif now - late.grown_at >= ROTATE_WAIT and not self._is_still_written(late):
                self._let_go(late)
        return batches

    def _let_go(self, late: _Late) -> None:
        self._late.remove(late)
        self._counts.skipped_bytes += late.log.framer.pending
        self._close(late.log)

    def _is_still_written(self, late: _Late) -> bool:
        """Whether a writer that is silent has not moved on: its new file is empty, its old one has a name."""
        is_last = late is self._late[-1] and len(self._queue) == 1
        try:
            return is_last and self._queue[0].log.offset == 0 and not late.log.is_unlinked()
        except OSError:
            return False

    def _begin_again(self, item: _Queued) -> None:
        """
        Begin again with a file whose read part is gone: it was truncated, and perhaps filled again.

        If it was copied before (``copytruncate``), what was not read of it is in the copy.
        """
        lost = self._counts.files_lost
        copies = self._copies(item.log)
        if self._counts.files_lost > lost:
            for each in (*copies, item):
                each.is_after_gap = True
        self._counts.truncations += 1
        if not copies:
            self._counts.skipped_bytes += item.log.framer.pending
        item.log.rewind()
        item.printed = None
        if not copies or copies[0].log.offset == 0:
            self._reader.begin()
        self._queue.extendleft(reversed(copies))

    def _copies(self, log: OpenLog) -> list[_Queued]:
        """Open the copies that hold what was not read of a file before it was truncated, the oldest first."""
        opened = self._rotated.new(self.file_ids)
        try:
            return self._begun_copies(log, opened)
        except OSError:
            self._rotated.put_back(opened)
            raise

    def _begun_copies(self, log: OpenLog, opened: list[Opened]) -> list[_Queued]:
        if log.line_start == 0:
            return [_Queued(each.log) for each in opened]
        position = self._position_in(log)
        same = [each for each in opened if position is not None and self._is_at(each.log, position)]
        if not same or position is None:
            self._counts.files_lost += bool(opened)  # The first copy is gone already.
            return [_Queued(each.log) for each in opened]
        place = opened.index(same[0])
        for each in opened[:place]:
            each.log.close()
        go_inside(same[0].log, LogReader(), position.offset)  # What is open there this reader knows.
        same[0].log.go_on_at(position)
        return [_Queued(each.log) for each in opened[place:]]

    def _note_position(self) -> None:
        """Remember how far all is read; of a file that cannot be read now, what was so before."""
        log = self._queue[0].log
        with suppress(OSError):
            if log.offset == 0 and self._late and not self._late[-1].log.is_unlinked():
                log = self._late[-1].log  # Nothing is known of an empty file, and its writer may not have moved on.
            if not log.was_rewritten():
                self._position = log.position(self.path)

    def _position_in(self, log: OpenLog) -> FilePosition | None:
        """Return how far a file had been read after the last look, if it was the oldest unread one and not new."""
        position = self._position
        return position if position and position.offset > 0 and self._is_of(position, log) else None

    def _is_at(self, log: OpenLog, position: FilePosition) -> bool:
        try:
            return log.is_at(position)
        except OSError:
            self._counts.read_errors += 1
            return False

    @staticmethod
    def _is_of(position: FilePosition, log: OpenLog) -> bool:
        return FileId(position.device, position.inode) == log.file_id

    def _digest(self, log: OpenLog, reader: LogReader, data: bytes, times: LineTimes) -> TailedBatch:
        batch = reader.read(log.lines(data), times)
        self._counts.lines += batch.lines
        self._counts.size += len(data)
        return TailedBatch(batch, is_history=False)

    def _close(self, log: OpenLog) -> None:
        self._counts.long_lines += log.framer.long_lines
        self._counts.nul_bytes += log.framer.nul_bytes
        log.close()
