# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch report``: a load test in numbers and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path

import click

from vllm_watch.analysis.loadtest.load_test import Objective, Report
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, read_report
from vllm_watch.analysis.rendering.json_output import report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text
from vllm_watch.analysis.rendering.server_use import NoCapacityError, capacity_yaml
from vllm_watch.analysis.replay.replay import Progress
from vllm_watch.cli.commands.marks import MarkOptions, mark_options, mark_runs, marking
from vllm_watch.cli.commands.options import (
    ReportFormat,
    check_output,
    file_option,
    output_option,
    progress_bar,
    report_format_option,
)
from vllm_watch.cli.commands.output_formats import report_format, text_width, write_answer
from vllm_watch.cli.commands.source_options import (
    PrometheusOptions,
    cost_option,
    objective_option,
    prometheus_query,
    prometheus_range_options,
    source_times,
    zone_option,
)
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.whole_file import write_whole


_RENDERERS: Mapping[ReportFormat, Callable[[Report], str]] = {
    "markdown": report_markdown,
    "json": report_json,
    "html": report_html,
}


@click.command("report")
@click.argument("sources", nargs=-1, metavar="SOURCE...", type=click.Path(readable=False))
@output_option
@report_format_option
@file_option(
    "--save-capacity",
    "capacity_file",
    help="Also write how many tokens per second the server sustains, for the key `capacity` of the configuration.",
)
@objective_option
@cost_option
@zone_option
@click.option(
    "--run",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of several load tests, only this one.",
)
@mark_options
@prometheus_range_options
def command(
    sources: tuple[str, ...],
    output: str | None,
    form: ReportFormat | None,
    capacity_file: str | None,
    objective: Objective | None,
    cost: float | None,
    zone: tzinfo | None,
    number: int | None,
    marks: MarkOptions,
    prometheus: PrometheusOptions,
) -> None:
    """
    Write a load test in numbers and plots.

    A SOURCE is a server's log (a rotated one by its own path), a recording, or what a benchmark wrote: the JSON of vllm
    bench serve, throughput or latency, or what it printed. A Prometheus is one more source. Sources of one test belong
    together: what the client measured, and what the server did meanwhile.
    """
    check_output(output, sources)
    check_output(capacity_file, sources, "--save-capacity")
    where = marking(marks)
    times = source_times(prometheus)
    query = prometheus_query(prometheus if times is None else prometheus._replace(start=None, end=None))
    if not sources and query is None:
        raise UsageError("give at least one SOURCE: a log, a recording or a benchmark's result; or --prometheus")
    options = ReadOptions(objective, zone, () if query is None else (query,), cost, times, number)
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
