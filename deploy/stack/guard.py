# SPDX-License-Identifier: Apache-2.0
"""
Ends what `make stack` has started if that was killed: a process of its own, and the leader of their process group.

``guard.py FOLDER`` waits on its standard input. A byte says that all has been ended in order. If the other end is
closed without one, it ends its process group and removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

from collections.abc import Iterator
from pathlib import Path


PATIENCE_SECONDS = 5.0
"""How long the others have to end after SIGTERM."""


def main(folder: str) -> None:
    """Wait for the end of the process that writes to standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read(1):
        return
    asked_until = time.monotonic() + PATIENCE_SECONDS
    asked = False
    while others := list(_others()):
        for pid in others:
            if time.monotonic() > asked_until:
                _signal(pid, signal.SIGKILL)
            elif not asked:
                _signal(pid, signal.SIGTERM)
        asked = True
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _others() -> Iterator[int]:
    """Yield the other processes of this one's group that run."""
    own = str(os.getpgrp())
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, group = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if group == own and state != "Z" and int(path.parent.name) != os.getpid():
            yield int(path.parent.name)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1])
