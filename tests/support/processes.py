# SPDX-License-Identifier: Apache-2.0
"""Commands that are run to their end, also as nobody or beside a busy core."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import SECONDS


NOBODY = 65534

_DROP = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

# Puts a folder that everyone may enter over the private one, with nothing in it but the interpreter's.
_SHOW = """
set -e
mount --bind "$2" "$3"
mount -t tmpfs -o mode=755 none "$1"
mkdir -p "$2"
mount --bind "$3" "$2"
shift 3
exec "$@"
"""


def run_command(
    *command: object, text: bool = True, check: bool = False, timeout: float = SECONDS, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, and return it with what it printed."""
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=text, check=check, timeout=timeout, **more)


def as_nobody(empty: Path) -> list[str]:
    """Return what goes before a command that root runs as nobody; the empty folder is needed meanwhile."""
    interpreter = Path(sys.base_prefix).resolve()
    private = next((each for each in reversed(interpreter.parents) if not each.stat().st_mode & stat.S_IXOTH), None)
    if private is None:
        return [*_DROP]
    return ["unshare", "-m", "/bin/sh", "-c", _SHOW, "sh", str(private), str(interpreter), str(empty), *_DROP]


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
