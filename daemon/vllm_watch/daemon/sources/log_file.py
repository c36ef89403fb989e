# SPDX-License-Identifier: Apache-2.0
"""
One open log file: reads from an offset, and remembers the bytes by which a later run finds the same place.

This module handles holes. When a file is truncated, a writer that does not append leaves a hole; holes are skipped.
"""

from __future__ import annotations

import zlib

from vllm_watch.daemon.reading.framing import LineReader
from vllm_watch.daemon.sources.checkpoint import CHECKED_SIZE, FilePosition
from vllm_watch.daemon.sources.open_file import FileId, OpenFile
from vllm_watch.daemon.sources.rewrite_check import RewriteCheck, last_bytes


READ_SIZE = 256 * 1024


class LogFile(OpenFile):
    """
    An open log and how far it has been read.

    The bytes that identify a position are kept as they were read: if the file is rewritten meanwhile, the position is
    still one in what was read.

    Attributes:
        offset: How far, in bytes.
        line_start: Where the unfinished line starts, in bytes: everything before it was read.
        framer: Makes lines of the bytes.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.offset = self.line_start = 0
        self.framer = LineReader()
        self._rewrite_check = RewriteCheck(0, self.read_at)
        self._head = b""
        """The file's first bytes."""
        self._marker = b""
        """The bytes before `line_start`."""

    def was_rewritten(self) -> bool:
        """Tell whether the bytes read last are gone: the file was truncated, and perhaps filled again."""
        if not self._rewrite_check.last_bytes:
            return self.size() < self.offset
        return not self._rewrite_check.is_intact(self.read_at)

    def position(self, path: str) -> FilePosition:
        """Return how far the file was read, to the start of the unfinished line."""
        offset, marker = self.line_start, self._marker
        head = self._head[:offset]
        return FilePosition(path, *self.file_id, offset, len(head), zlib.crc32(head), len(marker), zlib.crc32(marker))

    def is_at(self, position: FilePosition) -> bool:
        """Tell whether this is the file of a position: the same first bytes, and the same before the offset."""
        head = self.read_at(0, position.head_size)
        marker = self.read_at(max(position.offset - position.marker_size, 0), position.marker_size)
        return (len(head), zlib.crc32(head), len(marker), zlib.crc32(marker)) == (
            position.head_size,
            position.head_crc,
            position.marker_size,
            position.marker_crc,
        )

    def has_inode_of(self, position: FilePosition) -> bool:
        """Tell whether this file has the inode of a position: it is that file, or got its inode later."""
        return FileId(position.device, position.inode) == self.file_id

    def resume_at(self, position: FilePosition) -> None:
        """Continue exactly at a position; what is open there is known if all before it was just read."""
        if self.offset != position.offset:
            self._lose_place()
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
            self._lose_place()
        self._move_to(offset)

    def follow(self, old: LogFile) -> None:
        """Continue where the file ended that had the path before: a container's line may continue here."""
        if self.offset == 0:
            self.framer.follow(old.framer)

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
                before = self._rewrite_check.last_bytes
            self._rewrite_check.advance(self.offset, data)
            self.offset += len(data)
            if line_end == len(data):
                self._marker = self._rewrite_check.last_bytes
            elif line_end:
                self._marker = last_bytes(before, data[:line_end])
        return data

    def lines(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, as vLLM wrote them."""
        return self.framer.feed(data)

    def _move_to(self, offset: int, line_ends: tuple[bytes, ...] = (b"\n",)) -> None:
        check = RewriteCheck(offset, self.read_at)  # First: if that fails nothing has moved.
        self._head = self.read_at(0, CHECKED_SIZE) if offset else b""
        self.offset = self.line_start = offset
        self._rewrite_check = check
        self._marker = check.last_bytes
        if offset > 0 and check.last_bytes[-1:] not in line_ends:
            self.framer.go_inside_line()
        else:
            self.framer.go_to_line()

    def _lose_place(self) -> None:
        self.framer.lose_place(self.read_at(0, CHECKED_SIZE))

    def _skip_hole(self) -> None:
        """Continue after a hole: gigabytes of it take no time."""
        end = self.end_of_hole(self.offset)
        if end == self.offset:
            return
        if self.offset < CHECKED_SIZE:
            self._head = self.read_at(0, CHECKED_SIZE)
        self._rewrite_check.skip_hole(end, self.read_at)
        self.framer.count_hole(end - self.offset)
        if self.line_start == self.offset:
            self.line_start = end
            self._marker = self._rewrite_check.last_bytes
        self.offset = end
