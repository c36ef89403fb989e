# SPDX-License-Identifier: Apache-2.0
"""A log that a test writes and follows: every poll is made by the test, at the time the test says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time

from contextlib import contextmanager
from pathlib import Path

import vllm_watch
import vllm_watch_parsers

from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch_parsers.events import EngineStats


_PRINTED = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
_PRINTED_BYTES = re.compile(_PRINTED.pattern.encode())


def stats_line(running, second=0):
    """Return a statistics line with `running` requests."""
    return (
        f"(APIServer pid=7) INFO 11-21 02:35:{second:02d} [loggers.py:335] Engine 000: "
        f"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: {running} reqs, "
        f"Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%\n"
    ).encode()


def printed_now(text):
    """Return lines of a log, bytes or text, as if they were printed now: a daemon takes old ones for old."""
    now = time.strftime("%m-%d %H:%M:%S")
    if isinstance(text, bytes):
        return _PRINTED_BYTES.sub(now.encode(), text)
    return _PRINTED.sub(now, text)


class Log:
    """
    A log file, its tail, and the numbers of running requests that were read from it.

    `gaps` tells of each batch that was read whether it came after lines that were not.
    """

    def __init__(self, path, pattern=None):
        self.path = path
        self.pattern = str(pattern or path)
        self.tail = LogTailer(self.pattern, wall=self.wall)
        self.now = 1000.0
        self.history = []
        self.gaps = []

    def write(self, *running, path=None):
        """Append a statistics line for each number."""
        self.append(b"".join(stats_line(number) for number in running), path)

    def append(self, data, path=None):
        """Append bytes."""
        with open(path or self.path, "ab") as file:
            file.write(data)

    def poll(self, seconds=1.0):
        """Poll once, later; return the numbers that were read."""
        self.now += seconds
        found = []
        for batch in self.tail.poll(self.now):
            running = [t.event.requests_running for t in batch.events if isinstance(t.event, EngineStats)]
            (self.history if batch.is_history else found).extend(running)
            self.gaps += [] if batch.is_history else [batch.is_after_gap]
        return found

    def grow(self, *running):
        """Append a statistics line for each number, and poll; return the numbers that were read."""
        self.write(*running)
        return self.poll()

    def named(self, suffix):
        """Return the path of a rotated file."""
        return self.path.with_name(self.path.name + suffix)

    def rotate(self, retention=9):
        """Rename as logrotate does, the oldest first, and make a new file."""
        self.named(f".{retention}").unlink(missing_ok=True)
        for number in range(retention - 1, 0, -1):
            if self.named(f".{number}").exists():
                self.named(f".{number}").rename(self.named(f".{number + 1}"))
        self.path.rename(self.named(".1"))
        self.path.touch()

    def copytruncate(self):
        """Copy to the first rotated file and truncate, as logrotate does where the writer keeps its file."""
        self.named(".1").write_bytes(self.path.read_bytes())
        os.truncate(self.path, 0)

    def wall(self, moment):
        """Return a time later than what was written so far, whenever a poll is."""
        return max((path.lstat().st_mtime + 0.2 for path in Path(self.path).parent.glob("*")), default=moment)

    def date(self, seconds):
        """Let all files be written so many seconds from now."""
        for path in self.path.parent.glob("*"):
            os.utime(path, (time.time() + seconds, time.time() + seconds))

    def stop(self):
        """End the tail; return what its checkpoint holds."""
        positions = self.tail.positions()
        self.tail.close()
        return positions

    def start(self, positions):
        """Begin a new tail where one was stopped."""
        self.tail = LogTailer(self.pattern, positions, self.wall)

    @contextmanager
    def away(self):
        """Let no daemon follow it in a ``with`` block, and then a new one where the one before was stopped."""
        stopped = self.stop()
        yield
        self.start(stopped)

    def move(self, path):
        """Go on at another path, for the same server."""
        self.path = path
        self.tail.move(str(path), self.now)

    @property
    def status(self):
        """Whether the log can be read, and why."""
        return self.tail.status()[:2]

    @property
    def counts(self):
        """What has been counted."""
        return self.tail.status().tail


def open_files():
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def run_child(script, *arguments, before=(), timeout=60):
    """
    Run a Python script in a process of its own and return what it printed.

    Args:
        script: The script; it may import this module.
        arguments: Its arguments.
        before: A command that runs Python.
        timeout: Seconds after which it is ended.
    """
    roots = [
        Path(__file__).parents[2],
        Path(vllm_watch.__file__).parents[1],
        Path(vllm_watch_parsers.__file__).parents[1],
    ]
    program = f"import os, sys\nsys.path[:0] = {[str(root) for root in roots]!r}\n{textwrap.dedent(script)}"
    command = [*before, sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode().strip()
