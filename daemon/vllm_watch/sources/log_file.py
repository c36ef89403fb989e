# SPDX-License-Identifier: Apache-2.0
"""
One open log file: reads on from an offset, and notices when what it has read is not there any more.

The file is told from others by device and inode, and by the bytes before the offset: a file that was truncated and
filled again is as long as ever, but those bytes differ.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib

from typing import NamedTuple

from vllm_watch.reading.containers import LineReader
from vllm_watch.sources.checkpoint import FilePosition


READ_SIZE = 256 * 1024
HEAD_SIZE = 256
MARKER_SIZE = 256


class NotRegularError(OSError):
    """The path is a directory, a pipe, a socket or a device."""


class FileId(NamedTuple):
    """What tells files apart as long as they exist."""

    device: int
    inode: int


class _Mark(NamedTuple):
    """Bytes that were read, and where they begin."""

    at: int
    data: bytes


class OpenLog:
    """An open file and how far it has been read. Close it with `close`."""

    def __init__(self, path: str) -> None:
        self.real_path = os.path.realpath(path)
        self._fd, self.file_id = _open(path)
        self.offset = 0
        self.framer = LineReader()
        self._line_start = 0
        self._marker = b""
        self._text = _Mark(0, b"")

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def reopen(self, path: str) -> bool:
        """Open the same file anew, if `path` names it, and go on with that; return whether it does."""
        fd, file_id = _open(path)
        if file_id != self.file_id:
            os.close(fd)
            return False
        self.close()
        self._fd = fd
        return True

    @property
    def line_start(self) -> int:
        """Where the unfinished line begins: what is before it was read."""
        return self._line_start

    def size(self) -> int:
        """Return the file's size now, in bytes."""
        return os.fstat(self._fd).st_size

    def is_unlinked(self) -> bool:
        """Tell whether the file has no name any more: it takes room on the disk for as long as it is open."""
        return os.fstat(self._fd).st_nlink == 0

    def is_in_place(self) -> bool:
        """Tell whether the file is still where it was opened, behind all links: what has changed is a link to it."""
        try:
            status = os.stat(self.real_path, follow_symlinks=False)
        except OSError:
            return False
        return FileId(status.st_dev, status.st_ino) == self.file_id

    def modified(self) -> float:
        """Return when the file was last written, in seconds since the epoch."""
        return os.fstat(self._fd).st_mtime

    def was_rewritten(self) -> bool:
        """Tell whether the bytes read last are gone: the file was truncated, and perhaps filled again."""
        if not self._marker:
            return self.size() < self.offset
        # One hole is as the other: within it and behind it only what was before it tells.
        marks = dict.fromkeys((_Mark(self.offset - len(self._marker), self._marker), self._text))
        return any(os.pread(self._fd, len(mark.data), mark.at) != mark.data for mark in marks if mark.data)

    def position(self, path: str) -> FilePosition:
        """Return how far the file was read, to the beginning of the unfinished line; 0 if what was read is gone."""
        offset = 0 if self.was_rewritten() else self._line_start
        head = os.pread(self._fd, min(HEAD_SIZE, offset), 0)
        marker = os.pread(self._fd, min(MARKER_SIZE, offset), max(offset - MARKER_SIZE, 0))
        return FilePosition(path, *self.file_id, offset, len(head), zlib.crc32(head), len(marker), zlib.crc32(marker))

    def is_at(self, position: FilePosition) -> bool:
        """Tell whether this is the file of a position: the same beginning, and the same bytes before the offset."""
        head = os.pread(self._fd, position.head_size, 0)
        marker = os.pread(self._fd, position.marker_size, max(position.offset - position.marker_size, 0))
        return (len(head), zlib.crc32(head), len(marker), zlib.crc32(marker)) == (
            position.head_size,
            position.head_crc,
            position.marker_size,
            position.marker_crc,
        )

    def go_on_at(self, position: FilePosition) -> None:
        """Go on exactly where a position says; what is open there is known if all before it was just read."""
        if self.offset != position.offset:
            self._lose_place()
        # A line may begin behind a hole.
        self._go_to(position.offset, beginnings=(b"\n", b"\0"))

    def rewind(self) -> None:
        """Begin again at the file's start."""
        self.framer.begin()
        self._go_to(0)

    def skip_to(self, offset: int) -> None:
        """Go on at an offset, at the next line that begins there or after it."""
        self.framer.begin()
        if offset > 0:
            self._lose_place()
        self._go_to(offset)

    def follow(self, old: OpenLog) -> None:
        """Go on where the file ended that had the path before: a container's line may go on here."""
        if self.offset == 0:
            self.framer.follow(old.framer)

    def read(self, size: int = READ_SIZE) -> bytes:
        """Return the next bytes and move on, at most `size`; nothing at the end."""
        data = os.pread(self._fd, size, self.offset)
        if data and not data.strip(b"\0"):
            self._jump_hole()
            data = os.pread(self._fd, size, self.offset)
        if data:
            end = data.rfind(b"\n") + 1
            if end:
                self._line_start = self.offset + end
            self._move_behind(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset, without moving on."""
        return os.pread(self._fd, size, offset)

    def lines(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, as vLLM wrote them."""
        return self.framer.feed(data)

    def _go_to(self, offset: int, beginnings: tuple[bytes, ...] = (b"\n",)) -> None:
        marker = self._before(offset)  # First: where that fails nothing has moved.
        text = _Mark(offset - len(marker), marker)
        if not marker.strip(b"\0"):
            text = _Mark(0, self._before(min(HEAD_SIZE, offset)))
        self.offset = self._line_start = offset
        self._marker, self._text = marker, text
        if offset > 0 and marker[-1:] not in beginnings:
            self.framer.go_inside_line()
        else:
            self.framer.go_to_line()

    def _move_behind(self, data: bytes) -> None:
        text = data.rstrip(b"\0")
        if text:
            last = _last(self._marker, text)
            self._text = _Mark(self.offset + len(text) - len(last), last)
        self._marker = _last(self._marker, data)
        self.offset += len(data)

    def _lose_place(self) -> None:
        self.framer.lose_place(os.pread(self._fd, HEAD_SIZE, 0))

    def _jump_hole(self) -> None:
        """Go on after a hole: gigabytes of it take no time."""
        try:
            end = os.lseek(self._fd, self.offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return  # The file system knows of no holes: they are read.
            end = self.size()
        end = max(end, self.offset)
        self._marker = self._before(end)
        self.framer.count_hole(end - self.offset)
        if self._line_start == self.offset:
            self._line_start = end
        self.offset = end

    def _before(self, offset: int) -> bytes:
        size = min(MARKER_SIZE, offset)
        return os.pread(self._fd, size, offset - size) if size else b""


def _last(before: bytes, data: bytes) -> bytes:
    return data[-MARKER_SIZE:] if len(data) >= MARKER_SIZE else (before + data)[-MARKER_SIZE:]


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
