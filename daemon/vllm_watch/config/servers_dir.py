# SPDX-License-Identifier: Apache-2.0
"""A folder in which each file is one server: which of its files are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


SUFFIX = ".yml"


class ServerFiles(NamedTuple):
    """Paths in order of name: `read` are of servers; `left_out` are not, and somebody may have meant them to be."""

    read: tuple[str, ...]
    left_out: tuple[str, ...]


def list_server_files(folder: str) -> ServerFiles:
    """
    Return the files of a folder, without those that are hidden.

    By their endings editors' and packagers' leftovers (``~``, ``.swp``, ``.rpmsave``, ``.dpkg-dist``) are of no server.

    Raises:
        OSError: The folder cannot be listed.
    """
    paths = sorted(path for path in Path(folder).iterdir() if not path.name.startswith("."))
    return ServerFiles(_as_text(paths, is_server=True), _as_text(paths, is_server=False))


def _as_text(paths: Iterable[Path], *, is_server: bool) -> tuple[str, ...]:
    return tuple(str(path) for path in paths if path.name.endswith(SUFFIX) is is_server)
