# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own tool: where it is, and its runs, which end with the process that started them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.support.clean_up import cleaned_up, held_back
from vllm_watch.daemon.support.errors import ToolError


NAME = "promtool"
OLDEST = (2, 42)
"""The first release that knows `keep_firing_for`."""

HOW_TO_INSTALL = "apt-get install prometheus, or https://prometheus.io/download/"
_CHECK_SECONDS = 0.2
_END_SECONDS = 5
_VERSION = re.compile(r"version (\d+)\.(\d+)")

Waiting = Callable[[float], None]
"""Called now and then with how many seconds the runs have taken so far."""


class Ended(NamedTuple):
    """A run that has ended: whether all was well, and what it printed."""

    is_well: bool
    printed: str


class Promtool:
    """
    Runs promtool.

    Args:
        folder: For files of its runs; it is there as long as they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = _found()
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str | Path) -> Ended:
        """Run it once."""
        return self.run_all([arguments])[0]

    def run_all(
        self, commands: Sequence[Sequence[str | Path]], waiting: Waiting = lambda _seconds: None
    ) -> list[Ended]:
        """Run it several times at once; return how each run ended, in this order."""
        outputs = [self.folder / f"output{number}" for number, _ in enumerate(commands)]
        for arguments, output in zip(commands, outputs, strict=True):
            self._start(arguments, output)
        started = time.monotonic()
        statuses = []
        for running in self._running:
            while True:
                try:
                    statuses.append(running.wait(_CHECK_SECONDS))
                    break
                except subprocess.TimeoutExpired:
                    waiting(time.monotonic() - started)
        self._running = []
        texts = [output.read_text(encoding="utf-8", errors="replace") for output in outputs]
        return [Ended(status == 0, text) for status, text in zip(statuses, texts, strict=True)]

    def end(self) -> None:
        """End all runs."""
        for running in self._running:
            running.terminate()
        for running in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(_END_SECONDS)
                continue
            running.kill()
            running.wait()

    def _start(self, arguments: Sequence[str | Path], output: Path) -> None:
        # What it stores meanwhile lies in a temporary folder, which it leaves behind if it is ended.
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        try:
            with output.open("wb") as file, held_back() as let_through:
                self._running.append(
                    subprocess.Popen(  # noqa: S603 - A program of this name, with paths of ours.
                        [self._path, *map(str, arguments)],
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        preexec_fn=let_through,  # noqa: PLW1509 - It takes no lock, and there is no other thread.
                    )
                )
        except OSError as error:
            raise ToolError(f"{self._path}: cannot be run: {error.strerror}") from error


@contextmanager
def promtool() -> Iterator[Promtool]:
    """
    Yield what runs promtool; its runs and files end with the block, and with the process.

    Raises:
        ToolError: It is not installed, or too old.
    """
    folder = Path(tempfile.mkdtemp(prefix="vllm-watch-"))
    tool: Promtool | None = None

    def clean_up() -> None:
        if tool is not None:
            tool.end()
        shutil.rmtree(folder, ignore_errors=True)

    with cleaned_up(clean_up):
        tool = Promtool(folder)
        _check(tool)
        yield tool


def _found() -> str:
    path = shutil.which(NAME)
    if path is None:
        raise ToolError(f"{NAME} is missing, which evaluates the rules as Prometheus does: {HOW_TO_INSTALL}")
    return path


def _check(tool: Promtool) -> None:
    printed = tool.run("--version").printed
    version = _VERSION.search(printed)
    if version is not None and (int(version[1]), int(version[2])) < OLDEST:
        raise ToolError(f"{NAME} is of Prometheus {version[1]}.{version[2]}, and 2.42 or newer is needed")
