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

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.benchmark import is_client_result, is_result


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
    """A command in a process group of its own, whose output passes on in a thread; `FileError` if it cannot start."""

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
        """End all its processes by SIGINT, then SIGTERM, then SIGKILL, sooner after `hurry`; return its exit status."""
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
    """Raise `FileError` if there is no such command."""
    if shutil.which(argv[0]) is None:
        there = Path(argv[0]).exists()
        raise FileError(f"{argv[0]}: {'is not a program that can be run' if there else 'there is no such command'}")


MAX_FILE = 256 * 1024 * 1024
"""The largest result that is kept, in bytes: ten thousand requests with all their times and answers are less."""

MAX_FILES = 1000
"""The most files of a folder that are looked at, the newest first."""

PRINTED = "printed.txt"
"""The name of what was printed."""


class ResultFiles:
    """Finds the result files that a command writes, which runs in a folder."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._folder = folder / (_option(argv, "--result-dir") or "")
        name = _option(argv, "--result-filename") or _option(argv, "--output-json")
        self._named = [self._folder / name, folder / name] if name else []
        self._folders = list(dict.fromkeys([self._folder, folder]))
        self._before = self._files()

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each result that was written since, also of another client's."""
        for path, written in sorted(self._files().items()):
            if self._before.get(path) == written or written[1] > MAX_FILE:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if is_result(text) or is_client_result(text):
                yield path.name, text

    def _files(self) -> dict[Path, tuple[int, int]]:
        """Return when each file was written last, and how many bytes it has."""
        found = {}
        for path in [*self._named, *(path for folder in self._folders for path in _json_files(folder))]:
            try:
                status = path.stat()
            except OSError:
                continue
            found[path.resolve()] = status.st_mtime_ns, status.st_size
        return found


def _json_files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".json") and entry.is_file()]
        newest = sorted(found, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
    return [Path(entry.path) for entry in newest[:MAX_FILES]]


def _option(argv: Sequence[str], name: str) -> str | None:
    """Return the value of an option, given as ``--name VALUE`` or ``--name=VALUE``, with - or _ in its name."""
    names = {name, name.replace("-", "_").replace("__", "--", 1)}
    for argument, following in zip_longest(argv, argv[1:], fillvalue=""):
        option, sign, value = argument.partition("=")
        if option in names:
            return (value if sign else following) or None
    return None
