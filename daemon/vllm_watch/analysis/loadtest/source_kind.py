# SPDX-License-Identifier: Apache-2.0
"""What a file or folder is, by its content: a recording, a benchmark's result, or a server's log."""

from __future__ import annotations

import gzip
import os
import re

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, cast

from vllm_watch.analysis.replay.recording import is_recording
from vllm_watch.daemon.sources.rotated_names import GZIP, former_files, log_name
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

_ENDINGS = re.compile(r"(?:\.(?:jsonl?|log|out|txt|xz|gz|bz2|zst)(?:[.-]\d[\w:+-]*)?)+$", re.ASCII)
"""Those of results, recordings and logs, with what rotation and compression add: ``.json``, ``.log.1.gz``."""


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


def without_endings(name: str) -> str:
    """Return a file's name without its endings; other dots stay, as in ``openai-0.5qps-Qwen2.5-7B.json``."""
    return _ENDINGS.sub("", name) or name


def find_logs(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """
    Return the logs that some files are parts of, by name, each with its files.

    A log whose own file is among the paths has its rotated files, too; of one without it only those that are given.
    """
    given: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        given[log_name(path)].append(path)
    return {name: _files(name, files) for name, files in given.items()}


def _files(name: str, given: Sequence[str]) -> tuple[str, ...]:
    paths = [*(former_files(name) if name in given else ()), *given]
    by_file = {os.path.realpath(path): path for path in paths}
    return tuple(path for path in by_file.values() if not _has_plain_twin(path, by_file))


def _has_plain_twin(path: str, files: dict[str, str]) -> bool:
    """Return whether a compressed file is there uncompressed, too: it is being rotated."""
    return path.endswith(GZIP) and os.path.realpath(path.removesuffix(GZIP)) in files and Path(path[:-3]).exists()
