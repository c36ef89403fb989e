# SPDX-License-Identifier: Apache-2.0
"""What a file or folder is, by its content: a recording, a benchmark's result, or a server's log."""

from __future__ import annotations

import gzip
import re

from pathlib import Path
from typing import IO, Literal, cast

from vllm_watch.replay.open_recording import is_recording
from vllm_watch.support.errors import FileError
from vllm_watch_parsers.benchmark import what_is


SourceKind = Literal["recording", "benchmark", "log"]

_PART = 1024 * 1024
_GZIP = b"\x1f\x8b"
_STATISTICS = re.compile(rb"\[loggers\.py:\d+\] |\[metrics\.py:\d+\] Avg |Avg prompt throughput: ")
_CONTAINER = re.compile(rb'\{"log":"')
"""A line of Docker's json-file: JSON, and a log."""


def source_kind(path: Path) -> SourceKind:
    """
    Return what a path names.

    Raises:
        FileError: It cannot be read, or is a folder without a recording, or a server's log with a benchmark's result.
    """
    if is_recording(path):
        return "recording"
    if path.is_dir():
        raise FileError(f"{path}: is a folder and no recording: it has no timeline.jsonl")
    head, tail = _ends(path)
    if _CONTAINER.match(head):
        return "log"
    kind = what_is(head.decode(errors="replace")) or what_is(tail.decode(errors="replace"))
    if kind is None and not head.lstrip().startswith((b"{", b"[{", b"[\n")):
        return "log"
    if kind == "serve" and (_STATISTICS.search(head) or _STATISTICS.search(tail)) and not head.startswith(b"{"):
        raise FileError(f"{path}: has a server's log and a benchmark's result: put them into two files")
    return "benchmark"


def open_text(path: Path) -> IO[bytes]:
    """
    Open a file, also a compressed one.

    Raises:
        OSError: It cannot be opened.
    """
    with path.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_compressed else path.open("rb")


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return a file's first and last megabyte; of a compressed one only the first."""
    try:
        with open_text(path) as file:
            head = file.read(_PART)
            size = path.stat().st_size
            if isinstance(file, gzip.GzipFile) or size <= _PART:
                return head, b""
            file.seek(max(size - _PART, _PART))
            return head, file.read()
    except (OSError, EOFError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
