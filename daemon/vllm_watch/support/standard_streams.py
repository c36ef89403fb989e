# SPDX-License-Identifier: Apache-2.0
"""Standard error of the command line: what cannot be written there is dropped, for the exit status says enough."""

from __future__ import annotations

import io
import os
import sys

from contextlib import suppress
from typing import TYPE_CHECKING, TextIO


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_CLOSED = -1
"""In place of the descriptor of a stream that is closed: its number may belong to a file that is opened later."""


class _Descriptor(io.RawIOBase):
    """Writes to a descriptor that stays open."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        """Return true."""
        return True

    def fileno(self) -> int:
        """Return the descriptor; `OSError` if the stream is closed."""
        return super().fileno() if self._descriptor == _CLOSED else self._descriptor

    def isatty(self) -> bool:
        """Return whether this is a terminal."""
        return self._descriptor != _CLOSED and os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer) -> int:
        """Write what the descriptor takes."""
        return os.write(self._descriptor, data)


class _ErrorDescriptor(_Descriptor):
    """Drops what cannot be written."""

    def write(self, data: ReadableBuffer) -> int:
        """Write what the descriptor takes; without one that can be written, drop it."""
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def guard_standard_error() -> None:
    """Replace the process's standard error with one that never fails, also where it is closed or full."""
    if sys.stderr is sys.__stderr__:  # A test may have put its own there.
        sys.stderr = _text(_ErrorDescriptor(_CLOSED if sys.stderr is None else 2), sys.stderr, "backslashreplace")


def _text(raw: _Descriptor, original: TextIO | None, errors: str) -> TextIO:
    """Return a stream of text like the original one, by lines on standard error and on a terminal."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if original is None else original.encoding,
        errors=errors if original is None else original.errors,
        line_buffering=original is None or bool(original.line_buffering),
    )
