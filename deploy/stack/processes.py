# SPDX-License-Identifier: Apache-2.0
"""
Processes that are started together and end together.

Each is in a session of its own, so that Ctrl-C reaches only the process that started them, which ends them in order. If
that is killed, the kernel ends them. The signals that end everything are blocked, and looked for where nothing is half
done: a handler would interrupt a start or a clean-up anywhere. All of them listen on loopback.
"""

from __future__ import annotations

import contextlib
import ctypes
import http
import http.client
import os
import signal
import socket
import subprocess
import time

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.support.errors import ToolError
from vllm_watch.daemon.support.printable import printable


HOST = "127.0.0.1"

END_SECONDS = 10.0
"""How long processes have to end in order."""

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_LAST_LINES = 5
_NEAR = 100
"""How many ports after the usual one are tried before any other."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class EndedError(Exception):
    """A signal asks for the end."""


def block_signals() -> None:
    """Let these signals wait until they are looked for; one that is ignored, as by nohup, never comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def pause(seconds: float) -> None:
    """
    Wait.

    Raises:
        EndedError: A signal came.
    """
    if signal.sigtimedwait(_ENDING, seconds) is not None:
        raise EndedError


def free_ports(usual: Mapping[str, int]) -> dict[str, int]:
    """Return for each program, by its name, its usual port or the next one that is free; no two are the same."""
    with contextlib.ExitStack() as held:
        listeners = {name: held.enter_context(_listener(port)) for name, port in usual.items()}
        return {name: listener.getsockname()[1] for name, listener in listeners.items()}


def _listener(usual: int) -> socket.socket:
    for port in range(usual, usual + _NEAR):
        with contextlib.suppress(OSError):
            return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


def get(port: int, path: str) -> bytes | None:
    """Return the body of what loopback answers to a GET with status 200, or `None`; proxies are not asked."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if answer.status == http.HTTPStatus.OK else None


class Program(NamedTuple):
    """
    A program to start.

    Args:
        name: What messages call it.
        command: Its path and arguments.
        port: Where it listens on loopback.
        ready: The path of the URL that answers with 200 once it is ready.
    """

    name: str
    command: Sequence[str]
    port: int
    ready: str

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
        self._running: list[tuple[Program, subprocess.Popen[bytes]]] = []

    def start(self, program: Program) -> None:
        """
        Start a program.

        Raises:
            ToolError: It cannot be run.
        """
        # Grafana's variables, such as GF_SERVER_HTTP_PORT, come before its file.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GF_")}
        try:
            with self._log(program).open("ab") as output:
                process = subprocess.Popen(  # noqa: S603 - A program that was looked for, with paths of ours.
                    program.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**environment, "TMPDIR": str(self._folder)},
                    start_new_session=True,
                    preexec_fn=_end_with_us,  # noqa: PLW1509 - It takes no lock.
                )
        except OSError as error:
            raise ToolError(f"{program.command[0]}: cannot be run: {(error.strerror or str(error)).lower()}") from error
        self._running.append((program, process))

    def check(self) -> None:
        """
        Look whether all still run.

        Raises:
            ToolError: One has ended.
        """
        for program, process in self._running:
            if (status := process.poll()) is not None:
                raise ToolError(f"{program.name} has ended{_how(status)}\n{self.last_words(program)}".strip())

    def last_words(self, program: Program) -> str:
        """Return the last lines that a program has written."""
        with contextlib.suppress(OSError):
            lines = self._log(program).read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(f"{program.name}: {printable(line)}" for line in lines[-_LAST_LINES:])
        return ""

    def end(self) -> None:
        """End everything that was started."""
        for _, process in self._running:
            process.terminate()
        patience = time.monotonic() + END_SECONDS
        for _, process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(patience - time.monotonic(), 0))
                continue
            process.kill()
            process.wait()

    def _log(self, program: Program) -> Path:
        return self._folder / f"{program.name.lower()}.log"


def _end_with_us() -> None:
    """Let a new process get SIGTERM when the one that started it is gone, and the signals that wait here."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _how(status: int) -> str:
    return f" by {signal.Signals(-status).name}" if status < 0 else f" with exit status {status}"
