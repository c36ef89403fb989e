# SPDX-License-Identifier: Apache-2.0
"""The results that a command leaves: files that it writes, and the block that it prints."""

from __future__ import annotations

import os

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from vllm_watch_parsers.benchmark import what_is


MAX_FILE = 256 * 1024 * 1024
"""The largest result that is kept, in bytes: ten thousand requests with all their times and answers are less."""

MAX_FILES = 1000
"""The most files of a folder that are looked at, the newest first."""

PRINTED = "printed.txt"
"""The name of what was printed."""


class Written(NamedTuple):
    """What tells a file that was written again from one that was not."""

    modified_ns: int
    size: int


class ResultFiles:
    """
    Finds the result files that a command writes.

    Args:
        argv: The command and its arguments.
        folder: The folder that it runs in.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._folder = folder / (_option(argv, "--result-dir") or "")
        name = _option(argv, "--result-filename") or _option(argv, "--output-json")
        self._named = [self._folder / name, folder / name] if name else []
        self._folders = list(dict.fromkeys([self._folder, folder]))
        self._before = self._files()

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each result that was written since."""
        for path, written in sorted(self._files().items()):
            if self._before.get(path) == written or written.size > MAX_FILE:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if what_is(text) is not None:
                yield path.name, text

    def _files(self) -> dict[Path, Written]:
        found = {}
        for path in [*self._named, *(path for folder in self._folders for path in _json_files(folder))]:
            try:
                status = path.stat()
            except OSError:
                continue
            found[path.resolve()] = Written(status.st_mtime_ns, status.st_size)
        return found


def printed_result(text: str) -> str | None:
    """Return what was printed, if a benchmark's result is in it."""
    return text if what_is(text) is not None else None


def _json_files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".json") and entry.is_file()]
        newest = sorted(found, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
    return [Path(entry.path) for entry in newest[:MAX_FILES]]


def _option(argv: Sequence[str], name: str) -> str | None:
    """Return the value of an option, given as ``--name VALUE`` or ``--name=VALUE``, with - or _ in its name."""
    names = {name, name.replace("-", "_").replace("__", "--", 1)}
    for argument, following in zip_longest(argv, argv[1:], fillvalue=""):
        option, sign, value = argument.partition("=")
        if option in names:
            return (value if sign else following) or None
    return None
