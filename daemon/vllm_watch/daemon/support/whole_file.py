# SPDX-License-Identifier: Apache-2.0
"""A file that is written whole or not at all: beside its place first, and put there when it is complete."""

from __future__ import annotations

import errno
import os

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vllm_watch.daemon.support.clean_up import cleaned_up
from vllm_watch.daemon.support.errors import FileError


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
