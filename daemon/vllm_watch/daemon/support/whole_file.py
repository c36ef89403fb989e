# SPDX-License-Identifier: Apache-2.0
"""
A file that is written whole or not at all: beside its place first, and put there when it is complete.

So that nothing is left beside it, there is clean-up that also happens if a signal ends the process.
"""

from __future__ import annotations

import errno
import os
import signal
import threading

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from vllm_watch.daemon.support.errors import FileError


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """
    Hold back signals that end the process until the block ends; yield what lets a child have them.

    So no signal comes between the start of a child and the note of it, by which a clean-up would find it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDING, signal.SIGINT))
    try:
        yield lambda: _set_mask(before)
    finally:
        _set_mask(before)


def _set_mask(signals: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)


@contextmanager
def cleaned_up(clean_up: Callable[[], None]) -> Iterator[None]:
    """Call a function when the block ends, or the process by a signal that would end it without any clean-up."""

    def end(number: int, _frame: FrameType | None) -> None:
        clean_up()
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
        clean_up()
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


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
        with cleaned_up(lambda: beside.unlink(missing_ok=True)), replaced_file(target, beside) as file:
            yield file
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def replaced_file(path: Path, beside: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """
    Yield a file to write, which replaces another if the block ends without an exception, also if the power goes.

    Args:
        path: The file that is replaced.
        beside: Where it stands until it is complete.
        mode: Its mode, but for the umask.

    Raises:
        OSError: It cannot be written.
    """
    beside.unlink(missing_ok=True)
    try:
        # O_EXCL and O_NOFOLLOW: a file or link that someone else put there is not written to.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):  # The first error says more.
            beside.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make sure that the new name survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some file systems cannot, and need not.
            raise
    finally:
        os.close(descriptor)
