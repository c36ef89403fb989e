# SPDX-License-Identifier: Apache-2.0
"""
What the kernel shows of processes under ``/proc``, by subject; here what one shows of itself.

Of command lines and environments only what the closed lists name leaves this module: no key, no token.
"""

from __future__ import annotations

import re

from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.discovery.address import Networks
from vllm_watch.daemon.discovery.open_files import OpenFiles
from vllm_watch.daemon.discovery.processes import OWN, ProcessTable, ProcFiles
from vllm_watch.daemon.discovery.serve_command import ServeCommand, arguments_of, parse_arguments


_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|\Z)")
_USER_MANAGER = re.compile(r"/user@[0-9]+\.service/")
_UNITS = (".service", ".scope")


class Owner(NamedTuple):
    """A systemd unit's name or a container's id of 64 digits; `is_user_unit` for a unit of ``systemd --user``."""

    unit: str | None = None
    is_user_unit: bool = False
    container: str | None = None


def owner_of(text: str) -> Owner:
    """
    Return the unit or container in the content of ``/proc/PID/cgroup``, of version 1 or 2.

    The unit is the innermost one, as in the journal.
    """
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    for path in paths:
        found = _CONTAINER.search(path)
        if found is not None:
            return Owner(container=found[1])
    for path in paths:
        units = [part for part in path.split("/") if part.endswith(_UNITS)]
        if units:  # Systemd puts a _ before some names.
            return Owner(units[-1].removeprefix("_"), is_user_unit=_USER_MANAGER.search(path) is not None)
    return Owner()


class Environment(NamedTuple):
    """The variables of a server that matter here; `journal_inode` is that of its stream to the journal."""

    has_api_key: bool = False
    journal_inode: int = 0
    logging_level: str = "INFO"


class Proc:
    """The process table, wherever it is mounted."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.files = files = ProcFiles(root)
        self.table = ProcessTable(files)
        self.open_files = OpenFiles(files)
        self.networks = Networks(files)

    def pid_namespace(self) -> str:
        """Return the namespace in which this process has its number, empty if it cannot be read."""
        return self.files.link(OWN, "ns/pid")

    def command(self, pid: int) -> ServeCommand | None:
        """Return a server's options, with those of its own configuration file; `None` if one cannot be read."""
        arguments = arguments_of(self.files.arguments(pid))
        if arguments is None:
            return None
        command = parse_arguments(arguments)
        if command.config_file is None:
            return command
        path = str(Path(self.files.link(pid, "cwd"), command.config_file))
        config = self._text_within(pid, path)
        return None if config is None else parse_arguments(arguments, config)

    def owner(self, pid: int) -> Owner:
        """Return the unit or container that a process runs in."""
        return owner_of(self.files.text(pid, "cgroup"))

    def environment(self, pid: int) -> Environment | None:
        """Return a process's environment, `None` if it may not be read."""
        try:
            content = self.files.read(pid, "environ")
        except OSError:
            return None
        entries = dict(entry.partition(b"=")[::2] for entry in content.split(b"\0"))
        inode = entries.get(b"JOURNAL_STREAM", b"").partition(b":")[2]
        return Environment(
            has_api_key=bool(entries.get(b"VLLM_API_KEY")),
            journal_inode=int(inode) if inode.isdigit() else 0,
            logging_level=_level(entries.get(b"VLLM_LOGGING_LEVEL", b"INFO")),
        )

    def _text_within(self, pid: int, path: str) -> str | None:
        """Return the content of a process's file, by the path that the file has for that process."""
        try:
            return self.files.read(pid, f"root{path}").decode(errors="replace")
        except OSError:
            return None


def _level(value: bytes) -> str:
    level = value.decode(errors="replace").upper()
    return level if level in {"DEBUG", "WARNING", "ERROR", "CRITICAL"} else "INFO"
