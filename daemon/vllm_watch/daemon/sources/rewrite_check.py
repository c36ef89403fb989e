# SPDX-License-Identifier: Apache-2.0
"""
Whether the bytes that were read of a file are still in it.

This module detects a truncation, also in files that have holes. A file that was truncated and filled again may be as
long as before, or longer: only its bytes differ. What is done then is in `file_follower`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


CHECKED_SIZE = 256
"""How many bytes of a file its head and its marker hold at most."""


ReadAt = Callable[[int, int], bytes]
"""Takes an offset and a number of bytes, and returns the bytes there."""


class _Mark(NamedTuple):
    """Bytes that were read, and their offset."""

    at: int
    data: bytes


class RewriteCheck:
    """
    Compares a few bytes of a file, which counts as read up to an offset, with what was read there.

    These are the last ones before the offset. All holes look the same, so if those are NUL bytes, the last other bytes
    are compared too. `copytruncate` of logrotate is what usually cuts a file.
    """

    def __init__(self, offset: int, read_at: ReadAt) -> None:
        self._last = self._text = _mark_before(offset, read_at)
        if not self._last.data.strip(b"\0"):
            self._text = _mark_before(min(CHECKED_SIZE, offset), read_at)

    @property
    def last_bytes(self) -> bytes:
        """The bytes before the offset, at most `CHECKED_SIZE`; nothing at the start of the file."""
        return self._last.data

    def advance(self, offset: int, data: bytes) -> None:
        """Note that these bytes were read at an offset."""
        before = self._last.data
        self._last = _mark_at_end(before, offset, data)
        if not data.endswith(b"\0"):
            self._text = self._last
        elif text := data.rstrip(b"\0"):
            self._text = _mark_at_end(before, offset, text)

    def skip_hole(self, end: int, read_at: ReadAt) -> None:
        """Note that a hole was skipped up to an offset."""
        self._last = _mark_before(end, read_at)

    def is_intact(self, read_at: ReadAt) -> bool:
        """Tell whether the file still holds those bytes."""
        last, text = self._last, self._text
        if read_at(last.at, len(last.data)) != last.data:
            return False
        return text is last or read_at(text.at, len(text.data)) == text.data


def _mark_before(offset: int, read_at: ReadAt) -> _Mark:
    size = min(CHECKED_SIZE, offset)
    data = read_at(offset - size, size) if size else b""
    return _Mark(offset - len(data), data)


def _mark_at_end(before: bytes, offset: int, data: bytes) -> _Mark:
    last = last_bytes(before, data)
    return _Mark(offset + len(data) - len(last), last)


def last_bytes(before: bytes, data: bytes) -> bytes:
    """Return the last `CHECKED_SIZE` of some bytes and those before them."""
    return data[-CHECKED_SIZE:] if len(data) >= CHECKED_SIZE else (before + data)[-CHECKED_SIZE:]
