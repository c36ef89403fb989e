# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch top``: servers on a terminal, from a daemon, from their own logs and /metrics, or from a recording."""

from __future__ import annotations

import base64
import os
import shutil
import sys

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from vllm_watch.cli.commands.options import (
    PLAYBACK_SPEED,
    as_one,
    config_option,
    file_option,
    log_option,
    metrics_option,
    opened,
)
from vllm_watch.cli.terminal.cells import THEME_NAMES, ThemeName
from vllm_watch.cli.terminal.frames import Frame
from vllm_watch.cli.terminal.heading import Moment, once_screen
from vllm_watch.cli.terminal.reading_thread import (
    ANSWER_SECONDS,
    DaemonReader,
    DocumentReader,
    ReadingThread,
    read_settled,
)
from vllm_watch.daemon.config.texts import DEFAULT_LISTEN, parse_url
from vllm_watch.daemon.support.clock import ScaledClock, SystemClock
from vllm_watch.daemon.support.errors import DaemonError, FileError, UsageError
from vllm_watch.daemon.support.logging_setup import drop_log
from vllm_watch.daemon.support.printable import PLAIN_FORMATS, PlainFormat, ascii_json
from vllm_watch.daemon.support.secret_files import MAX_TOKEN, read_token
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


class SourceOptions(NamedTuple):
    """The values of the options that say what is shown."""

    url: str | None = None
    username: str | None = None
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    config_file: str | None = None
    logs: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    recording: str | None = None
    speed: float | None = None
    server: str | None = None


source_options = as_one(
    "source",
    SourceOptions,
    click.option("--url", metavar="URL", help="A running vllm-watch, such as http://127.0.0.1:9468."),
    click.option("--username", metavar="NAME", help="A user of that vllm-watch, if it asks for one."),
    file_option("--password-file", help="The file with that user's password."),
    file_option("--bearer-token-file", help="The file with a token for what is in front of it."),
    file_option("--ca-file", help="The authorities to trust for its certificate, in PEM format."),
    config_option,
    log_option,
    metrics_option,
    file_option("--recording", help="Recorded servers, again and again."),
    click.option(
        "--speed",
        type=click.FloatRange(0.1, 100),
        help=f"Of a recording; 1 is real time [default: {PLAYBACK_SPEED:g}].",
    ),
    click.option("--server", metavar="NAME", help="Show only this server."),
)


