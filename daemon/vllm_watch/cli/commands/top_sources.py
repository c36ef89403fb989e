# SPDX-License-Identifier: Apache-2.0
"""What `top` shows: the options that say it, and what reads it."""

from __future__ import annotations

import base64

from pathlib import Path
from typing import NamedTuple

import click

from vllm_watch.cli.commands.options import PLAYBACK_SPEED, config_option, log_option, metrics_option, several
from vllm_watch.cli.terminal.reading_thread import ANSWER_SECONDS, DaemonReader, DocumentReader
from vllm_watch.daemon.config.texts import DEFAULT_LISTEN, parse_url
from vllm_watch.daemon.support.choices import file_names
from vllm_watch.daemon.support.clock import ScaledClock, SystemClock
from vllm_watch.daemon.support.errors import DaemonError, FileError, UsageError
from vllm_watch.daemon.support.secret_files import MAX_TOKEN, read_token


source_options = several(
    click.option("--url", metavar="URL", help="A running vllm-watch, such as http://127.0.0.1:9468."),
    click.option("--username", metavar="NAME", help="A user of that vllm-watch, if it asks for one."),
    click.option(
        "--password-file", metavar="FILE", shell_complete=file_names, help="The file with that user's password."
    ),
    click.option(
        "--bearer-token-file",
        metavar="FILE",
        shell_complete=file_names,
        help="The file with a token for what is in front of it.",
    ),
    click.option(
        "--ca-file",
        metavar="FILE",
        shell_complete=file_names,
        help="The authorities to trust for its certificate, in PEM format.",
    ),
    config_option,
    log_option,
    metrics_option,
    click.option("--recording", metavar="FILE", shell_complete=file_names, help="Recorded servers, again and again."),
    click.option(
        "--speed",
        type=click.FloatRange(0.1, 100),
        help=f"Of a recording; 1 is real time [default: {PLAYBACK_SPEED:g}].",
    ),
    click.option("--server", metavar="NAME", help="Show only this server."),
)


class SourceOptions(NamedTuple):
    """The values of these options."""

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


def reader_of(options: SourceOptions, *, is_once: bool) -> DocumentReader:
    """
    Return what reads the servers that the options name; nothing is read yet but files.

    Args:
        options: The options.
        is_once: Whether it is read only once: of a recording that is its end.

    Raises:
        VllmWatchError: The options are wrong, or a file that they name.
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
    """Raise `UsageError` for an option without the one that it belongs to."""
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
    """Return the header that says who asks."""
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
    """Return the first line of a file."""
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
    from vllm_watch.analysis.replay.recording import server_name  # noqa: PLC0415
    from vllm_watch.cli.commands.recorded import opened  # noqa: PLC0415  # As below: each way loads only what it needs.
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
