# SPDX-License-Identifier: Apache-2.0
"""A command that runs while servers are recorded, such as a benchmark: its output passes through, and is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

from collections.abc import Callable, Sequence
from pathlib import Path

from vllm_watch.daemon.support.errors import FileError


PATIENCE = 10.0
"""Seconds that it has to end after each signal, before the next one."""

KEPT_START = 64 * 1024
KEPT_END = 1024 * 1024
"""Bytes of its output that are kept: what it was called with is at the start, its result at the end."""

OUTPUT_SECONDS = 2.0
"""How long its last output is waited for: a process that it leaves behind may keep its output open."""

CHECK_SECONDS = 0.1
_READ_SIZE = 64 * 1024


class KeptOutput:
    """The first and the last bytes of an output."""

    def __init__(self) -> None:
        self._start = b""
        self._end = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        """Take in what came."""
        room = KEPT_START - len(self._start)
        self._start += data[:room]
        self._end += data[room:] if room > 0 else data
        if len(self._end) > 2 * KEPT_END:
            del self._end[:-KEPT_END]
            self._is_cut = True

    @property
    def text(self) -> str:
        """What was kept; complete lines only, where something between was dropped."""
        if not self._is_cut:
            return (self._start + self._end).decode("utf-8", "replace")
        start, end = self._start.rpartition(b"\n")[0], self._end.partition(b"\n")[2]
        return (start + b"\n" + end).decode("utf-8", "replace")


class RunningCommand:
    """
    A command in a process group of its own, so that all its processes are ended together.

    Args:
        argv: The command and its arguments.
        pass_on: Called in a thread with what it prints on standard output.

    Raises:
        FileError: It cannot be started.
    """

    def __init__(self, argv: Sequence[str], pass_on: Callable[[bytes], None]) -> None:
        self._output = KeptOutput()
        self._pass_on = pass_on
        # Python holds back what it prints into a pipe: the user would see nothing until the end.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - Running it is what was asked for.
                list(argv), stdout=subprocess.PIPE, start_new_session=True, env=environment
            )
        except OSError as error:
            raise FileError(f"{argv[0]}: cannot be run: {error.strerror}") from error
        self._thread = threading.Thread(target=self._read, name="command", daemon=True)
        self._thread.start()

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal; `None` while it runs."""
        return self._process.poll()

    @property
    def printed(self) -> str:
        """What is kept of its output, when it has ended."""
        self._thread.join(OUTPUT_SECONDS)
        return self._output.text

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self, hurry: threading.Event) -> int:
        """
        End all its processes: with SIGINT, after a while with SIGTERM, at last with SIGKILL; return its exit status.

        Args:
            hurry: Set when the next signal is to be sent at once.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            if self.exit_status is None:
                self.send(number)
                self._wait(hurry)
        self.send(signal.SIGKILL)  # Also to what it leaves behind.
        return self._process.wait()

    def _wait(self, hurry: threading.Event) -> None:
        end = time.monotonic() + PATIENCE
        while self.exit_status is None and time.monotonic() < end and not hurry.wait(CHECK_SECONDS):
            pass
        hurry.clear()

    def _read(self) -> None:
        pipe = self._process.stdout
        if pipe is None:
            return
        with pipe:
            while data := os.read(pipe.fileno(), _READ_SIZE):
                self._output.add(data)
                self._pass_on(data)


def check_command(argv: Sequence[str]) -> None:
    """
    Check that a command is there, before anything is done.

    Raises:
        FileError: It is not.
    """
    if shutil.which(argv[0]) is None:
        there = Path(argv[0]).exists()
        raise FileError(f"{argv[0]}: {'is not a program that can be run' if there else 'there is no such command'}")
