# SPDX-License-Identifier: Apache-2.0
"""
No process outlives a run of tests, however the run ends.

Every process of a run inherits an environment variable with a value of its own. Beside the run stands a guard, in a
session of its own: it waits until pytest is gone, also by SIGKILL, and ends what still has that value. SIGTERM ends a
run as Ctrl-C does, so that fixtures clean up first.

Run as a program this module is the guard: ``leftovers.py PID VALUE``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import uuid

from collections.abc import Iterator


VARIABLE = "VLLM_WATCH_TEST_RUN"
PATIENCE_SECONDS = 3.0
"""How long what is left over has to end after SIGTERM."""


def pytest_configure(config: object) -> None:
    """Start the guard, in the process that the run was started as."""
    if hasattr(config, "workerinput") or not hasattr(os, "pidfd_open"):
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    value = uuid.uuid4().hex
    environment = {name: text for name, text in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), value]
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # No Popen, which warns of a process that nobody waits for: this one ends after its parent.
    os.posix_spawn(sys.executable, command, environment, file_actions=quiet, setsid=True)
    os.environ[VARIABLE] = value


def inherited() -> dict[str, str]:
    """Return what the environment of a process must have that gets none of this one's."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


def marked(value: str, variable: str = VARIABLE) -> Iterator[int]:
    """Yield the processes whose environment has a value for a variable."""
    entry = f"{variable}={value}".encode()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/environ", "rb") as file:
                    if entry in file.read().split(b"\0"):
                        yield int(name)


def end(value: str) -> None:
    """End the marked processes: first by SIGTERM, and soon by SIGKILL."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    number = signal.SIGTERM
    while left := list(marked(value)):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        number = 0 if time.monotonic() < deadline else signal.SIGKILL
        time.sleep(0.05)


def guard(pid: int, value: str) -> None:
    """Wait until a process is gone, and end the marked ones."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    end(value)


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2])
