# SPDX-License-Identifier: Apache-2.0
"""A file that is written whole or not at all: beside its place first, and put there when it is complete."""

from __future__ import annotations

import os

from collections.abc import Iterator
from contextlib import contextmanager
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
        with cleaned_up(lambda: beside.unlink(missing_ok=True)):
            with beside.open("wb") as file:
                yield file
            beside.replace(target)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error
