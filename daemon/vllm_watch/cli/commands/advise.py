# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch advise``: which flags to change, and why."""

from __future__ import annotations

import click

from vllm_watch.analysis.advice.advisor import advise
from vllm_watch.analysis.loadtest.daemon_source import DaemonQuery, watch_daemon
from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Objective
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, Sources, read_sources
from vllm_watch.analysis.loadtest.source_names import Source
from vllm_watch.analysis.rendering.advice import advice_document
from vllm_watch.analysis.rendering.json_output import advice_json
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.cli.commands.options import (
    ReportFormat,
    check_output,
    duration_option,
    output_option,
    progress_bar,
    report_format_option,
)
from vllm_watch.cli.commands.output_formats import (
    explain_option,
    language_option,
    rendered,
    report_format,
    write_answer,
)
from vllm_watch.cli.commands.source_options import given_sources, objective_option, sources_argument
from vllm_watch.daemon.config.texts import parse_url
from vllm_watch.daemon.sources.daemon_client import DaemonTarget
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import FileError, UsageError


_IF_UNAUTHORIZED = "read the Prometheus that scrapes it instead: prom:URL/SERVER@FROM/TO"
_MINUTES = 3.0
_FILE_SHARE = 0.5


@click.command("advise")
@sources_argument
@output_option
@report_format_option
@language_option
@click.option("--verbose", is_flag=True, help="Also say of each rule without advice why it has none.")
@objective_option
@click.option("--url", "daemon", metavar="URL", help="Watch a running vllm-watch, such as http://127.0.0.1:9468.")
@duration_option(
    "--for",
    "watched",
    help=f"How long to watch it, with --url [default: {_MINUTES:g}m].",
)
@explain_option("advice", "each rule: what it needs, when it speaks, what it expects and what it risks")
def command(
    sources: tuple[str, ...],
    output: str | None,
    form: ReportFormat | None,
    verbose: bool,
    objective: Objective | None,
    daemon: str | None,
    watched: float | None,
) -> None:
    """
    Say which flags of vLLM to change, with the evidence.

    It also says the risk, and has the commands that check it.
    A SOURCE is as in report, with a benchmark's result beside what the server did; or --url watches a running
    vllm-watch. Sources of one configuration count together, and those of another one are compared with them. Two
    minutes in which something is wrong are needed, and there is no advice where they are not clear.
    """
    check_output(output, sources)
    query = _daemon_query(daemon, watched)
    given = given_sources(sources) if sources or query is None else ()
    chosen = report_format(form, output)
    with progress_bar("advise") as progress:
        found = _read_sources(given, ReadOptions(objective), query, progress)
    report = join(found.clients, found.histories, objective)
    advised = advise(found.histories, report, objective)
    document = advice_document(advised, is_verbose=verbose)
    write_answer(advice_json(advised) if chosen == "json" else rendered(document, chosen, output), chosen, output)


def _read_sources(
    sources: tuple[Source, ...], options: ReadOptions, daemon: DaemonQuery | None, progress: Progress
) -> Sources:
    """Return what is in some sources and in a running vllm-watch: at least one server."""
    share = 1.0 if daemon is None else _FILE_SHARE if sources else 0.0
    found = read_sources(sources, options, lambda done: progress(share * done)) if share else Sources((), ())
    if daemon is not None:
        watched = watch_daemon(daemon, SystemClock(), lambda done: progress(share + (1 - share) * done))
        found = found._replace(histories=(*found.histories, *watched))
    if not found.histories:
        raise FileError(
            f"{', '.join(map(str, sources))}: a benchmark's result does not show what the server did: "
            "add its log or /metrics"
        )
    return found


def _daemon_query(url: str | None, watched: float | None) -> DaemonQuery | None:
    if url is None:
        if watched is not None:
            raise UsageError("--for requires --url URL")
        return None
    try:
        parsed = parse_url(url, path="", instead="prom:URL/SERVER@FROM/TO")
    except ValueError as error:
        raise UsageError(f"--url: {error}") from None
    return DaemonQuery(DaemonTarget(parsed, if_unauthorized=_IF_UNAUTHORIZED), watched or 60 * _MINUTES)
