# SPDX-License-Identifier: Apache-2.0
"""
One open log file: reads from an offset, and remembers the bytes by which a later run finds the same place.

This module handles file handles that fail (an expired handle of a network file system is replaced, and a path that
names a pipe or a device is not opened), truncation, also of a file that is filled again to the same length or more, and
holes: when a file is truncated, a writer that does not append leaves a hole; holes are skipped.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib

from typing import NamedTuple

from vllm_watch.daemon.reading.framing import LineReader
from vllm_watch.daemon.reading.log_reader import TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes, PrintedTimes
from vllm_watch.daemon.sources.checkpoint import CHECKED_SIZE, FilePosition


READ_SIZE = 256 * 1024


class NotRegularError(OSError):
    """The path is a directory, a pipe, a socket or a device."""


class FileId(NamedTuple):
    """What tells files apart as long as they exist."""

    device: int
    inode: int


class LogFile:
    """
    An open log, how far it has been read, and what is known of what comes next. All methods raise `OSError`.

    The bytes that identify a position are kept as they were read: if the file is rewritten meanwhile, the position is
    still one in what was read.

    Args:
        path: The path. Raises `NotRegularError` if it names anything but a file.

    Attributes:
        file_id: The file's device and inode.
        real_path: Where the file was when it was opened, with all links resolved.
        offset: How far it has been read, in bytes.
        line_start: Where the unfinished line starts, in bytes: everything before it was read.
        framer: Makes lines of the bytes.
        is_after_gap: Whether a file that came before it is lost.
        printed: The times of what the file held when it was found; of later lines the time is that of their arrival.
        printed_until: Up to which offset they hold.
        failing_since: When reading it first failed, if it has failed ever since.
    """

    def __init__(self, path: str) -> None:
        self.real_path = os.path.realpath(path)
        self._fd, self.file_id = _open(path)
        self.is_after_gap = False
        self.printed: PrintedTimes | None = None
        self.printed_until = 0
        self.failing_since: float | None = None
        self.offset = self.line_start = 0
        self.framer = LineReader()
        self._head = b""
        """The file's first bytes; like the others at most `CHECKED_SIZE`."""
        self._last = b""
        """The bytes before `offset`."""
        self._marker = b""
        """The bytes before `line_start`."""

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def reopen(self, path: str) -> bool:
        """Open the same file again if `path` names it, and use the new handle; return whether it does."""
        fd, file_id = _open(path)
        if file_id != self.file_id:
            os.close(fd)
            return False
        self.close()
        self._fd = fd
        return True

    def size(self) -> int:
        """Return the file's size now, in bytes."""
        return os.fstat(self._fd).st_size

    def modified(self) -> float:
        """Return when the file was last written, in seconds since the epoch."""
        return os.fstat(self._fd).st_mtime

    def is_unlinked(self) -> bool:
        """Tell whether the file has no name any more: it takes room on the disk for as long as it is open."""
        return os.fstat(self._fd).st_nlink == 0

    def is_in_place(self) -> bool:
        """Tell whether the file is still at its real path: if so, what has changed is a link that led to it."""
        try:
            status = os.stat(self.real_path, follow_symlinks=False)
        except OSError:
            return False
        return FileId(status.st_dev, status.st_ino) == self.file_id

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset."""
        return os.pread(self._fd, size, offset)

    def was_rewritten(self) -> bool:
        """Tell whether the bytes read last are gone: the file was truncated, and perhaps filled again."""
        last = self._last
        if not last:
            return self.size() < self.offset
        if self.read_at(self.offset - len(last), len(last)) != last:
            return True
        # All holes look the same: then the head tells.
        return not last.strip(b"\0") and self.read_at(0, len(self._head)) != self._head

    def position(self, path: str, read_until: float) -> FilePosition:
        """Return how far the file was read, to the start of the unfinished line."""
        head, marker = self._head[: self.line_start], self._marker
        marks = len(head), zlib.crc32(head), len(marker), zlib.crc32(marker)
        return FilePosition(path, *self.file_id, self.line_start, *marks, read_until)

    def times(self, now: float) -> LineTimes:
        """Return the times of the lines that are read next."""
        return self.printed if self.printed is not None and self.offset < self.printed_until else ArrivalTimes(now)

    def is_at(self, position: FilePosition) -> bool:
        """Tell whether this is the file of a position, and not its start: the same first bytes and those before it."""
        if position.offset == 0:
            return False
        head = self.read_at(0, position.head_size)
        marker = self.read_at(max(position.offset - position.marker_size, 0), position.marker_size)
        return (len(head), zlib.crc32(head), len(marker), zlib.crc32(marker)) == (
            position.head_size,
            position.head_crc,
            position.marker_size,
            position.marker_crc,
        )

    def resume_at(self, position: FilePosition) -> None:
        """Continue exactly at a position; what is open there is known if all before it was just read."""
        if self.offset != position.offset:
            self.framer.lose_place(self.read_at(0, CHECKED_SIZE))
        # A line may start behind a hole.
        self._move_to(position.offset, line_ends=(b"\n", b"\0"))

    def rewind(self) -> None:
        """Start again at the file's first byte."""
        self.framer.start_file()
        self._move_to(0)

    def skip_to(self, offset: int) -> None:
        """Continue at an offset, at the next line that starts there or after it."""
        self.framer.start_file()
        if offset > 0:
            self.framer.lose_place(self.read_at(0, CHECKED_SIZE))
        self._move_to(offset)

    def read(self, size: int = READ_SIZE) -> bytes:
        """Return the next bytes and move on, at most `size`; nothing at the end."""
        data = self.read_at(self.offset, size)
        if data and not data.strip(b"\0"):
            self._skip_hole()
            data = self.read_at(self.offset, size)
        if data:
            if self.offset < CHECKED_SIZE:
                self._head = (self._head[: self.offset] + data)[:CHECKED_SIZE]
            line_end = data.rfind(b"\n") + 1
            if line_end:
                self.line_start = self.offset + line_end
                self._marker = self._followed_by(data, line_end)
            self._last = self._followed_by(data, len(data))
            self.offset += len(data)
        return data

    def _followed_by(self, data: bytes, end: int) -> bytes:
        """Return the last bytes of what was read and the first `end` of these."""
        return (self._last + data[max(end - CHECKED_SIZE, 0) : end])[-CHECKED_SIZE:]

    def _before(self, offset: int) -> bytes:
        size = min(offset, CHECKED_SIZE)
        return self.read_at(offset - size, size) if size else b""  # At the start nothing can fail.

    def _move_to(self, offset: int, line_ends: tuple[bytes, ...] = (b"\n",)) -> None:
        last = self._before(offset)  # First: if that fails nothing has moved.
        self._head = self.read_at(0, CHECKED_SIZE) if offset else b""
        self.offset = self.line_start = offset
        self._last = self._marker = last
        if offset > 0 and last[-1:] not in line_ends:
            self.framer.go_inside_line()
        else:
            self.framer.go_to_line()

    def _skip_hole(self) -> None:
        """Continue after a hole: gigabytes of it take no time."""
        try:
            end = max(os.lseek(self._fd, self.offset, os.SEEK_DATA), self.offset)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return  # This file system reports no holes: their NUL bytes are read.
            end = max(self.size(), self.offset)
        if end == self.offset:
            return
        if self.offset < CHECKED_SIZE:
            self._head = self.read_at(0, CHECKED_SIZE)
        self._last = self._before(end)
        self.framer.nul_bytes += end - self.offset
        if self.line_start == self.offset:
            self.line_start, self._marker = end, self._last
        self.offset = end


class ReadCounts:
    """
    What has been read and lost of a server's log files so far.

    Attributes:
        total: All counts, but for what the framers of open files have counted.
    """

    def __init__(self) -> None:
        self.total = TailCounts()

    def add(self, **numbers: int) -> None:
        """Count so much more of each of these fields of `TailCounts`."""
        if any(numbers.values()):
            total = self.total._asdict()
            self.total = self.total._replace(**{name: total[name] + number for name, number in numbers.items()})

    def add_framed(self, log: LogFile) -> None:
        """Count what the framer of a file has counted."""
        self.add(long_lines=log.framer.long_lines, nul_bytes=log.framer.nul_bytes)

    def close(self, log: LogFile) -> None:
        """Close a file, and keep what its framer counted."""
        self.add_framed(log)
        log.close()


def _open(path: str) -> tuple[int, FileId]:
    # O_NONBLOCK: opening a pipe would wait for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularError(f"{path} is not a regular file")
    except OSError:
        os.close(fd)
        raise
    return fd, FileId(status.st_dev, status.st_ino)
