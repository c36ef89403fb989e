# SPDX-License-Identifier: Apache-2.0
"""The command line of ``vllm-watch grafana``."""

from __future__ import annotations

import sys
import time

from collections.abc import Iterable
from contextlib import closing

import click

from vllm_watch.analysis.loadtest.region import path
from vllm_watch.cli.commands.options import as_one, file_option, plain_format_option
from vllm_watch.cli.grafana import push as dashboards
from vllm_watch.cli.grafana.connection import DEFAULT_URL, STANDARD_INPUT, Connection, connect
from vllm_watch.cli.grafana.regions import mark_region, region_of_options
from vllm_watch.daemon.config.moments import EXAMPLES, parse_time_range
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import PlainFormat, ReportLine, print_report


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
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def push(
    target: Connection,
    form: PlainFormat,
    folder: str,
    language: dashboards.Language,
    datasource: str | None,
    force: bool,
    dry_run: bool,
) -> None:
    """
    Put the dashboards into Grafana.

    A dashboard that exists and is equal is not touched; another one of ours is overwritten, and stays in its history.
    """
    options = dashboards.PushOptions(folder, datasource, force, dry_run)
    with closing(connect(target)) as server:
        _report(dashboards.push(server, dashboards.packaged(language), options), form)


@command.command()
@connection
@plain_format_option
@click.option("--force", is_flag=True, help="Delete also what has our uid and lacks our tag.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(
    target: Connection,
    form: PlainFormat,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """
    Delete the dashboards that push created, and their folder if nothing else is in it.

    Only what has our uid and our tag is deleted.
    """
    if target.token_file == STANDARD_INPUT and not (yes or dry_run):
        raise UsageError("--token-file - takes the standard input that the question would be answered on: give --yes")

    def confirm(count: int) -> None:
        if not yes:
            click.confirm(f"Delete {count} dashboard{'s' if count > 1 else ''}?", abort=True, err=True)

    with closing(connect(target)) as server:
        _report(dashboards.delete(server, dashboards.packaged("en"), confirm, force=force, dry_run=dry_run), form)


@command.command()
@connection
@plain_format_option
@click.option("--from", "start", required=True, metavar="TIME", help=f"When the test began: {EXAMPLES}.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="When it ended.")
@click.option("--text", required=True, help="What was tested, or what came out of it; one line.")
@click.option("--server", metavar="NAME", help="The server's name in vllm-watch.")
@click.option(
    "--run", metavar="ID", help="Id of the run: a second mark replaces the first [default: server and start]."
)
@click.option("--tag", "tags", multiple=True, help="A further tag; may be given several times.")
def mark(
    target: Connection,
    form: PlainFormat,
    start: str,
    end: str,
    text: str,
    server: str | None,
    run: str | None,
    tags: tuple[str, ...],
) -> None:
    """Show the time of a load test on all dashboards, as a region with a link to what came out of it."""
    region = region_of_options(parse_time_range(start, end, time.time()), text, server, run, tags)
    with closing(connect(target)) as at:
        outcome, shown_at = mark_region(at, region), f"{at.url}{path(region)}"
        facts = {"run": region.run, "url": shown_at, "result": outcome}
        _report([ReportLine(f"{outcome}: run {region.run} ({shown_at})", facts=facts)], form)


def _report(lines: Iterable[ReportLine], form: PlainFormat) -> None:
    """Print a report; leave with 1 if something was not done."""
    sys.exit(1 if print_report(lines, form) else 0)
