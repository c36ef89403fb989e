# SPDX-License-Identifier: Apache-2.0
"""
The files that a log was before it was rotated: ``vllm.log.1``, ``vllm.log-20261121`` and the like.

Compressed ones are left alone: what is in them was written long ago. So is what does not look rotated: a
``vllm.log.bak`` that someone made is no part of the log.
"""

from __future__ import annotations

import os
import re
import stat

from collections.abc import Collection
from typing import NamedTuple

from vllm_watch.sources.log_file import FileId


_COMPRESSED = (".gz", ".xz", ".zst", ".bz2", ".lz4", ".zip")
_NUMBER = re.compile(r"\.(\d{1,4})$", re.ASCII)
_ROTATED = re.compile(r"[.-](?:\d[\w.:+-]*|old|prev)$", re.ASCII)
# In a glob `vllm-0` and `vllm-1` are two servers: only a number after a dot, or a date, says that a match is rotated.
_SURELY_ROTATED = re.compile(r"(?:\.\d{1,4}|[.-]\d{4}-?\d\d-?\d\d[\w.:+-]*|-\d{9,}|\.old|\.prev)$", re.ASCII)


class Sibling(NamedTuple):
    """
    A rotated file, as it is in its folder now.

    `modified` is in seconds since the epoch. `number` counts up with age; 0 is a file that has no number.
    """

    path: str
    file_id: FileId
    modified: float
    number: int


def siblings(path: str) -> list[Sibling]:
    """
    Return a log's rotated files, the oldest first: by their numbers where they have them, else by their times.

    If the path is a link, those beside what it leads to belong to them. Raises `OSError` where that cannot be told.
    """
    found: dict[FileId, Sibling] = {}
    for log in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        folder, name = os.path.split(log)
        for entry in _entries(folder):
            if entry.name.startswith(name) and _ROTATED.match(entry.name, len(name)) and not is_compressed(entry.name):
                sibling = _look_at(entry)
                if sibling is not None:
                    found[sibling.file_id] = sibling
    return sorted(found.values(), key=_age, reverse=True)


def is_compressed(path: str) -> bool:
    """Tell whether a file is compressed, by its name."""
    return path.endswith(_COMPRESSED)


def is_rotated_of(path: str, logs: Collection[str]) -> bool:
    """Tell whether a path is, by its name, what one of the logs was before."""
    start = path.rfind("/") + 1
    cuts = (found.start() for found in re.finditer(r"[.-]", path) if found.start() > start)
    return any(path[:cut] in logs and _SURELY_ROTATED.match(path, cut) for cut in cuts)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        # Files of one moment have the same time: then their names, which hold dates, tell which is older.
        return sorted(entries, key=lambda entry: entry.name)


def _look_at(entry: os.DirEntry[str]) -> Sibling | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # It was removed meanwhile.
    if not stat.S_ISREG(status.st_mode):
        return None
    number = _NUMBER.search(entry.name)
    return Sibling(entry.path, FileId(status.st_dev, status.st_ino), status.st_mtime, int(number[1]) if number else 0)


def _age(sibling: Sibling) -> tuple[int, float]:
    """Order by number, then by time: several files of one moment have the same time, never the same number."""
    return (sibling.number, -sibling.modified)
