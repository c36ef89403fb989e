# SPDX-License-Identifier: Apache-2.0
"""
The files that a log was before it was rotated: ``vllm.log.1``, ``vllm.log-20261121`` and the like.

Compressed ones are left alone: what is in them was written long ago.
"""

from __future__ import annotations

import os
import re
import stat

from typing import NamedTuple

from vllm_watch.sources.logfile import FileId


_COMPRESSED = (".gz", ".xz", ".zst", ".bz2", ".lz4", ".zip")
_NUMBER = re.compile(r"\.(\d{1,4})$")


class Sibling(NamedTuple):
    """A rotated file, as it is in its folder now. `modified` is in seconds since the epoch."""

    path: str
    file_id: FileId
    modified: float


def siblings(path: str) -> list[Sibling]:
    """Return a log's rotated files, the oldest first: by their numbers where they have them, else by their times."""
    folder, name = os.path.split(path)
    found = []
    for entry in _entries(folder or "."):
        if entry.name.startswith((name + ".", name + "-")) and not entry.name.endswith(_COMPRESSED):
            sibling = _look_at(entry)
            if sibling is not None:
                found.append(sibling)
    return sorted(found, key=_age, reverse=True)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _look_at(entry: os.DirEntry[str]) -> Sibling | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # It was removed meanwhile.
    if not stat.S_ISREG(status.st_mode):
        return None
    return Sibling(entry.path, FileId(status.st_dev, status.st_ino), status.st_mtime)


def _age(sibling: Sibling) -> tuple[int, float]:
    """Order by number, then by time: several files of one moment have the same time, never the same number."""
    number = _NUMBER.search(sibling.path)
    return (int(number[1]) if number else 0, -sibling.modified)
