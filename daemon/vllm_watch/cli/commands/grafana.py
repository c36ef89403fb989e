# SPDX-License-Identifier: Apache-2.0
"""The command line of ``vllm-watch grafana``."""

from __future__ import annotations

import sys
import time

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from vllm_watch.analysis.loadtest.region import Region, path, region_of
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.cli.commands.options import as_one, file_option, plain_format_option, progress_bar
from vllm_watch.cli.commands.source_options import given_sources, sources_argument
from vllm_watch.cli.grafana import push as dashboards
from vllm_watch.cli.grafana.connection import DEFAULT_URL, Connection, connect
from vllm_watch.cli.grafana.regions import check_tags, mark_region, region_of_options
from vllm_watch.daemon.config.moments import EXAMPLES, parse_time_range
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import PlainFormat, ReportLine, print_report


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana


connection = as_one(
    "target",
    Connection,
    click.option(
        "--url",
        default=DEFAULT_URL,
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
    Delete the dashboards that push created, and their folder if nothing else is in it.

    Only what has our uid and our tag is deleted.
    """
    with closing(connect(target)) as server:
        _report(dashboards.delete(server, dashboards.packaged("en")), form)


@command.command()
@connection
@plain_format_option
@sources_argument
@click.option("--from", "start", metavar="TIME", help=f"When the test began: {EXAMPLES}.")
@click.option("--to", "end", metavar="TIME", help="When it ended [default: now].")
@click.option("--text", help="What was tested, or what came out of it; one line.")
@click.option("--server", metavar="NAME", help="The server's name in vllm-watch.")
@click.option(
    "--run", metavar="ID", help="Id of the run: a second mark replaces the first [default: server and start]."
)
@click.option("--tag", "tags", multiple=True, help="A further tag; may be given several times.")
def mark(
    target: Connection,
    form: PlainFormat,
    sources: tuple[str, ...],
    start: str | None,
    end: str | None,
    text: str | None,
    server: str | None,
    run: str | None,
    tags: tuple[str, ...],
) -> None:
    """
    Show the time of load tests on all dashboards, as regions with a link to what came out of them.

    A SOURCE is as in report: each of its runs is marked, with its result as the text. Without one, --from and --text
    say what is marked.
    """
    if sources:
        check_tags(tags)
        if any(value is not None for value in (start, end, text, server, run)):
            raise UsageError("--from, --to, --text, --server and --run are for a mark without a SOURCE")
        with progress_bar("mark") as progress:
            runs = read_report(given_sources(sources), progress=progress).runs
        marked = [(each.name, region_of(each, tags)) for each in runs]
    else:
        if start is None or text is None:
            raise UsageError("give a SOURCE, or --from and --text")
        times = parse_time_range(start, end or "now", time.time())
        marked = [("", region_of_options(times, text, server, run, tags))]
    with closing(connect(target)) as at:
        _report(_marked(at, marked), form)


def _marked(grafana: Grafana, regions: Sequence[tuple[str, Region | None]]) -> Iterator[ReportLine]:
    """Mark what has a time; yield what became of each, by its name."""
    for name, region in regions:
        if region is None:
            yield ReportLine(f"not marked: {name}: when it ran is not known", is_wrong=True)
            continue
        outcome, shown_at = mark_region(grafana, region), f"{grafana.url}{path(region)}"
        facts = {"run": region.run, "url": shown_at, "result": outcome}
        yield ReportLine(f"{outcome}: run {region.run} ({shown_at})", facts=facts)


def _report(lines: Iterable[ReportLine], form: PlainFormat) -> None:
    """Print a report; leave with 1 if something was not done."""
    sys.exit(1 if print_report(lines, form) else 0)
