# SPDX-License-Identifier: Apache-2.0
"""
The command line, as tests run it to its end.

To start Python and import what a command needs takes longer than most commands. So those that only read and print are
called in the tests' own process; with whole samples each is a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from tests.support.samples import is_whole
from tests.support.waiting import SECONDS, ends_within

from vllm_watch.cli.command_line import main


COMMAND = (sys.executable, "-m", "vllm_watch")
CALLED = frozenset(
    {"advise", "backfill", "backtest", "check", "compare", "discover", "grafana", "once", "record", "report", "top"}
)
"""Commands that leave the process as it was, but for what `_same_log` puts back."""


def vllm_watch(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """
    Run the command line to its end.

    Args:
        arguments: The words after the program's name.
        options: Those of `subprocess.run`, for a process of its own.
    """
    words = [str(argument) for argument in arguments]
    if options or words[0] not in CALLED:
        return _run(words, **options)
    return called(*words)


def called(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run any command that ends before it starts something, such as the daemon with a wrong option."""
    words = [str(argument) for argument in arguments]
    return _run(words) if is_whole() else call_here(*words)


def _run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=SECONDS, **options)


def call_here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `CALLED` to its end in this process in any case, with what the test has put in place here."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    output, errors = streams
    with (
        _same_log(),
        ends_within(SECONDS),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main(list(words))
        except SystemExit as ended:
            status = ended.code
    for stream in streams:
        stream.flush()
    printed = [stream.buffer.getvalue().decode() for stream in streams]
    return subprocess.CompletedProcess(list(words), status, *printed)


@contextlib.contextmanager
def _same_log() -> Iterator[None]:
    """Put back how this process logs."""
    config, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        structlog.configure(**config)
        root.handlers[:] = handlers
        root.setLevel(level)
