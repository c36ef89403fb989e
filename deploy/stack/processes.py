# SPDX-License-Identifier: Apache-2.0
"""
Processes that are started together and end together.

They are a process group of their own, so that Ctrl-C reaches only the process that started them, which ends them in
order. The group's leader is `deploy/stack/guard.py`, which ends them if that process is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.stack.loopback import HOST, get

from vllm_watch.daemon.support.errors import ToolError
from vllm_watch.daemon.support.printable import printable


GUARD = Path(__file__).with_name("guard.py")
END_SECONDS = 10.0
"""How long processes have to end in order."""

_LOOK_SECONDS = 0.05
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Program(NamedTuple):
    """
    A program to start.

    Args:
        name: What messages call it.
        command: Its path and arguments.
        port: Where it listens on loopback.
        ready: The path of the URL that answers with 200 once it is ready.
        hidden: How the variables of our environment begin that it does not get; empty if it gets all.
    """

    name: str
    command: Sequence[str]
    port: int
    ready: str
    hidden: str = ""

    @property
    def url(self) -> str:
        """Its address, with a slash at the end."""
        return f"http://{HOST}:{self.port}/"

    def is_ready(self) -> bool:
        """Whether it says that it is."""
        return get(self.port, self.ready) is not None


class Processes:
    """
    Starts programs and ends them.

    Args:
        folder: Where each one's output is kept, and its temporary files are; it is theirs alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[int, Program] = {}
        reader, self._guarded = os.pipe()
        try:
            # -I and -S: it needs nothing but Python itself, and is there at once.
            self._guard = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(GUARD), str(folder)],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), *_output(os.devnull)],
                setpgroup=0,
            )
        finally:
            os.close(reader)

    def start(self, program: Program) -> None:
        """
        Start a program.

        Raises:
            ToolError: It cannot be run.
        """
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        try:
            pid = os.posix_spawn(
                program.command[0],
                list(program.command),
                {**_environment(program.hidden), "TMPDIR": str(self._folder)},
                file_actions=[nothing, *_output(str(self._log(program)))],
                setpgroup=self._guard,
                setsigmask=[],
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            raise ToolError(f"{program.command[0]}: cannot be run: {(error.strerror or str(error)).lower()}") from error
        self._running[pid] = program

    def check(self) -> None:
        """
        Look whether all still run.

        Raises:
            ToolError: One has ended.
        """
        for pid, program in list(self._running.items()):
            if (status := _status(pid)) is not None:
                del self._running[pid]
                raise ToolError(f"{program.name} has ended{_how(status)}\n{self.last_words(program)}".strip())

    def last_words(self, program: Program) -> str:
        """Return the last lines that a program has written."""
        with contextlib.suppress(OSError):
            lines = self._log(program).read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(f"{program.name}: {printable(line)}" for line in lines[-_LAST_LINES:])
        return ""

    def end(self) -> None:
        """End everything that was started, and the guard."""
        _signal_all(self._running, signal.SIGTERM)
        patience = time.monotonic() + END_SECONDS
        while self._reap() and time.monotonic() < patience:
            time.sleep(_LOOK_SECONDS)
        _signal_all(self._running, signal.SIGKILL)
        while self._reap():
            time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(OSError):
            os.write(self._guarded, b"\n")
        os.close(self._guarded)
        os.waitpid(self._guard, 0)

    def _reap(self) -> int:
        """Return how many still run."""
        self._running = {pid: program for pid, program in self._running.items() if _status(pid) is None}
        return len(self._running)

    def _log(self, program: Program) -> Path:
        return self._folder / f"{program.name.lower()}.log"


_LAST_LINES = 5


def _output(path: str) -> list[tuple[int, int, str, int, int] | tuple[int, int, int]]:
    """Return what lets standard output and standard error go to the end of a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return [(os.POSIX_SPAWN_OPEN, 1, path, flags, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]


def _environment(hidden: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not (hidden and name.startswith(hidden))}


def _status(pid: int) -> int | None:
    """Return the exit status of a child, minus the signal that ended it, or `None` while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _how(status: int) -> str:
    return f" by {signal.Signals(-status).name}" if status < 0 else f" with exit status {status}"


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)  # A child that is not reaped keeps its number.
