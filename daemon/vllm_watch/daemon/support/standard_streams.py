# SPDX-License-Identifier: Apache-2.0
"""
The command line's standard output and standard error, where they are full or closed or nobody reads them.

Output that cannot be written is an error in one sentence. What cannot be written on standard error is dropped: the exit
status has to be enough.
"""

from __future__ import annotations

import io
import os
import sys

from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from vllm_watch.daemon.support.errors import FileError


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGoneError(Exception):
    """The reader of standard output has closed it, as ``head`` does when it has enough."""


class _Output(io.FileIO):
    """Raises the first error, and drops everything after it: the interpreter flushes once more at exit."""

    _has_failed = False

    def write(self, data: ReadableBuffer) -> int:
        """Write what the descriptor takes; raises `ReaderGoneError`, or `FileError` for any other reason."""
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._has_failed = True
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError from error  # click ends the process with 1 at a BrokenPipeError.
            raise FileError(f"standard output: cannot be written: {error.strerror}") from error


class _Errors(io.FileIO):
    """Drops what cannot be written."""

    def write(self, data: ReadableBuffer) -> int:
        """Write what the descriptor takes, or drop it."""
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


_ALIKE = str.maketrans(
    {
        "\N{EN DASH}": "-",
        "\N{MIDDLE DOT}": ",",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{WHITE HEAVY CHECK MARK}": "ok:",
        "\N{WARNING SIGN}": "warning:",
        "\N{VARIATION SELECTOR-16}": "",
        "\N{MEMO}": "note:",
        "\N{WAVY DASH}": "~",
        "\N{WHITE QUESTION MARK ORNAMENT}": "unknown:",
    }
)
"""What reports have beyond ASCII, and what takes its place: a dash, a dot, quotes, the marks of Markdown."""


def write_output(text: str, *, is_utf8: bool = False) -> None:
    """
    Write a text to standard output, whatever its encoding lacks: that is replaced with what looks alike, or escaped.

    Args:
        text: The whole text.
        is_utf8: Whether it is UTF-8 in any case, as a page that says so is.

    Raises:
        FileError: It cannot be written.
    """
    encoding = "utf-8" if is_utf8 else sys.stdout.encoding
    try:
        encoded = text.encode(encoding)
    except UnicodeEncodeError:
        encoded = text.translate(_ALIKE).encode(encoding, "backslashreplace")
    sys.stdout.buffer.write(encoded)


def guard_standard_streams() -> None:
    """
    Replace the process's standard output with one that raises a `FileError` or `ReaderGoneError` at its first error.

    Standard error is replaced with one that never fails.
    """
    # A test may have put its own streams there.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(_Output, 1, sys.stdout, "strict")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(_Errors, 2, sys.stderr, "backslashreplace")


def _guarded(kind: type[io.FileIO], number: int, original: TextIO | None, errors: str) -> TextIO:
    """Return a stream of text like the original one, by lines on standard error and on a terminal."""
    if original is None:  # Closed: its number may belong to a file that is opened later. A write fails here, too.
        number = os.open(os.devnull, os.O_RDONLY)
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "w", closefd=False)),
        encoding="utf-8" if original is None else original.encoding,
        errors=errors if original is None else original.errors,
        line_buffering=original is not None and bool(original.line_buffering),
    )
