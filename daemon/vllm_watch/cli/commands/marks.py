# SPDX-License-Identifier: Apache-2.0
"""``report --mark`` and ``compare --mark``: the runs as regions on Grafana's dashboards. What fails is a warning."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click

from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.analysis.loadtest.region import region_of
from vllm_watch.cli.commands.options import as_one, file_option, say
from vllm_watch.cli.grafana.connection import DEFAULT_URL, Connection, connect
from vllm_watch.cli.grafana.regions import mark_region
from vllm_watch.daemon.support.errors import UsageError, VllmWatchError


class MarkOptions(NamedTuple):
    """The values of ``--mark``, ``--grafana-url`` and ``--grafana-token-file``."""

    mark: bool
    grafana_url: str
    grafana_token_file: str | None


mark_options = as_one(
    "marks",
    MarkOptions,
    click.option(
        "--mark", is_flag=True, help="Show the runs as regions on Grafana's dashboards; if that fails, only say so."
    ),
    click.option(
        "--grafana-url",
        default=DEFAULT_URL,
        show_default=True,
        envvar="GRAFANA_URL",
        show_envvar=True,
        metavar="URL",
        help="Grafana's address, for --mark.",
    ),
    file_option(
        "--grafana-token-file",
        envvar="GRAFANA_TOKEN_FILE",
        show_envvar=True,
        help="Holds a service account's token (role Editor), for --mark.",
    ),
)


def marking(options: MarkOptions) -> Connection | None:
    """Return where runs are marked, if the options of the command line want that."""
    if not options.mark:
        return None
    if options.grafana_token_file is None:
        raise UsageError("--mark requires --grafana-token-file FILE")
    return Connection(options.grafana_url, options.grafana_token_file)


def mark_runs(runs: Iterable[Run], output: str | None, where: Connection | None) -> None:
    """
    Show runs as regions, which name the file of the report; say on standard error what became of each.

    Without a Grafana nothing is done.
    """
    if where is None:
        return
    file = Path(output).name if output else None
    try:
        with closing(connect(where, options="--grafana-")) as grafana:
            for run in runs:
                region = region_of(run, file)
                if region is None:
                    say(f"warning: {run.name} was not marked: when it ran is not known")
                else:
                    say(f"{mark_region(grafana, region)}: run {region.run}")
    except VllmWatchError as error:
        say(f"warning: not marked in Grafana: {error}")
