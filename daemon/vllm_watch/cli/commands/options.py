# SPDX-License-Identifier: Apache-2.0
"""
What several commands have in common: options, how their values are read, and the progress bar.

A value that is wrong is a `UsageError` that names its option.
"""

from __future__ import annotations

import glob
import os
import stat
import sys

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from vllm_watch.daemon.catalog.codes import LOG_FORMATS, LOG_LEVELS
from vllm_watch.daemon.config.texts import parse_duration
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import PLAIN_FORMATS, printable


if TYPE_CHECKING:
    from vllm_watch.analysis.replay.recording import Recording


ReportFormat = Literal["text", "markdown", "json", "html"]
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)

ComparisonFormat = Literal["text", "markdown", "json", "html", "csv"]
COMPARISON_FORMATS: tuple[ComparisonFormat, ...] = get_args(ComparisonFormat)

BacktestFormat = Literal["text", "markdown", "json"]
BACKTEST_FORMATS: tuple[BacktestFormat, ...] = get_args(BacktestFormat)

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PARTS = 1000
"""How finely the progress bar moves."""

_ERASE_LINE_ABOVE = "\x1b[1A\x1b[2K"

PLAYBACK_SPEED = 10.0
"""How fast a recording is played, unless another speed is given; 1 is real time."""


def file_option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - As of click.
    """Return an option whose value is the path of a file, which shells complete."""
    return click.option(*names, metavar="FILE", type=click.Path(readable=False), **settings)


log_option = click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="PATH",
    type=click.Path(readable=False),
    help="A server's log, a path or glob; may be given several times.",
)
metrics_option = click.option(
    "--metrics", "metrics", multiple=True, metavar="URL", help="A server's /metrics; the first goes with the first log."
)
config_option = file_option("--config", "config_file", help="A configuration (YAML), instead of --log and --metrics.")
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
output_option = file_option("-o", "--output", help="Where to write [default: standard output].")
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


def as_one(
    name: str, record: Callable[..., object], *options: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Return a decorator that gives a command several options, whose values it gets as one record.

    Args:
        name: The command's parameter for the record.
        record: A named tuple; its fields are named as the parameters of the options.
        options: The options, in this order.
    """
    fields = signature(record).parameters

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def packed(**values: object) -> None:
            own = {field: values.pop(field) for field in fields if field in values}
            command(**values, **{name: record(**own)})

        for option in reversed(options):
            packed = option(packed)
        return packed

    return add


def parsed(parse: Callable[[str, str], object]) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """Return the callback of an option whose text is read by `parse`, which is given the option's name before it."""

    def callback(_context: click.Context, option: click.Parameter, text: str | None) -> object:
        return None if text is None else parse(option.opts[0], text)

    return callback


def say(text: str) -> None:
    """Write a line of this program to standard error."""
    click.echo(f"vllm-watch: {printable(text)}", err=True)


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of an option's duration, such as 5s or 10m; they are more than 0."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option}: expected more than 0 s")
    return seconds


def duration_option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - As of click.
    """Return an option whose value is a duration, in seconds."""
    return click.option(*names, callback=parsed(seconds_of), metavar="DURATION", **settings)


def check_output(output: str | None, inputs: Iterable[str | None], option: str = "-o") -> None:
    """
    Check that an output is none of the files that are read, also by another name of it: writing would destroy that.

    Args:
        output: A file that need not be there, or `None` for standard output.
        inputs: Files, folders, globs, and what names no file.
        option: How the output is given.
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


def opened(path: str) -> Recording:
    """
    Open a recording; say on standard error if it breaks off.

    Raises:
        FileError: It cannot be read, or is no recording.
    """
    # Most commands need no recording.
    from vllm_watch.analysis.replay.recording import Recording  # noqa: PLC0415

    recording = Recording(Path(path))
    if recording.broken_off is not None:
        say(f"{path}: {recording.broken_off}")
    return recording
