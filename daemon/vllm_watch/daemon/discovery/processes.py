# SPDX-License-Identifier: Apache-2.0
"""The list of processes: which run, what started them, and which of them look like a vLLM server."""

from __future__ import annotations

import os
import re

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from vllm_watch.daemon.discovery.command_line import ServeCommand, arguments_of, parse_arguments
from vllm_watch.daemon.discovery.proc_files import OWN, ProcFiles, split_arguments
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.hang_guard import HangGuard, Result


_TITLE = re.compile(rb"VLLM::([A-Za-z]+)")
_ENDED = frozenset("ZX")
"""The states of a process that has ended, and that its parent has not asked for yet."""
_HIDEPID = re.compile(r"(?:^|,)hidepid=(\w+)")


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


class ProcessTable:
    """Lists processes and reads about each of them, but for those at which reading hangs."""

    def __init__(self, files: ProcFiles) -> None:
        self._files = files
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
            return os.listdir(self._files.root)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"{self._files.root}, where the kernel lists processes, cannot be read: {reason}"
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
        line = self._files.read(pid, "cmdline")
        title = _TITLE.match(line)
        arguments = arguments_of(split_arguments(line)) if b"vllm" in line else None
        command = None if arguments is None else parse_arguments(arguments)
        return Process(pid, parent, started, name, title[1].decode() if title else "", command)

    def _stat(self, pid: int) -> tuple[str, list[str]]:
        """Return a process's name, and what follows it in ``/proc/PID/stat``, the state first."""
        content = self._files.read(pid, "stat").decode(errors="replace")
        end = content.rindex(")")
        return content[content.index("(") + 1 : end], content[end + 2 :].split()

    def _hidepid(self) -> str | None:
        """Return how other users' processes are hidden here, `None` if they are not."""
        for line in self._files.text(OWN, "mounts").splitlines():
            _, folder, kind, options, *_ = (*line.split(), "", "", "", "")
            found = _HIDEPID.search(options)
            if kind == "proc" and folder == self._files.root and found is not None and found[1] not in {"0", "off"}:
                return found[1]
        return None
