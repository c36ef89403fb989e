# SPDX-License-Identifier: Apache-2.0
"""A folder in which each file is one server, and which of its files are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


SUFFIX = ".yml"


class ServerFiles(NamedTuple):
    """Paths in order of name: `read` are servers; `left_out` have another ending, perhaps by mistake."""

    read: tuple[str, ...]
    left_out: tuple[str, ...]


def list_server_files(folder: str) -> ServerFiles:
    """
    Return the files of a folder, without hidden ones.

    The ending keeps out what editors and packages leave (``~``, ``.swp``, ``.rpmsave``, ``.dpkg-dist``).

    Raises:
        OSError: The folder cannot be listed.
    """
    paths = sorted(path for path in Path(folder).iterdir() if not path.name.startswith("."))
    return ServerFiles(_as_text(paths, is_server=True), _as_text(paths, is_server=False))


def _as_text(paths: Iterable[Path], *, is_server: bool) -> tuple[str, ...]:
    return tuple(str(path) for path in paths if path.name.endswith(SUFFIX) is is_server)
