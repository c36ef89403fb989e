# SPDX-License-Identifier: Apache-2.0
"""The command line of ``vllm-watch grafana``."""

from __future__ import annotations

import sys

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import click

from vllm_watch.analysis.loadtest.region import MAX_RUN, Region, annotation, path, region_of, run_tag
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.cli.commands.options import as_one, file_option, plain_format_option, progress_bar
from vllm_watch.cli.commands.source_options import given_sources, sources_argument
from vllm_watch.cli.grafana import push as dashboards
from vllm_watch.daemon.catalog.codes import TAG
from vllm_watch.daemon.config.texts import parse_url, quote
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import PlainFormat, ReportLine, print_report
from vllm_watch.daemon.support.secret_files import MAX_TOKEN, parse_token


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana


class Connection(NamedTuple):
    """The values of the options that say which Grafana; `timeout` is the seconds to wait for each part of an answer."""

    url: str
    token_file: str
    ca_file: str | None = None
    timeout: float = 10.0


connection = as_one(
    "target",
    Connection,
    click.option(
        "--url",
        default="http://localhost:3000",
        show_default=True,
        envvar="GRAFANA_URL",
        show_envvar=True,
        help="Grafana's address, with its path if it is below one.",
    ),
    file_option(
        "--token-file",
        required=True,
        envvar="GRAFANA_TOKEN_FILE",
        show_envvar=True,
        help="Holds a service account's token (role Editor); - is standard input.",
    ),
    file_option("--ca-file", help="Certificates of authorities, instead of the system's."),
    click.option(
        "--timeout",
        type=click.FloatRange(0.1, 600),
        default=10.0,
        show_default=True,
        help="Seconds to wait for each part of an answer.",
    ),
)
"""Gives a command the options that say which Grafana."""


@click.group("grafana")
def command() -> None:
    """Put dashboards into Grafana, remove them, or mark load tests."""


@command.command()
@connection
@plain_format_option
@click.option("--folder", default="vLLM", show_default=True, metavar="TITLE", help="Title of the folder if it is new.")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Their language.")
@click.option("--datasource", metavar="NAME|UID", help="Prometheus data source that is preselected.")
@click.option("--force", is_flag=True, help="Overwrite also what has our uid and lacks our tag.")
def push(
    target: Connection,
    form: PlainFormat,
    folder: str,
    language: dashboards.Language,
    datasource: str | None,
    force: bool,
) -> None:
    """
    Put the dashboards into Grafana.

    A dashboard that exists and is equal is not touched; another one of ours is overwritten, and stays in its history.
    """
    with closing(connect(target)) as server:
        models = dashboards.packaged(language)
        _report(dashboards.push(server, models, folder, datasource, force=force), form)


@command.command()
@connection
@plain_format_option
def delete(target: Connection, form: PlainFormat) -> None:
    """
    Delete the dashboards that push created; their folder stays.

    Only what has our uid and our tag is deleted.
    """
    with closing(connect(target)) as server:
        _report(dashboards.delete(server, dashboards.packaged("en")), form)


@command.command()
@connection
@plain_format_option
@sources_argument
@click.option("--tag", "tags", multiple=True, help="A further tag; may be given several times.")
def mark(target: Connection, form: PlainFormat, sources: tuple[str, ...], tags: tuple[str, ...]) -> None:
    """
    Show the time of load tests on all dashboards, as regions with a link to what came out of them.

    A SOURCE is as in report: each of its runs is marked, with its result as the text.
    """
    for tag in tags:
        if not tag.strip() or not tag.isprintable() or len(tag) > MAX_RUN:
            raise UsageError(f"--tag: expected 1 to {MAX_RUN} characters without line breaks, got {quote(tag)}")
    with progress_bar("mark") as progress:
        runs = read_report(given_sources(sources), progress=progress).runs
    with closing(connect(target)) as server:
        _report(_marked(server, [(run.name, region_of(run, tags)) for run in runs]), form)


def _marked(grafana: Grafana, regions: Sequence[tuple[str, Region | None]]) -> Iterator[ReportLine]:
    """Mark what has a time; yield what became of each, by its name."""
    for name, region in regions:
        if region is None:
            yield ReportLine(f"not marked: {name}: when it ran is not known", is_wrong=True)
            continue
        outcome, shown_at = mark_region(grafana, region), f"{grafana.url}{path(region)}"
        facts = {"run": region.run, "url": shown_at, "result": outcome}
        yield ReportLine(f"{outcome}: run {region.run} ({shown_at})", facts=facts)


def mark_region(grafana: Grafana, region: Region) -> Literal["marked", "replaced", "unchanged"]:
    """
    Write a region into Grafana, in place of those of the same run.

    The new one is written before the old ones are deleted: whatever fails in between, one is there, and the next time
    sets it right.
    """
    wanted = annotation(region, urlsplit(grafana.url).path)
    present = grafana.annotations((TAG, run_tag(region.run)))
    equal = [number for number, found in present.items() if found.has_same(wanted)]
    if not equal:
        grafana.annotate(wanted)
    left = [number for number in present if number not in equal[:1]]
    for number in left:
        grafana.delete_annotation(number)
    return "replaced" if left else "unchanged" if equal else "marked"


def _report(lines: Iterable[ReportLine], form: PlainFormat) -> None:
    sys.exit(1 if print_report(lines, form) else 0)


def connect(target: Connection) -> Grafana:
    """Return the Grafana of a connection; it is asked nothing yet."""
    url = _checked(target.url)
    token = _token(target.token_file)
    if target.ca_file is not None and not Path(target.ca_file).is_file():
        raise UsageError(f"--ca-file: {target.ca_file}: no such file")
    try:
        from vllm_watch.cli.grafana.client import Grafana  # noqa: PLC0415 - An extra, which may be missing.
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: in the sources, pip install '.[grafana]'") from error
    return Grafana(url, token, target.ca_file, target.timeout)


def _checked(url: str) -> str:
    try:
        parsed = parse_url(url, path="", instead="--token-file")
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    parts = urlsplit(parsed)
    if parts.query or parts.fragment:
        raise UsageError("--url: expected Grafana's own address, with nothing after its path")
    return parsed.rstrip("/")


def _token(path: str) -> str:
    try:
        with click.open_file(path, "rb") as file:
            token = parse_token(file.read(MAX_TOKEN))
    except OSError as error:
        raise UsageError(f"--token-file: {path}: cannot be read: {error.strerror}") from error
    if token is None or " " in token:
        raise UsageError(f"--token-file: {path}: expected one token and nothing else")
    return token
