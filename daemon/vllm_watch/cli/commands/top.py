# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch top``: servers on a terminal, from a daemon, from their own logs and /metrics, or from a recording."""

from __future__ import annotations

import os
import shutil
import sys

from contextlib import closing

import click
import msgspec

from vllm_watch.cli.commands.top_sources import SourceOptions, reader_of, source_options
from vllm_watch.cli.terminal.abilities import THEME_NAMES, ThemeName, has_unicode, theme_of_terminal
from vllm_watch.cli.terminal.cells import ASCII, UNICODE, Cells
from vllm_watch.cli.terminal.frames import Frame
from vllm_watch.cli.terminal.heading import Moment, once_screen
from vllm_watch.cli.terminal.reading_thread import ReadingThread, read_settled
from vllm_watch.daemon.support.choices import PLAIN_FORMATS, PlainFormat
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DaemonError, UsageError
from vllm_watch.daemon.support.logging_setup import drop_log
from vllm_watch.daemon.support.printable import ascii_json
from vllm_watch.daemon.support.standard_streams import write_output


SETTLE_SECONDS = 30.0
"""How long `--once` waits for the first whole reading: rates are there after ten seconds at any usual interval."""

DELAY = 2.0
"""Seconds between two readings, unless others are given."""

RECORDING_DELAY = 0.5
"""The same of a recording: in two seconds ten times as many would pass there."""

NARROWEST = 40
"""The fewest columns of what `--once` prints: it has those of the terminal or of COLUMNS, else 80."""

_OF_THE_EXTRA = frozenset({"textual", "rich"})
_MISSING = "{} is not installed: in the sources, pip install '.[top]'; with --once a screen is printed without it"
_NO_TERMINAL = "standard input, output and error have to be a terminal: use --once to print one screen"
_DUMB_TERMINAL = "the terminal cannot be drawn on (TERM is dumb): use --once to print one screen"


@click.command("top")
@source_options
@click.option(
    "-d",
    "--delay",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help=f"Time between two readings [default: {DELAY:g}; of a recording {RECORDING_DELAY:g}].",
)
@click.option("--ascii", "is_ascii", is_flag=True, help="Write ASCII only, as where the locale is not UTF-8.")
@click.option("--no-color", is_flag=True, help="Use no colours, as with NO_COLOR in the environment.")
@click.option("--theme", type=click.Choice(THEME_NAMES), help="Of the terminal [default: by COLORFGBG].")
@click.option("--once", is_flag=True, help="Print one screen as text and exit; this does not need textual.")
@click.option("--format", "form", type=click.Choice(PLAIN_FORMATS), help="Of what --once prints [default: text].")
def command(
    delay: float | None,
    is_ascii: bool,
    no_color: bool,
    theme: ThemeName | None,
    once: bool,
    form: PlainFormat | None,
    **source: str,
) -> None:
    """
    Show servers on this terminal: their states and numbers.

    It also says what is wrong, and what happened in the last hour.
    Without --url, --config, --log, --metrics and --recording it shows what the vllm-watch on 127.0.0.1:9468 watches; if
    none answers there, the vLLM servers that run on this machine. It needs no running vllm-watch, listens on no port,
    writes no file and sends no probe. In it ? lists the keys, and q quits.
    """
    if form is not None and not once:
        raise UsageError("--format requires --once")
    options = SourceOptions(**source)  # type: ignore[arg-type]  # click has their types.
    drop_log()
    # By choice, or because the locale has nothing else that is needed.
    is_ascii = is_ascii or not has_unicode(os.environ)
    if once:
        sys.exit(int(print_once(options, form or "text", is_ascii=is_ascii)))
    has_color = not no_color and not os.environ.get("NO_COLOR")
    theme = theme or theme_of_terminal(os.environ)
    delay = delay or (DELAY if options.recording is None else RECORDING_DELAY)
    sys.exit(show(options, delay, theme, is_ascii=is_ascii, has_color=has_color))


def print_once(options: SourceOptions, form: PlainFormat, *, is_ascii: bool) -> bool:
    """
    Print what is known once all sources were read; return whether no source of any server can be read.

    Raises:
        VllmWatchError: The options are wrong, or nothing can be read.
    """
    clock = SystemClock()
    with closing(reader_of(options, is_once=True)) as reader:
        try:
            found = read_settled(reader, clock, SETTLE_SECONDS, options.server)
        except DaemonError as error:
            raise DaemonError(f"{reader.title}: {error}") from None
        moment = Moment(found.frame, clock.now(), reader.title, 0.0)
    if form == "json":
        sys.stdout.buffer.write(_as_json(found.body, found.frame))
    else:
        width = max(shutil.get_terminal_size().columns, NARROWEST)
        cells = Cells(ASCII if is_ascii else UNICODE)
        write_output(once_screen(moment, width, cells))
    servers = found.frame.servers
    return bool(servers) and not any(source.up for server in servers for source in server.document.sources)


def show(options: SourceOptions, delay: float, theme: ThemeName, *, is_ascii: bool, has_color: bool) -> int:
    """
    Show what is read until somebody quits; return the exit status.

    Raises:
        VllmWatchError: The options are wrong, textual is missing, or there is no terminal.
    """
    thread = ReadingThread(reader_of(options, is_once=False), SystemClock(), delay, options.server)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # textual draws on the last.
        raise UsageError(_NO_TERMINAL)
    if os.environ.get("TERM") == "dumb":  # Such as a shell within an editor: the codes of a screen would be printed.
        raise UsageError(_DUMB_TERMINAL)
    thread.start()
    try:
        try:
            from vllm_watch.cli.terminal.app import run_app  # noqa: PLC0415  # While the first reading is under way.
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _OF_THE_EXTRA:
                raise
            raise UsageError(_MISSING.format(package)) from error
        return run_app(thread, theme, is_ascii=is_ascii, has_color=has_color)
    finally:
        thread.stop()


def _as_json(body: bytes, frame: Frame) -> bytes:
    """Return the document, with the servers in the order of the frame and without those that it leaves out."""
    document = msgspec.json.decode(body)
    by_name = {server["name"]: server for server in document["servers"]}
    document["servers"] = [by_name[server.name] for server in frame.servers]
    return ascii_json(msgspec.json.format(msgspec.json.encode(document), indent=2)) + b"\n"
