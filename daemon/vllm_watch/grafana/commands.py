# SPDX-License-Identifier: Apache-2.0
"""The command line of ``vllm-watch grafana``."""

from __future__ import annotations

import sys

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from vllm_watch.config.texts import parse_url
from vllm_watch.support.errors import UsageError
from vllm_watch.support.tokens import MAX_TOKEN, parse_token


if TYPE_CHECKING:
    from vllm_watch.grafana.client import Grafana
    from vllm_watch.grafana.model import Dashboard
    from vllm_watch.grafana.packaged import Language
    from vllm_watch.support.report import ReportLine


_STANDARD_INPUT = "-"


def _connection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which Grafana."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(0.1, 600),
            default=10.0,
            show_default=True,
            help="Seconds for one whole request.",
        ),
        click.option("--ca-file", metavar="FILE", help="Certificates of authorities, instead of the system's."),
        click.option(
            "--token-file",
            metavar="FILE",
            required=True,
            envvar="GRAFANA_TOKEN_FILE",
            show_envvar=True,
            help="Holds a service account's token (role Editor); - is standard input.",
        ),
        click.option(
            "--url",
            default="http://localhost:3000",
            show_default=True,
            envvar="GRAFANA_URL",
            show_envvar=True,
            help="Grafana's address, with its path if it is below one.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def grafana() -> None:
    """Put the dashboards into a running Grafana, or remove them."""


@grafana.command()
@_connection
@click.option("--folder", default="vLLM", show_default=True, metavar="TITLE", help="Title of the folder if it is new.")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Their language.")
@click.option("--datasource", metavar="NAME|UID", help="Prometheus data source that is preselected.")
@click.option("--force", is_flag=True, help="Overwrite dashboards that somebody else created or changed.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--diff-lines",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="Lines of JSON to show for each dashboard that differs.",
)
def push(
    url: str,
    token_file: str,
    ca_file: str | None,
    timeout: float,
    folder: str,
    language: Language,
    datasource: str | None,
    force: bool,
    dry_run: bool,
    diff_lines: int,
) -> None:
    """
    Put the dashboards into Grafana.

    A dashboard that exists and is equal is not touched; one that somebody changed in Grafana is not overwritten.
    """
    from vllm_watch.grafana.packaged import packaged
    from vllm_watch.grafana.push import PushOptions
    from vllm_watch.grafana.push import push as push_all

    options = PushOptions(folder, datasource, force, dry_run, diff_lines)
    with closing(_connect(url, token_file, ca_file, timeout)) as server:
        _report(push_all(server, packaged(language), options, _shown))


@grafana.command()
@_connection
@click.option("--force", is_flag=True, help="Delete also what somebody changed since it was pushed.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(
    url: str, token_file: str, ca_file: str | None, timeout: float, force: bool, dry_run: bool, yes: bool
) -> None:
    """
    Delete the dashboards that push created, and their folder if nothing else is in it.

    Only what push created is deleted.
    """
    from vllm_watch.grafana.delete import DeleteOptions
    from vllm_watch.grafana.delete import delete as delete_all
    from vllm_watch.grafana.packaged import packaged

    if token_file == _STANDARD_INPUT and not (yes or dry_run):
        raise UsageError("--token-file - takes the standard input that the question would be answered on: give --yes")

    def confirm(count: int) -> None:
        if not yes:
            click.confirm(f"Delete {count} dashboard{'s' if count > 1 else ''}?", abort=True, err=True)

    options = DeleteOptions(force, dry_run, confirm)
    with closing(_connect(url, token_file, ca_file, timeout)) as server:
        _report(delete_all(server, packaged("en"), options, _shown))


def _report(lines: Iterable[ReportLine]) -> None:
    """Print a report as it comes; leave with 1 if something was not done."""
    from vllm_watch.support.report import print_report

    sys.exit(1 if print_report(lines) else 0)


def _connect(url: str, token_file: str, ca_file: str | None, timeout: float) -> Grafana:
    url = _checked(url)
    token = _token(token_file)
    if ca_file is not None and not Path(ca_file).is_file():
        raise UsageError(f"--ca-file: {ca_file}: no such file")
    try:
        from vllm_watch.grafana.client import Grafana, Target
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'vllm-watch[grafana]'") from error
    return Grafana(Target(url, token, ca_file, timeout))


def _checked(url: str) -> str:
    """Return the URL without a slash at its end."""
    try:
        parsed = parse_url(url, path="", instead="--token-file")
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    parts = urlsplit(parsed)
    if parts.query or parts.fragment:
        raise UsageError("--url: expected Grafana's own address, with nothing after its path")
    return parsed.rstrip("/")


def _token(path: str) -> str:
    """Return the token in a file, or in the standard input."""
    try:
        with click.open_file(path, "rb") as file:
            token = parse_token(file.read(MAX_TOKEN))
    except OSError as error:
        raise UsageError(f"--token-file: {path}: cannot be read: {error.strerror}") from error
    if token is None or " " in token:
        raise UsageError(f"--token-file: {path}: expected one token and nothing else")
    return token


def _shown(dashboards: Sequence[Dashboard]) -> Iterator[Dashboard]:
    """Go through dashboards, with a bar on a terminal."""
    with click.progressbar(dashboards, label="looking", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield from bar
