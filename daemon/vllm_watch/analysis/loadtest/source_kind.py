# SPDX-License-Identifier: Apache-2.0
"""What a file or folder is, by its content: a recording, a benchmark's result, or a server's log."""

from __future__ import annotations

import gzip
import re

from pathlib import Path
from typing import IO, Literal, cast

from vllm_watch.analysis.replay.recording import is_recording
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.benchmark import what_is


SourceKind = Literal["recording", "benchmark", "log"]

_PART = 1024 * 1024
_GZIP = b"\x1f\x8b"
_STATISTICS = re.compile(rb"\[loggers\.py:\d+\] |\[metrics\.py:\d+\] Avg |Avg prompt throughput: ")
_RECORDING_LINE = b'{"vllm_watch_recording":'
"""How a recording's first line begins, once its compression is removed."""
_JSON = re.compile(rb"\s*[\[{]\s*[\[{\"\]}]")
_JSON_LINES = re.compile(rb"\{[^\n]*\}\n\{")
"""Lines of JSON are a log: as vLLM writes it with such a formatter, or Docker's json-file."""


def source_kind(path: Path) -> SourceKind:
    """
    Return what a path names.

    Raises:
        FileError: It cannot be read, or is a folder, or a server's log with a benchmark's result.
    """
    if is_recording(path):
        return "recording"
    if path.is_dir():
        raise FileError(f"{path}: is a folder: give the logs, recordings and results in it")
    head, tail = _ends(path)
    if head.startswith(_RECORDING_LINE):
        raise FileError(f"{path}: is a recording without its compression: compress it with xz")
    kind = what_is(head.decode(errors="replace")) or what_is(tail.decode(errors="replace"))
    if kind == "serve" and _STATISTICS.search(head + tail) and not _JSON.match(head):
        raise FileError(f"{path}: has a server's log and a benchmark's result: put them into two files")
    # JSON that is no result is not understood either way: the reader of results names who wrote it.
    is_document = _JSON.match(head) is not None and _JSON_LINES.match(head) is None
    return "benchmark" if kind is not None or is_document else "log"


def open_text(path: Path) -> IO[bytes]:
    """
    Open a file, also a compressed one.

    Raises:
        OSError: It cannot be opened.
    """
    return cast("IO[bytes]", gzip.open(path, "rb")) if _is_compressed(path) else path.open("rb")


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return a file's first and last megabyte; of a compressed one only the first."""
    try:
        with open_text(path) as file:
            head = file.read(_PART)
            size = path.stat().st_size
            if size <= _PART or _is_compressed(path):
                return head, b""
            file.seek(max(size - _PART, _PART))
            return head, file.read()
    except (OSError, EOFError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
