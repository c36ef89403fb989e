# SPDX-License-Identifier: Apache-2.0
"""What several commands have in common: options, how their values are read, and the progress bar."""

from __future__ import annotations

import glob
import math
import os
import stat
import sys

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from vllm_watch.daemon.config.texts import parse_duration, quote
from vllm_watch.daemon.support.choices import LOG_FORMATS, LOG_LEVELS, PLAIN_FORMATS, REPORT_FORMATS, file_names
from vllm_watch.daemon.support.errors import UsageError


_Command = TypeVar("_Command", bound=Callable[..., Any])

_PARTS = 1000
"""How finely the progress bar moves."""

_ERASE_LINE_ABOVE = "\x1b[1A\x1b[2K"

PLAYBACK_SPEED = 10.0
"""How fast a recording is played, unless another speed is given; 1 is real time."""

log_option = click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="PATH",
    shell_complete=file_names,
    help="A server's log, a path or glob; may be given several times.",
)
metrics_option = click.option(
    "--metrics", "metrics", multiple=True, metavar="URL", help="A server's /metrics; the first goes with the first log."
)
config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    shell_complete=file_names,
    help="A configuration (YAML), instead of --log and --metrics.",
)
listen_option = click.option("--listen", metavar="HOST:PORT", help="Address to serve on [default: 127.0.0.1:9468].")
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The lowest severity in the daemon's own log, which is written to standard error.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="The form of the daemon's own log [default: console on a terminal, else json].",
)
output_option = click.option(
    "-o", "--output", metavar="FILE", shell_complete=file_names, help="Where to write [default: standard output]."
)
report_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(REPORT_FORMATS),
    help="[default: by the ending of FILE, else text].",
)
plain_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(PLAIN_FORMATS),
    default="text",
    show_default=True,
    help="json is for programs: one document.",
)
objective_option = click.option(
    "--objective",
    metavar="chat|batch|LIMITS",
    help="What requests have to be answered within: chat, batch, or limits such as ttft=300ms,tpot=40ms.",
)
cost_option = click.option(
    "--cost-per-hour",
    "cost",
    metavar="N",
    help="What the server costs in an hour, in any currency: shows what a million tokens cost.",
)
zone_option = click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs and results, such as Asia/Shanghai or +08:00 [default: this machine's].",
)


def several(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command several options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def seconds_of(option: str, text: str) -> float:
    """
    Return the seconds of an option's duration, such as 5s or 10m.

    Raises:
        UsageError: It is none, or not more than 0 s.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option}: expected more than 0 s")
    return seconds


def cost_of(text: str) -> float:
    """
    Return the price that an option gives, in any currency.

    Raises:
        UsageError: It is no number, or not more than 0.
    """
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise UsageError(f"--cost-per-hour: expected a number above 0 such as 2.4, got {quote(text)}")
    return price


def check_output(output: str | None, inputs: Iterable[str | None], option: str = "-o") -> None:
    """
    Check that an output is none of the files that are read, also by another name of it: writing would destroy that.

    Args:
        output: A file that need not be there, or `None` for standard output.
        inputs: Files, folders, globs, and what names no file.
        option: How the output is given.

    Raises:
        UsageError: It is one of them, or in one of the folders.
    """
    written = None if output is None else _identity(output)
    if written is not None:
        for name in filter(None, inputs):
            if any(_identity(path) == written for path in _files_of(name)):
                raise UsageError(f"{option} {output}: {name} is read and would be lost: give another file")


def _identity(path: str) -> tuple[int, int] | None:
    """Return what all names of a file have in common; `None` if there is no such file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _files_of(name: str) -> Iterator[str]:
    for path in (name, *glob.iglob(name)):  # noqa: PTH207 - Of a whole path, absolute or not.
        yield path
        for folder, _, files in os.walk(path):
            yield from (str(Path(folder, file)) for file in files)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal until the work is done; yield the function that moves it to a share of the whole."""
    is_terminal = sys.stderr.isatty()
    with click.progressbar(length=_PARTS, label=label, file=sys.stderr, hidden=not is_terminal) as bar:

        def show(share: float) -> None:
            bar.update(max(int(share * _PARTS) - bar.pos, 0))

        yield show
    if is_terminal:
        sys.stderr.write(_ERASE_LINE_ABOVE)
        sys.stderr.flush()  # Before anything is printed: later it would erase the last line of that.
