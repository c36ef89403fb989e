# SPDX-License-Identifier: Apache-2.0
"""
The process table: its files and links, which processes run, and which of them look like a vLLM server.

A process may end at any moment, and another user's shows little: unless a function says otherwise, what cannot be read
is empty. Of command lines and environments only what the closed lists name leaves this module: no key, no token.
"""

from __future__ import annotations

import os
import pwd
import re

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from vllm_watch.daemon.discovery.serve_command import ServeCommand, arguments_of, parse_arguments
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.hang_guard import HangGuard, Result


MAX_TEXT = 4 * 1024 * 1024
"""The most bytes that are read of one file: a table of connections, or a server's own configuration."""

OWN = "self"
"""This process, in place of a number."""

_TITLE = re.compile(rb"VLLM::([A-Za-z]+)")
_ENDED = frozenset("ZX")
"""The states of a process that has ended, and that its parent has not asked for yet."""
_HIDEPID = re.compile(r"(?:^|,)hidepid=(\w+)")
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|\Z)")
_USER_MANAGER = re.compile(r"/user@[0-9]+\.service/")
_UNITS = (".service", ".scope")


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
        return _split_arguments(self.content(pid, "cmdline"))

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


def _split_arguments(line: bytes) -> list[str]:
    return os.fsdecode(line).rstrip("\0").split("\0")


class Process(NamedTuple):
    """
    A process. `started`, in clock ticks since the boot, tells it from a later one with the same number.

    `command` is set if it looks like a server, `title` for the processes that vLLM names: ``EngineCore``,
    ``APIServer``, ``Worker``.
    """

    pid: int
    parent: int
    started: int
    name: str
    title: str = ""
    command: ServeCommand | None = None


class ProcessList(NamedTuple):
    """
    All processes that are visible.

    `unreadable` counts those whose command line cannot be read; `hidepid` is how other users' processes are hidden.
    """

    processes: tuple[Process, ...]
    unreadable: int
    hidepid: str | None


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
    """The process table, wherever it is mounted; processes at which reading hangs are skipped."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.files = ProcFiles(root)
        self._listing, self._reading = HangGuard[int](), HangGuard[int]()

    @property
    def hanging_pids(self) -> frozenset[int]:
        """The numbers of the processes that are skipped because reading about them hangs."""
        return self._listing.hanging | self._reading.hanging

    def run_for_each(self, calls: Mapping[int, Callable[[], Result]]) -> dict[int, Result]:
        """Make a call for each process, by its number, and skip those at which that hangs."""
        return self._reading.run_each(calls)

    def processes(self) -> ProcessList:
        """
        Return all processes: the part of the work that grows with the machine.

        Raises:
            DiscoveryError: There is no process table.
        """
        numbers = [int(name) for name in self._names() if name.isdigit()]
        found = self._listing.run_each({number: partial(self._process_or_why, number) for number in numbers})
        processes = tuple(each for each in found.values() if isinstance(each, Process))
        return ProcessList(processes, sum(each == "denied" for each in found.values()), self._hidepid())

    def is_running(self, process: Process) -> bool:
        """Whether a process still runs, and its number is not another one's by now, or that of a zombie."""
        try:
            _, fields = self._stat(process.pid)
        except (OSError, ValueError):
            return False
        return int(fields[19]) == process.started and fields[0] not in _ENDED

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.files.root)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"{self.files.root}, where the kernel lists processes, cannot be read: {reason}"
            raise DiscoveryError(text) from error

    def _process_or_why(self, pid: int) -> Process | Literal["denied", "gone"]:
        try:
            return self._process(pid)
        except PermissionError:
            return "denied"
        except (OSError, ValueError):
            return "gone"

    def _process(self, pid: int) -> Process:
        name, fields = self._stat(pid)
        parent, started = int(fields[1]), int(fields[19])
        line = self.files.read(pid, "cmdline")
        title = _TITLE.match(line)
        arguments = arguments_of(_split_arguments(line)) if b"vllm" in line else None
        command = None if arguments is None else parse_arguments(arguments)
        return Process(pid, parent, started, name, title[1].decode() if title else "", command)

    def _stat(self, pid: int) -> tuple[str, list[str]]:
        """Return a process's name, and what follows it in ``/proc/PID/stat``, the state first."""
        content = self.files.read(pid, "stat").decode(errors="replace")
        end = content.rindex(")")
        return content[content.index("(") + 1 : end], content[end + 2 :].split()

    def _hidepid(self) -> str | None:
        """Return how other users' processes are hidden here, `None` if they are not."""
        for line in self.files.text(OWN, "mounts").splitlines():
            _, folder, kind, options, *_ = (*line.split(), "", "", "", "")
            found = _HIDEPID.search(options)
            if kind == "proc" and folder == self.files.root and found is not None and found[1] not in {"0", "off"}:
                return found[1]
        return None

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
