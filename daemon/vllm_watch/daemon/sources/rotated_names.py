# SPDX-License-Identifier: Apache-2.0
"""
The names that log rotation gives to a log's earlier files: ``vllm.log.1``, ``vllm.log-20261121`` and the like.

The daemon ignores compressed files: what is in them was written long ago. Names that no rotation gives are ignored,
too: a ``vllm.log.bak`` that someone made is no part of the log.
"""

from __future__ import annotations

import os
import re
import stat

from collections.abc import Collection
from typing import NamedTuple

from vllm_watch.daemon.sources.log_file import FileId


GZIP = ".gz"
_COMPRESSED = (GZIP, ".xz", ".zst", ".bz2", ".lz4", ".zip")
_NUMBER = re.compile(r"\.(\d{1,4})$", re.ASCII)
_ROTATED = re.compile(r"[.-](?:\d[\w.:+-]*|old|prev)$", re.ASCII)
# In a glob `vllm-0` and `vllm-1` are two servers: only a number after a dot, or a date, says that a match is rotated.
_SURELY_ROTATED = re.compile(r"(?:\.\d{1,4}|[.-]\d{4}-?\d\d-?\d\d[\w.:+-]*|-\d{9,}|\.old|\.prev)$", re.ASCII)


class RotatedName(NamedTuple):
    """
    A rotated file as its folder lists it now.

    `modified` is in seconds since the epoch. `number` counts up with age; a file without a number has 0.
    """

    path: str
    file_id: FileId
    modified: float
    number: int


def rotated_names(path: str) -> list[RotatedName]:
    """
    Return a log's rotated files, the oldest first: by their numbers where they have them, else by their times.

    If the path is a link, those beside its target belong to them. Raises `OSError` if a folder cannot be listed.
    """
    found: dict[FileId, RotatedName] = {}
    for log in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        folder, name = os.path.split(log)
        for entry in _entries(folder):
            if entry.name.startswith(name) and _ROTATED.match(entry.name, len(name)) and not is_compressed(entry.name):
                rotated = _rotated_name(entry)
                if rotated is not None:
                    found[rotated.file_id] = rotated
    return sorted(found.values(), key=_age, reverse=True)


def former_files(path: str) -> list[str]:
    """Return the paths of a log's rotated files, those that gzip has compressed included; none if it has no folder."""
    folder, name = os.path.split(path)
    try:
        entries = [entry.name for entry in _entries(folder or ".")]
    except OSError:
        return []
    return [
        os.path.join(folder, entry)
        for entry in entries
        if entry.startswith(name) and _ROTATED.match(entry.removesuffix(GZIP), len(name)) and _is_readable(entry)
    ]


def log_name(path: str) -> str:
    """Return the path of the log that a file is a part of, by its name: the path itself if it is not rotated."""
    name = path.removesuffix(GZIP)
    start = name.rfind("/") + 1
    found = _SURELY_ROTATED.search(name, start)
    return name[: found.start()] if found and found.start() > start else name


def is_compressed(path: str) -> bool:
    """Tell whether a file is compressed, by its name."""
    return path.endswith(_COMPRESSED)


def is_rotated_of(path: str, logs: Collection[str]) -> bool:
    """Tell whether a path is, by its name, a rotated file of one of the logs."""
    start = path.rfind("/") + 1
    cuts = (found.start() for found in re.finditer(r"[.-]", path) if found.start() > start)
    return any(path[:cut] in logs and _SURELY_ROTATED.match(path, cut) for cut in cuts)


def _is_readable(name: str) -> bool:
    return not is_compressed(name) or name.endswith(GZIP)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        # Files of one moment have the same time: then their names, which hold dates, tell which is older.
        return sorted(entries, key=lambda entry: entry.name)


def _rotated_name(entry: os.DirEntry[str]) -> RotatedName | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # It was removed meanwhile.
    if not stat.S_ISREG(status.st_mode):
        return None
    number = _NUMBER.search(entry.name)
    return RotatedName(
        entry.path, FileId(status.st_dev, status.st_ino), status.st_mtime, int(number[1]) if number else 0
    )


def _age(name: RotatedName) -> tuple[int, float]:
    """Order by number, then by time: several files of one moment have the same time, never the same number."""
    return (name.number, -name.modified)
