# SPDX-License-Identifier: Apache-2.0
"""A core that is busy: what runs there gets half of it, and the tests beside it have the others."""

from __future__ import annotations

import os
import subprocess
import sys

from collections.abc import Iterator
from contextlib import contextmanager


BUSY = "while True: pass"


@contextmanager
def busy_core() -> Iterator[int]:
    """Give a core of which a process takes all that it gets, until the context ends."""
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        run_on(core, process)
        try:
            yield core
        finally:
            process.kill()


def run_on(core: int, process: subprocess.Popen[bytes]) -> None:
    """Let a process run on one core alone, also the threads and processes that it starts from now on."""
    os.sched_setaffinity(process.pid, {core})
