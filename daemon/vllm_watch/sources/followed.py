# SPDX-License-Identifier: Apache-2.0
"""
One followed path: the file that it names now, those that it named before, and what is still to be read of them.

Files stand in a queue, the oldest first and the present one last. A file that was read to its end and has a successor
is kept open for a little: its writer may not have noticed yet.
"""

from __future__ import annotations

import os

from collections import deque
from dataclasses import dataclass

from vllm_watch.checkpoint import FilePosition
from vllm_watch.reading.log_reader import LogReader, TailedBatch
from vllm_watch.reading.times import ArrivalTimes, LineTimes
from vllm_watch.sources.history import go_inside, stretches, times_of
from vllm_watch.sources.logfile import READ_SIZE, FileId, OpenLog
from vllm_watch.sources.siblings import siblings


ROTATE_WAIT = 10.0
"""Seconds for which a rotated file is still read."""

MAX_READS = 32
"""Pieces read at one look, so that nothing else waits for a backlog."""

TIMES_MAY_LAG = 0.05
"""Seconds by which a file's time may be before the moment at which it was written."""

MAX_BACKLOG = 1024 * 1024 * 1024
"""Of a longer backlog the beginning is skipped, and counted: being late for ever helps nobody."""


@dataclass(slots=True)
class FollowCounts:
    """What has been read and lost of a path since it is followed."""

    lines: int = 0
    size: int = 0
    truncations: int = 0
    rotations: int = 0
    lost_generations: int = 0
    long_lines: int = 0
    nul_bytes: int = 0
    skipped_bytes: int = 0


@dataclass(slots=True)
class _Queued:
    """A file to be read; what it held when it was found was written when it says, the rest just now."""

    log: OpenLog
    printed: LineTimes | None = None
    printed_until: int = 0

    def times(self, now: float) -> LineTimes:
        if self.printed is not None and self.log.offset < self.printed_until:
            return self.printed
        return ArrivalTimes(now)


@dataclass(slots=True)
class _Late:
    """A file that has a successor, and when it was last found to have grown."""

    log: OpenLog
    grown_at: float


