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
from vllm_watch.cli.commands.options import several
from vllm_watch.cli.grafana.connection import DEFAULT_URL, connect
from vllm_watch.cli.grafana.regions import mark_region
from vllm_watch.daemon.support.choices import file_names
from vllm_watch.daemon.support.errors import UsageError, VllmWatchError
from vllm_watch.daemon.support.printable import printable


mark_options = several(
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
    click.option(
        "--grafana-token-file",
        envvar="GRAFANA_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        shell_complete=file_names,
        help="Holds a service account's token (role Editor), for --mark.",
    ),
)

_SECONDS = 10.0
"""For one request to Grafana."""


class Marking(NamedTuple):
    """Which Grafana the runs are marked in: its URL, and the file with its token."""

    url: str
    token_file: str


def marking(*, mark: bool, grafana_url: str, grafana_token_file: str | None) -> Marking | None:
    """
    Return where runs are marked, if the options of the command line want that.

    Raises:
        UsageError: It is wanted, and there is no token.
    """
    if not mark:
        return None
    if grafana_token_file is None:
        raise UsageError("--mark requires --grafana-token-file FILE")
    return Marking(grafana_url, grafana_token_file)


def mark_runs(runs: Iterable[Run], output: str | None, where: Marking | None) -> None:
    """
    Show runs as regions; say on standard error what became of each, and why one could not be shown.

    Args:
        runs: What was read.
        output: The file that the report was written to, which the regions name.
        where: Which Grafana, `None` for none.
    """
    if where is None:
        return
    file = Path(output).name if output else None
    try:
        with closing(connect(where.url, where.token_file, None, _SECONDS, options="--grafana-")) as grafana:
            for run in runs:
                region = region_of(run, file)
                if region is None:
                    _say(f"warning: {run.name} was not marked: when it ran is not known")
                else:
                    _say(f"{mark_region(grafana, region)}: run {region.run}")
    except VllmWatchError as error:
        _say(f"warning: not marked in Grafana: {error}")


def _say(text: str) -> None:
    click.echo(f"vllm-watch: {printable(text)}", err=True)
