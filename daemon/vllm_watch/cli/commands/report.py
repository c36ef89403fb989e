# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch report``: a load test in numbers and plots."""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from vllm_watch.analysis.loadtest.load_test import Report, parse_objective
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, read_report
from vllm_watch.analysis.rendering.capacity_blocks import NoCapacityError, capacity_yaml
from vllm_watch.analysis.rendering.json_output import report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text
from vllm_watch.analysis.replay.replay import Progress
from vllm_watch.cli.commands.marks import mark_options, mark_runs, marking
from vllm_watch.cli.commands.options import (
    check_output,
    cost_of,
    cost_option,
    objective_option,
    output_option,
    progress_bar,
    report_format_option,
    zone_option,
)
from vllm_watch.cli.commands.output_formats import report_format, text_width, write_answer
from vllm_watch.cli.commands.prometheus_options import (
    PrometheusOptions,
    prometheus_options,
    prometheus_query,
    range_options,
)
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.support.choices import ReportFormat, file_names
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.whole_file import write_whole


_RENDERERS: Mapping[ReportFormat, Callable[[Report], str]] = {
    "markdown": report_markdown,
    "json": report_json,
    "html": report_html,
}
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)", re.ASCII)


@click.command("report")
@click.argument("sources", nargs=-1, metavar="SOURCE...", shell_complete=file_names)
@output_option
@report_format_option
@click.option(
    "--save-capacity",
    "capacity_file",
    metavar="FILE",
    shell_complete=file_names,
    help="Also write how many tokens per second the server sustains, for the key `capacity` of the configuration.",
)
@objective_option
@cost_option
@zone_option
@mark_options
@prometheus_options
@range_options
def command(
    sources: tuple[str, ...],
    output: str | None,
    form: ReportFormat | None,
    capacity_file: str | None,
    objective: str | None,
    cost: str | None,
    zone: str | None,
    mark: bool,
    grafana_url: str,
    grafana_token_file: str | None,
    **prometheus: str | None,
) -> None:
    """
    Write a load test in numbers and plots.

    A SOURCE is a server's log (a rotated one by its own path), a recording, or what a benchmark wrote: the JSON of vllm
    bench serve, throughput or latency, or what it printed. A Prometheus is one more source. Sources of one test belong
    together: what the client measured, and what the server did meanwhile.
    """
    check_output(output, sources)
    check_output(capacity_file, sources, "--save-capacity")
    where = marking(mark=mark, grafana_url=grafana_url, grafana_token_file=grafana_token_file)
    query = prometheus_query(PrometheusOptions(**prometheus))
    if not sources and query is None:
        raise UsageError("give at least one SOURCE: a log, a recording or a benchmark's result; or --prometheus")
    price = None if cost is None else cost_of(cost)
    options = read_options(objective, zone)._replace(prometheus=() if query is None else (query,), cost_per_hour=price)
    with progress_bar("report") as progress:
        found = write_report(sources, form, output, options, progress)
    mark_runs(found.runs, output, where)
    if capacity_file is not None:
        save_capacity(found, Path(capacity_file))


def write_report(
    paths: Sequence[str], form: ReportFormat | None, output: str | None, options: ReadOptions, progress: Progress
) -> Report:
    """
    Read logs, recordings and results, write what they show, if all went well, and return it.

    The form is by the ending of `output` if none is given, else text; without `output` it goes to standard output.
    """
    chosen = report_format(form, output)
    report = read_report(paths, options, progress)
    text = report_text(report, text_width(output)) if chosen == "text" else _RENDERERS[chosen](report)
    write_answer(text, chosen, output)
    return report


def save_capacity(report: Report, file: Path) -> None:
    """Write the capacity that a load test has measured; it is a `FileError` if it has measured none."""
    try:
        text = capacity_yaml(report)
    except NoCapacityError as error:
        raise FileError(f"--save-capacity: {file} is not written: {error}") from None
    write_whole(file, text.encode())


def read_options(objective: str | None, zone: str | None) -> ReadOptions:
    """
    Return what the options of the command line say.

    Raises:
        UsageError: One of them is wrong.
    """
    try:
        limits = None if objective is None else parse_objective(objective)
    except ValueError as error:
        raise UsageError(f"--objective: {error}") from None
    return ReadOptions(limits, None if zone is None else parse_zone(zone))


def parse_zone(text: str) -> tzinfo:
    """
    Return a time zone by its name, or by its distance from UTC: ``Asia/Shanghai``, ``UTC``, ``+08:00``.

    Raises:
        UsageError: There is none of that name.
    """
    found = _OFFSET.fullmatch(text)
    try:
        if found is None:
            return ZoneInfo(text)
        distance = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-distance if found[1] == "-" else distance)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"--zone: expected a time zone such as Asia/Shanghai or +08:00, got {quote(text)}") from None
