# SPDX-License-Identifier: Apache-2.0
"""
What one process shows of itself: command line, user, unit or container, and environment.

Of command lines and environments only what the closed lists name leaves this module: no key, no token.
"""

from __future__ import annotations

import os
import pwd

from typing import NamedTuple

from vllm_watch.daemon.discovery.cgroup import Owner, owner_of
from vllm_watch.daemon.discovery.command_line import ServeCommand, arguments_of, parse_arguments
from vllm_watch.daemon.discovery.proc_files import ProcFiles


class Environment(NamedTuple):
    """The variables of a server that matter here; `journal_inode` is that of its stream to the journal."""

    has_api_key: bool = False
    journal_inode: int = 0
    logging_level: str = "INFO"
    configures_logging: bool = True


class ProcessDetails:
    """Reads about single processes."""

    def __init__(self, files: ProcFiles) -> None:
        self._files = files

    def command(self, pid: int) -> ServeCommand | None:
        """Return a server's options, with those of its own configuration file; `None` if one cannot be read."""
        arguments = arguments_of(self._files.arguments(pid))
        if arguments is None:
            return None
        command = parse_arguments(arguments)
        if command.config_file is None:
            return command
        path = os.path.join(self._files.link(pid, "cwd"), command.config_file)
        config = self._text_within(pid, path)
        return None if config is None else parse_arguments(arguments, config)

    def user(self, pid: int) -> int | None:
        """Return the number of the user that a process runs as."""
        return self._files.user(pid)

    def owner(self, pid: int) -> Owner:
        """Return the unit or container that a process runs in."""
        return owner_of(self._files.text(pid, "cgroup"))

    def environment(self, pid: int) -> Environment | None:
        """Return a process's environment, `None` if it may not be read."""
        try:
            content = self._files.read(pid, "environ")
        except OSError:
            return None
        entries = dict(entry.partition(b"=")[::2] for entry in content.split(b"\0"))
        inode = entries.get(b"JOURNAL_STREAM", b"").partition(b":")[2]
        return Environment(
            has_api_key=bool(entries.get(b"VLLM_API_KEY")),
            journal_inode=int(inode) if inode.isdigit() else 0,
            logging_level=_level(entries.get(b"VLLM_LOGGING_LEVEL", b"INFO")),
            configures_logging=entries.get(b"VLLM_CONFIGURE_LOGGING", b"1") != b"0",
        )

    def _text_within(self, pid: int, path: str) -> str | None:
        """Return the content of a process's file, by the path that the file has for that process."""
        try:
            return self._files.read(pid, f"root{path}").decode(errors="replace")
        except OSError:
            return None


def user_name(number: int) -> str:
    """Return a user's name, or the number of one who has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _level(value: bytes) -> str:
    level = value.decode(errors="replace").upper()
    return level if level in {"DEBUG", "WARNING", "ERROR", "CRITICAL"} else "INFO"
