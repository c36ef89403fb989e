# SPDX-License-Identifier: Apache-2.0
r"""
Splits bytes into lines, only at ``\n`` and in bounded memory.

Untrusted text within a line may contain ``\r``, form feeds and Unicode's line separators. If they split the line, that
text would be read as lines. For the same reason a dropped line leaves a mark: the reader must know whether the record
continues after it.
"""

from __future__ import annotations


MAX_LINE = 64 * 1024
"""Longer lines have prompts in them, never statistics."""

CUT = b"\0"
"""Marks where the rest of a shortened line was dropped. No other line has a NUL."""

KEPT = 1024
"""So many bytes are kept of a line that is dropped: the start of the record that it may open."""


def shortened(line: bytes, *, ends_open: bool, kept: int = KEPT) -> bytes:
    r"""
    Return what replaces a line that is dropped.

    Args:
        line: The line's start, or nothing where it is not known.
        ends_open: Whether the line ends in ``\r``: then the next line may continue its record.
        kept: How many bytes of the start are kept.
    """
    return line[:kept] + CUT + (b"\r" if ends_open else b"")


class LineFramer:
    """
    Cuts a stream of bytes into lines and keeps the unfinished one.

    `long_lines` counts lines dropped for their length, `nul_bytes` the NUL bytes removed: a log whose writer does
    not append (``> file``) has a hole of them where it was truncated. `max_line` may be changed between two pieces.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self.max_line = max_line
        self._partial = b""
        self._is_dropping = False
        self._last = b""
        self.long_lines = 0
        self.nul_bytes = 0

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return 0 if self._is_dropping else len(self._partial)

    def feed(self, data: bytes) -> list[bytes]:
        r"""Return the lines that `data` completes, without their ``\n``; long ones are `shortened`."""
        if b"\0" in data:
            data = self._without_nuls(data)
        lines = data.split(b"\n")
        if self._is_dropping:
            self._last = lines[0][-1:] or self._last
            if len(lines) == 1:
                return []
            self._is_dropping = False
            lines[0] = self._shorten(self._partial, self._last)
        elif self._partial:
            lines[0] = self._partial + lines[0]
        self._keep(lines.pop())
        if max(map(len, lines), default=0) > self.max_line:
            return self._without_long(lines)
        return lines

    def feed_text(self, data: bytes) -> bytes | None:
        r"""
        Return the lines that `data` completes as one text, each with its ``\n``.

        It is `None`, and nothing was taken in, where there is no such line, or something must be removed: then `feed`
        takes the data.
        """
        end = data.rfind(b"\n") + 1
        if self._is_dropping or not end or b"\0" in data:
            return None
        text, partial = b"".join((self._partial, memoryview(data)[:end])), data[end:]
        if len(partial) > self.max_line or has_long_line(text, self.max_line):
            return None
        self._partial = partial
        return text

    def pass_text(self, rest: bytes) -> None:
        """Continue after lines that were read elsewhere, inside a line of which `rest` is the start."""
        self._partial = rest

    @property
    def is_dropping(self) -> bool:
        """Whether what follows, up to the next line, is dropped."""
        return self._is_dropping

    def drop_partial(self) -> None:
        """Forget the unfinished line: what follows does not continue it."""
        self._partial = b""
        self._is_dropping = False

    def drop_rest(self) -> None:
        """Drop what follows up to the next line: it is the rest of one whose start is not known."""
        self._partial = self._last = b""
        self._is_dropping = True

    def _keep(self, partial: bytes) -> None:
        if len(partial) > self.max_line:
            self.long_lines += 1
            self._is_dropping = True
            self._last = partial[-1:]
            partial = partial[:KEPT]
        self._partial = partial

    def _without_long(self, lines: list[bytes]) -> list[bytes]:
        self.long_lines += sum(len(line) > self.max_line for line in lines)
        return [self._shorten(line, line[-1:]) if len(line) > self.max_line else line for line in lines]

    def _shorten(self, line: bytes, last: bytes) -> bytes:
        return shortened(line, ends_open=last == b"\r", kept=min(KEPT, self.max_line // 2))

    def _without_nuls(self, data: bytes) -> bytes:
        self.nul_bytes += data.count(b"\0")
        return data.translate(None, b"\0")  # Holes are made of them: `replace` takes fifty times as long there.


def has_long_line(text: bytes, max_line: int) -> bool:
    r"""Return whether a line of a text is too long; it ends in ``\n``, and most lines are passed over unseen."""
    start = 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + max_line + 1)
        if end < 0:
            return True
        start = end + 1
    return False
