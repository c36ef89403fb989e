# SPDX-License-Identifier: Apache-2.0
r"""
Bytes to lines: split at ``\n`` and at nothing else, in bounded memory.

``\r``, form feeds and Unicode's line separators stand inside lines that strangers wrote; a reader that splits there
reads their text as lines of its own.
"""

from __future__ import annotations


MAX_LINE = 64 * 1024
"""Longer lines hold prompts, never statistics."""


class LineFramer:
    """
    Cuts a stream of bytes into lines and keeps the unfinished one.

    `long_lines` counts lines dropped for their length, `nul_bytes` the NUL bytes taken away: a log whose writer does
    not append (``> file``) has a hole of them where it was truncated.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._partial = b""
        self._is_dropping = False
        self._unfinished = 0
        self.long_lines = 0
        self.nul_bytes = 0

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return len(self._partial)

    @property
    def unfinished(self) -> int:
        """How many bytes were fed since the unfinished line began, also those that are not held."""
        return self._unfinished

    def feed(self, data: bytes) -> list[bytes]:
        r"""Return the lines that `data` completes, without their ``\n``."""
        self._measure(data)
        if b"\0" in data:
            data = self._without_nuls(data)
        lines = data.split(b"\n")
        if self._is_dropping:
            if len(lines) == 1:
                return []
            self._is_dropping = False
            del lines[0]
        elif self._partial:
            lines[0] = self._partial + lines[0]
        self._keep(lines.pop())
        if max(map(len, lines), default=0) > self._max_line:
            return self._without_long(lines)
        return lines

    def drop_partial(self) -> None:
        """Forget the unfinished line: what follows does not continue it."""
        self._partial = b""
        self._is_dropping = False
        self._unfinished = 0

    def skip_line(self) -> None:
        """Drop what follows up to the next end of a line: it is the rest of one whose beginning was not read."""
        self.drop_partial()
        self._is_dropping = True

    def pass_nuls(self, size: int) -> None:
        """Count NUL bytes that were not worth reading."""
        self.nul_bytes += size
        if self._unfinished:
            self._unfinished += size

    def _measure(self, data: bytes) -> None:
        end = data.rfind(b"\n")
        if end >= 0:
            self._unfinished = 0
        rest = data[end + 1 :]
        self._unfinished += len(rest if self._unfinished else rest.lstrip(b"\0"))

    def _keep(self, partial: bytes) -> None:
        if len(partial) > self._max_line:
            self.long_lines += 1
            self._is_dropping = True
            partial = b""
        self._partial = partial

    def _without_long(self, lines: list[bytes]) -> list[bytes]:
        kept = [line for line in lines if len(line) <= self._max_line]
        self.long_lines += len(lines) - len(kept)
        return kept

    def _without_nuls(self, data: bytes) -> bytes:
        self.nul_bytes += data.count(b"\0")
        return data.replace(b"\0", b"")
