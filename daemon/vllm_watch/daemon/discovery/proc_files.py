# SPDX-License-Identifier: Apache-2.0
"""
Files and links below ``/proc``.

A process may end at any moment, and another user's shows little: unless a function says otherwise, what cannot be read
is empty.
"""

from __future__ import annotations

import os
import pwd

from pathlib import Path


MAX_TEXT = 4 * 1024 * 1024
"""The most bytes that are read of one file: a table of connections, or a server's own configuration."""

OWN = "self"
"""This process, in place of a number."""


class ProcFiles:
    """The files of ``/proc``, wherever it is mounted."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = str(root)

    def path(self, pid: int | str, name: str = "") -> str:
        """Return the path of a process's file."""
        return f"{self.root}/{pid}/{name}" if name else f"{self.root}/{pid}"

    def names(self, pid: int | str, folder: str) -> list[str]:
        """
        Return what is in one of a process's folders.

        Raises:
            OSError: It cannot be listed.
        """
        return os.listdir(self.path(pid, folder))

    def link(self, pid: int | str, name: str) -> str:
        """Return what a link points to, empty if it cannot be read."""
        try:
            return os.readlink(self.path(pid, name))
        except OSError:
            return ""

    def read(self, pid: int | str, name: str) -> bytes:
        """
        Return a file's content, up to `MAX_TEXT`.

        Raises:
            OSError: It cannot be read.
        """
        # O_NONBLOCK: a path that another process names may be a pipe.
        descriptor = os.open(self.path(pid, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            return file.read(MAX_TEXT)

    def content(self, pid: int | str, name: str) -> bytes:
        """Return a file's content, empty if it cannot be read."""
        try:
            return self.read(pid, name)
        except OSError:
            return b""

    def text(self, pid: int | str, name: str) -> str:
        """Return a file's content as text, empty if it cannot be read."""
        return self.content(pid, name).decode(errors="replace")

    def arguments(self, pid: int) -> list[str]:
        """Return a process's command line, empty if it cannot be read."""
        return split_arguments(self.content(pid, "cmdline"))

    def user(self, pid: int) -> int | None:
        """Return the number of the user that a process runs as."""
        try:
            return os.stat(self.path(pid)).st_uid
        except OSError:
            return None


def is_readable(path: str) -> bool:
    """Whether a file can be opened; `os.access` would leave out what capabilities allow."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return False
    return True


def user_name(number: int) -> str:
    """Return a user's name, or the number of one who has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def split_arguments(line: bytes) -> list[str]:
    """Return the arguments in the content of ``/proc/PID/cmdline``."""
    return os.fsdecode(line).rstrip("\0").split("\0")
