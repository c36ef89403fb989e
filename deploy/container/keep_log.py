# SPDX-License-Identifier: Apache-2.0
"""
Runs a server and writes its output to the console, as before, and to a file of limited size.

    python3 keep_log.py --log /var/log/vllm/vllm.log -- vllm serve MODEL

For containers, where nothing rotates the log and vLLM cannot open another file. At its limit the file is renamed to
LOG.1, between two lines, so that a program that follows it loses nothing; both files together need a little more than
twice the limit. It needs only Python 3.8, so it runs in the image of vLLM. A full disk never stops the server. Signals
are forwarded to the server, and as process 1 of a container it reaps orphans. Exit status: the server's, 128 + N if
signal N ended it, 127 if the command cannot be started.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading

from pathlib import Path
from typing import BinaryIO


MIB = 1 << 20
PIECE = 1 << 16
LAST_WORDS_SECONDS = 5.0
"""How long to wait for the rest of the pipe after the server has ended: a child of it may hold the other end open."""


class LimitedFile:
    """
    A file that is appended to and renamed when it is full. No failure is raised: each kind is printed once.

    Args:
        path: The file; what it already contains stays.
        limit: Bytes after which it is renamed, at the next end of a line.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file: BinaryIO | None = None
        self._is_torn = False
        self._printed: set[int | None] = set()

    def write(self, data: bytes) -> None:
        """Append the data, or only a part of it if the disk is full."""
        try:
            self._write(data)
        except OSError as error:
            self._is_torn = True
            if error.errno not in self._printed:
                self._printed.add(error.errno)
                say(f"{self._path} is not written: {error.strerror}")

    def _write(self, data: bytes) -> None:
        file = self._file = self._file or self._path.open("ab", buffering=0)
        if self._is_torn:
            data, self._is_torn = b"\n" + data, False
        end = data.rfind(b"\n") + 1 if file.tell() + len(data) >= self._limit else 0
        if end:
            _write_all(file, data[:end])
            file.close()
            self._file = None
            self._path.replace(f"{self._path}.1")
            file = self._file = self._path.open("ab", buffering=0)
        _write_all(file, data[end:])


def _write_all(file: BinaryIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _show(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def say(sentence: str) -> None:
    """Print a sentence on standard error, unless it is closed."""
    with contextlib.suppress(OSError):
        print(f"keep_log: {sentence}", file=sys.stderr, flush=True)


def copy(source: BinaryIO, log: LimitedFile) -> None:
    """Copy everything from the source to the console and into the file, as it arrives, until the source ends."""
    console = True
    while data := os.read(source.fileno(), PIECE):
        log.write(data)
        if console:
            try:
                _show(data)
            except OSError:
                console = False


class Signals:
    """Forwards signals to a server; those that arrive before it is started are kept."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._take(number))

    def go_to(self, server: subprocess.Popen[bytes]) -> None:
        """Send the server the signals that have arrived, and from now on each new one."""
        self._server = server
        while self._early:
            self._take(self._early.pop(0))

    def _take(self, number: int) -> None:
        if self._server is None:
            self._early.append(number)
        elif self._server.returncode is None:
            # Not `Popen.send_signal`, which would reap a server that has ended while `wait` waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server.pid, number)


def wait(server: subprocess.Popen[bytes]) -> int:
    """Wait until the server ends, and reap other processes meanwhile: process 1 inherits all orphans."""
    while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT):
        if ended.si_pid == server.pid:
            break
        os.waitpid(ended.si_pid, 0)
    return server.wait()


def run(command: list[str], log: LimitedFile) -> int:
    """Run a command until it ends and return its exit status as a shell does."""
    signals = Signals()
    try:
        # In its own session, so that Ctrl+C on a terminal arrives only once, from here.
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)  # noqa: S603 - It is what this is for.
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return 127
    signals.go_to(server)
    assert server.stdout is not None  # noqa: S101 - A pipe was asked for.
    reader = threading.Thread(target=copy, args=(server.stdout, log), daemon=True)
    reader.start()
    status = wait(server)
    reader.join(LAST_WORDS_SECONDS)
    return status if status >= 0 else 128 - status


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description="Run a server and keep its log in a file of limited size.")
    parser.add_argument("--log", type=Path, required=True, metavar="FILE", help="where to keep it")
    parser.add_argument("--limit", type=int, default=64, metavar="MIB", help="rename it at this size (default: 64)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the server, after --")
    arguments = parser.parse_args()
    return run(arguments.command, LimitedFile(arguments.log, arguments.limit * MIB))


if __name__ == "__main__":
    sys.exit(main())
