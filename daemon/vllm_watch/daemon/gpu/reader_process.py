# SPDX-License-Identifier: Apache-2.0
"""The child process from the daemon's side: its pipes, and the thread that waits for what it says."""

from __future__ import annotations

import subprocess
import sys
import threading

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from vllm_watch.daemon.reading.framing import LineFramer


COMMAND = (sys.executable, "-m", "vllm_watch.daemon.gpu.child")

MAX_ANSWER = 1024 * 1024
"""Longer lines are no answers: one has some kilobytes for each GPU."""

MAX_LINES = 64
"""So many lines wait to be taken; of more, these are the last. An answer is one of them: after it a child waits."""

_READ_SIZE = 64 * 1024
_PATIENCE = 1.0


class Said(NamedTuple):
    """A line of the child without its end, and when it came, in seconds of the daemon's clock."""

    line: bytes
    at: float


class ReaderProcess:
    """
    A running child process. Raises `OSError` if it cannot be started.

    It is never killed: in a call of the driver that could harm the GPU. It ends when its input does, at the latest when
    the call that it is in returns.

    Args:
        now: Returns the time.
        command: The whole command.

    Attributes:
        changed: Set when it said something or ended.
    """

    def __init__(self, now: Callable[[], float], command: Sequence[str] = COMMAND) -> None:
        self._now = now
        self._said: deque[Said] = deque(maxlen=MAX_LINES)
        self._is_over = False
        self.changed = threading.Event()
        self._process = subprocess.Popen(  # noqa: S603  # Our own program; no shell.
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",  # Python looks for modules there first.
            start_new_session=True,  # A terminal's Ctrl-C is for the daemon.
        )
        self._thread = threading.Thread(target=self._run, name="gpu-reader", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._is_over

    def ask(self) -> None:
        """Ask for a reading of now."""
        self.changed.clear()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # It ended, which `is_over` will tell.
                self._process.stdin.write(b"%.3f\n" % self._now())
                self._process.stdin.flush()

    def take(self) -> list[Said]:
        """Return what it said since the last time."""
        return [self._said.popleft() for _ in range(len(self._said))]

    def close(self) -> None:
        """Let it end, and wait a moment for that; one that is in a call that does not return is left alone."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        """Collect its lines until it ends, and wait for it, however long that takes."""
        if self._process.stdout is not None:
            framer = LineFramer(MAX_ANSWER)
            with self._process.stdout as output:
                while data := output.read(_READ_SIZE):
                    for line in filter(None, framer.feed(data)):
                        self._said.append(Said(line, self._now()))
                        self.changed.set()
        self._is_over = True
        self.changed.set()
        self._process.wait()