@click.command("top")
@source_options
@click.option(
    "-d",
    "--delay",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help=f"Time between two readings [default: {DELAY:g}; of a recording {RECORDING_DELAY:g}].",
)
@click.option("--no-color", is_flag=True, help="Use no colours, as with NO_COLOR in the environment.")
@click.option("--theme", type=click.Choice(THEME_NAMES), default="dark", show_default=True, help="Of the screen.")
@click.option("--once", is_flag=True, help="Print one screen as text and exit; this does not need textual.")
@click.option("--format", "form", type=click.Choice(PLAIN_FORMATS), help="Of what --once prints [default: text].")
def command(
    delay: float | None,
    no_color: bool,
    theme: ThemeName,
    once: bool,
    form: PlainFormat | None,
    source: SourceOptions,
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
    drop_log()
    if once:
        sys.exit(int(print_once(source, form or "text")))
    has_color = not no_color and not os.environ.get("NO_COLOR")
    delay = delay or (DELAY if source.recording is None else RECORDING_DELAY)
    sys.exit(show(source, delay, theme, has_color=has_color))


def print_once(options: SourceOptions, form: PlainFormat) -> bool:
    """Print what is known once all sources were read; return whether no source of any server can be read."""
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
        write_output(once_screen(moment, width))
    servers = found.frame.servers
    return bool(servers) and not any(source.up for server in servers for source in server.document.sources)


def show(options: SourceOptions, delay: float, theme: ThemeName, *, has_color: bool) -> int:
    """Show what is read until somebody quits; return the exit status."""
    thread = ReadingThread(reader_of(options, is_once=False), SystemClock(), delay, options.server)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # textual draws on the last.
        raise UsageError(_NO_TERMINAL)
    thread.start()
    try:
        try:
            from vllm_watch.cli.terminal.app import run_app  # noqa: PLC0415  # While the first reading is under way.
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _OF_THE_EXTRA:
                raise
            raise UsageError(_MISSING.format(package)) from error
        return run_app(thread, theme, has_color=has_color)
    finally:
        thread.stop()


def _as_json(body: bytes, frame: Frame) -> bytes:
    """Return the document, with the servers in the order of the frame and without those that it leaves out."""
    document = msgspec.json.decode(body)
    by_name = {server["name"]: server for server in document["servers"]}
    document["servers"] = [by_name[server.name] for server in frame.servers]
    return ascii_json(msgspec.json.format(msgspec.json.encode(document), indent=2)) + b"\n"


def reader_of(options: SourceOptions, *, is_once: bool) -> DocumentReader:
    """
    Return what reads the servers that the options name; nothing is read yet but files.

    Args:
        options: The options.
        is_once: Whether it is read only once: of a recording that is its end.
    """
    is_local = bool(options.config_file or options.logs or options.metrics)
    named = {"--url": options.url, "--recording": options.recording, "--config, --log and --metrics": is_local}
    chosen = [name for name, value in named.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} cannot be combined with {chosen[1]}")
    _check_companions(options)
    if options.url is not None:
        return _daemon(options, options.url)
    if options.recording is not None:
        return _replay(options, options.recording, is_once=is_once)
    return _local(options) if is_local else _running_daemon(options) or _local(options)


def _check_companions(options: SourceOptions) -> None:
    of_daemon = ("username", "password_file", "bearer_token_file", "ca_file")
    alone = [name for name in of_daemon if getattr(options, name) is not None] if options.url is None else []
    if alone:
        raise UsageError(f"--{alone[0].replace('_', '-')} requires --url URL")
    if options.speed is not None and options.recording is None:
        raise UsageError("--speed requires --recording FILE")
    if (options.username is None) != (options.password_file is None):
        raise UsageError("--username and --password-file require each other")
    if options.username is not None and options.bearer_token_file is not None:
        raise UsageError("--username cannot be combined with --bearer-token-file")


def _daemon(options: SourceOptions, url: str) -> DocumentReader:
    # Only this one loads requests.
    from vllm_watch.daemon.sources.daemon_client import DaemonClient, DaemonTarget  # noqa: PLC0415
    from vllm_watch.daemon.sources.http_reader import HttpLimits  # noqa: PLC0415

    try:
        parsed = parse_url(url, path="", instead="--username and --password-file")
    except ValueError as error:
        raise UsageError(f"--url: {error}") from None
    if options.ca_file is not None and not Path(options.ca_file).is_file():
        raise UsageError(f"--ca-file: {options.ca_file}: no such file")
    target = DaemonTarget(parsed, options.ca_file, _authorization(options))
    return DaemonReader(target.url, DaemonClient(target, HttpLimits(timeout=ANSWER_SECONDS)))


def _running_daemon(options: SourceOptions) -> DocumentReader | None:
    """Return what reads the vllm-watch at the default address, `None` if none answers there."""
    reader = _daemon(options, f"http://{DEFAULT_LISTEN}")
    try:
        reader.read(())
    except DaemonError:
        reader.close()
        return None
    return reader


def _authorization(options: SourceOptions) -> str | None:
    if options.bearer_token_file is not None:
        token = read_token(options.bearer_token_file)
        if token is None:
            raise FileError(f"{options.bearer_token_file}: cannot be read, or has no token")
        return f"Bearer {token}"
    if options.username is None or options.password_file is None:
        return None
    if ":" in options.username:
        raise UsageError("--username: a user name has no colon")
    credentials = f"{options.username}:{_password(options.password_file)}"
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


def _password(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_TOKEN).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    password = text.partition("\n")[0].rstrip("\r")
    if not password:
        raise FileError(f"{path}: has no password in its first line")
    return password


def _replay(options: SourceOptions, path: str, *, is_once: bool) -> DocumentReader:
    from vllm_watch.analysis.replay.recording import server_name  # noqa: PLC0415  # As below: each way loads only what it needs.
    from vllm_watch.cli.terminal.replay_reader import ReplayReader  # noqa: PLC0415

    speed = options.speed or PLAYBACK_SPEED
    recording = opened(path)
    servers = recording.servers if options.server is None else (server_name(recording, options.server),)
    title = f"recording {recording.path.name}"
    if is_once:
        return ReplayReader(recording, servers, ScaledClock(speed), title, is_end_only=True)
    return ReplayReader(recording, servers, ScaledClock(speed), f"{title}, {speed:g} times as fast")


def _local(options: SourceOptions) -> DocumentReader:
    from vllm_watch.cli.commands.watched import Selection, configured_now, discovered  # noqa: PLC0415
    from vllm_watch.cli.terminal.local_reader import LocalReader  # noqa: PLC0415

    selection = Selection(options.config_file, options.logs, options.metrics)
    if selection.is_empty:
        follower = discovered(selection)
        return LocalReader("servers of this machine", follower.poll, SystemClock(), follower)
    config = configured_now(selection)
    title = options.config_file or ", ".join([*options.logs, *options.metrics])
    return LocalReader(title, lambda: config, SystemClock())
