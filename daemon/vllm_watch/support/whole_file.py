# SPDX-License-Identifier: Apache-2.0
"""A file that is written whole or not at all: beside its place first, and put there when it is complete."""

from __future__ import annotations

import os
import signal
import threading

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from vllm_watch.support.errors import FileError


_ENDING = (signal.SIGTERM, signal.SIGHUP)


def write_whole(path: Path, data: bytes) -> None:
    """
    Write a file; what was there before stays if that fails. A device or a pipe is written as it is.

    Raises:
        FileError: It cannot be written.
    """
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """
    Yield a file to write; it is at its place if the block ends without an exception, whichever.

    Raises:
        FileError: It cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        target = path.resolve()  # A link stays one.
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        with _removed_at_end(beside):
            with beside.open("wb") as file:
                yield file
            beside.replace(target)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _removed_at_end(path: Path) -> Iterator[None]:
    """Remove a file when the block ends, or the process by a signal that would end it without any clean-up."""

    def end(number: int, _frame: FrameType | None) -> None:
        path.unlink(missing_ok=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # Only the main thread may handle signals, and those that are handled or ignored already end nothing here.
    is_main = threading.current_thread() is threading.main_thread()
    ending = [each for each in _ENDING if is_main and signal.getsignal(each) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, end)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        for number in ending:
            signal.signal(number, signal.SIG_DFL)