class FollowedLog:
    """
    Follows one path whose file is there. Raises `OSError` where that cannot be read.

    Args:
        path: The path.
        counts: What is counted for all paths of a server.
    """

    def __init__(self, path: str, counts: FollowCounts) -> None:
        self.path = path
        self._counts = counts
        self._reader = LogReader()
        self._queue: deque[_Queued] = deque([_Queued(OpenLog(path))])
        self._late: list[_Late] = []
        self._removed_at: float | None = None
        self.has_more = False

    @property
    def file_ids(self) -> set[FileId]:
        """The files that are open."""
        return {item.log.file_id for item in self._queue} | {late.log.file_id for late in self._late}

    @property
    def lag(self) -> int:
        """How many bytes are not read yet, an unfinished line included."""
        logs = [item.log for item in self._queue]
        return sum(max(log.size() - log.offset, 0) + log.framer.pending for log in logs)

    def framing_counts(self) -> tuple[int, int]:
        """Return long lines dropped and NUL bytes taken out in the files that are open."""
        framers = [item.log.framer for item in self._queue] + [late.log.framer for late in self._late]
        return sum(framer.long_lines for framer in framers), sum(framer.nul_bytes for framer in framers)

    def position(self) -> FilePosition:
        """Return how far the oldest unread file has been read: from there on everything is read again."""
        return self._queue[0].log.position(self.path)

    def begin(self, position: FilePosition | None, stopped_at: float, now: float) -> list[TailedBatch]:
        """
        Find out what was before the first look.

        Args:
            position: Where reading stopped the last time; without it only how things stand is read.
            stopped_at: When that was. If the file of the position is gone, its successors are told by it.
            now: The time: nothing was written after it, whatever the files say.
        """
        current = self._queue[-1].log
        if position is None:
            return self._read_history(current, current.size(), now)
        if position.offset > 0 and current.is_at(position):
            return self._resume(current, position, now)
        return self._begin_among_siblings(position, stopped_at, now)

    def poll(self, now: float) -> list[TailedBatch]:
        """Look once: read what is new, of a new file if the path names one. Raises `OSError` if it names none."""
        status = os.stat(self.path)
        self._removed_at = None
        if FileId(status.st_dev, status.st_ino) != self._queue[-1].log.file_id:
            self._succeed()
        return self._read(now)

    def poll_removed(self, now: float) -> list[TailedBatch]:
        """Read what is left although the path names nothing any more."""
        batches = self._read(now)
        if batches or self._removed_at is None:
            self._removed_at = now
        return batches

    def is_over(self, now: float) -> bool:
        """Whether the path has named nothing for so long that nothing more will come."""
        return self._removed_at is not None and now - self._removed_at >= ROTATE_WAIT

    def close(self) -> None:
        """Close all files."""
        for log in [item.log for item in self._queue] + [late.log for late in self._late]:
            self._close(log)
        self._queue.clear()
        self._late.clear()

    def _succeed(self) -> None:
        """Queue the path's new file, and before it those that it named between two looks."""
        old = self._queue[-1].log
        new = OpenLog(self.path)
        found = siblings(self.path)
        place = next((index for index, sibling in enumerate(found) if sibling.file_id == old.file_id), None)
        if place is None:
            between = [sibling for sibling in found if sibling.modified > old.modified()]
        else:
            between = found[place + 1 :]
        known = self.file_ids | {new.file_id}
        for sibling in between:
            if sibling.file_id not in known:
                self._queue.append(_Queued(OpenLog(sibling.path)))
        self._counts.rotations += 1
        self._queue.append(_Queued(new))

    def _begin_among_siblings(self, position: FilePosition, stopped_at: float, now: float) -> list[TailedBatch]:
        """Go on in the rotated file where reading stopped; what came after it is read from the start."""
        current = self._queue.pop()
        opened = [OpenLog(sibling.path) for sibling in siblings(self.path)]
        # Of a file of which nothing was read only the inode is known, and inodes are used again.
        is_known = position.offset > 0
        place = next((index for index, log in enumerate(opened) if is_known and log.is_at(position)), None)
        if place is None:
            self._count_missing(position, opened, current.log)
            written_since = [log for log in opened if log.modified() >= stopped_at - TIMES_MAY_LAG]
            for log in opened:
                if log not in written_since:
                    log.close()
            self._queue.extend(_backlog(log, now) for log in [*written_since, current.log])
            return []
        for log in opened[:place]:
            log.close()
        self._counts.rotations += len(opened) - place
        batches = self._read_history(opened[place], position.offset, now)
        opened[place].go_on_at(position)
        self._queue.extend(_backlog(log, now) for log in [*opened[place:], current.log])
        self._skip_far_behind()
        return batches

    def _count_missing(self, position: FilePosition, opened: list[OpenLog], current: OpenLog) -> None:
        """Count a file that is not there as it was. The same inode is the same file, rewritten, or a later one's."""
        file_id = FileId(position.device, position.inode)
        if file_id == current.file_id:
            self._counts.truncations += position.offset > 0
        elif position.offset > 0 or file_id not in {log.file_id for log in opened}:
            self._counts.lost_generations += 1

    def _resume(self, current: OpenLog, position: FilePosition, now: float) -> list[TailedBatch]:
        batches = self._read_history(current, position.offset, now)
        current.go_on_at(position)
        self._queue[-1] = _backlog(current, now)
        self._skip_far_behind()
        return batches

    def _skip_far_behind(self) -> None:
        oldest = self._queue[0].log
        too_much = self.lag - MAX_BACKLOG
        if too_much > 0:
            before = oldest.offset
            go_inside(oldest, self._reader, min(oldest.offset + too_much, oldest.size()))
            self._counts.skipped_bytes += oldest.offset - before

    def _read_history(self, log: OpenLog, end: int, now: float) -> list[TailedBatch]:
        """Read how the server was started and what it said last before `end`; none of it is counted."""
        times = times_of(log, now)
        batches = []
        for stretch in stretches(log, end):
            go_inside(log, self._reader, stretch.start)
            while log.offset < stretch.end:
                data = log.read(min(READ_SIZE, stretch.end - log.offset))
                if not data:
                    break
                batches.append(TailedBatch(self._reader.read(log.lines(data), times), is_history=True))
        return batches

    def _read(self, now: float) -> list[TailedBatch]:
        self.has_more = False
        batches = self._read_late(now)
        reads = MAX_READS
        while True:
            item = self._queue[0]
            self._notice_rewriting(item.log)
            while reads and (data := item.log.read()):
                reads -= 1
                batches.append(self._digest(item.log, data, item.times(now)))
            if not reads:
                self.has_more = True
                return batches
            if len(self._queue) == 1:
                return batches
            self._late.append(_Late(self._queue.popleft().log, now))
            self._queue[0].log.follow(self._late[-1].log)

    def _read_late(self, now: float) -> list[TailedBatch]:
        batches: list[TailedBatch] = []
        for late in list(self._late):
            self._notice_rewriting(late.log)
            if data := late.log.read():
                late.grown_at = now
                batches.append(self._digest(late.log, data, ArrivalTimes(now)))
            elif now - late.grown_at >= ROTATE_WAIT:
                self._late.remove(late)
                self._close(late.log)
        return batches

    def _notice_rewriting(self, log: OpenLog) -> None:
        """Begin again with a file whose read part is gone: it was truncated, and perhaps filled again."""
        if log.was_rewritten():
            self._counts.truncations += 1
            log.rewind()
            self._reader = LogReader()

    def _digest(self, log: OpenLog, data: bytes, times: LineTimes) -> TailedBatch:
        batch = self._reader.read(log.lines(data), times)
        self._counts.lines += batch.lines
        self._counts.size += len(data)
        return TailedBatch(batch, is_history=False)

    def _close(self, log: OpenLog) -> None:
        self._counts.long_lines += log.framer.long_lines
        self._counts.nul_bytes += log.framer.nul_bytes
        log.close()


def _backlog(log: OpenLog, now: float) -> _Queued:
    """Return a file whose present contents were written while nobody watched."""
    return _Queued(log, times_of(log, now), log.size())
