# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch report``: a load test in numbers and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from vllm_watch.analysis.loadtest.load_test import Demand, Objective, Report
from vllm_watch.analysis.loadtest.planning import NoCapacityError, parse_demand
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, read_report
from vllm_watch.analysis.loadtest.source_names import Source
from vllm_watch.analysis.rendering.json_output import report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text
from vllm_watch.analysis.rendering.server_use import capacity_yaml
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.cli.commands.options import (
    ReportFormat,
    check_output,
    file_option,
    output_option,
    parsed,
    progress_bar,
    report_format_option,
)
from vllm_watch.cli.commands.output_formats import language_option, report_format, text_width, write_answer
from vllm_watch.cli.commands.source_options import (
    cost_option,
    given_sources,
    objective_option,
    source_times,
    sources_argument,
)
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.whole_file import write_whole


_RENDERERS: Mapping[ReportFormat, Callable[[Report], str]] = {
    "markdown": report_markdown,
    "json": report_json,
    "html": report_html,
}


def _demand_of(option: str, text: str) -> Demand:
    try:
        return parse_demand(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


@click.command("report")
@sources_argument
@output_option
@report_format_option
@language_option
@file_option(
    "--save-capacity",
    "capacity_file",
    help="Also write how many tokens per second the server sustains, for the key `capacity` of the configuration.",
)
@objective_option
@cost_option
@click.option("--from", "start", metavar="TIME", help="Only from this time on, such as -2h or 2026-11-20T14:00Z.")
@click.option("--to", "end", metavar="TIME", help="Only until this time.")
@click.option(
    "--plan",
    "demand",
    callback=parsed(_demand_of),
    metavar="DEMAND",
    help="How many servers and GPUs a demand needs, such as '5000 tokens/s' (of output) or '200 users'.",
)
@click.option("--run", "number", type=click.IntRange(min=1), metavar="N", help="Of several load tests, only this one.")
def command(
    sources: tuple[str, ...],
    output: str | None,
    form: ReportFormat | None,
    capacity_file: str | None,
    objective: Objective | None,
    cost: float | None,
    start: str | None,
    end: str | None,
    demand: Demand | None,
    number: int | None,
) -> None:
    """
    Write a load test in numbers and plots.

    A SOURCE is a server's log (a rotated one by its own path), a recording, what a client measured (the result of vllm
    bench serve or what it printed, and others' that COMMANDS.md lists), a folder with such files, or a time of a server
    that a Prometheus has: prom:URL/SERVER@FROM/TO, such as prom:http://localhost:9090/qwen@-2h/-1h. Sources of one test
    belong together: what the client measured, and what the server did meanwhile.
    """
    check_output(output, sources)
    check_output(capacity_file, sources, "--save-capacity")
    given = given_sources(sources)
    options = ReadOptions(objective, cost, source_times(start, end), number, demand)
    with progress_bar("report") as progress:
        found = write_report(given, form, output, options, progress)
    if capacity_file is not None:
        save_capacity(found, Path(capacity_file))


def write_report(
    sources: Sequence[Source], form: ReportFormat | None, output: str | None, options: ReadOptions, progress: Progress
) -> Report:
    """
    Read sources, write what they show, if all went well, and return it.

    The form is by the ending of `output` if none is given, else text; without `output` it goes to standard output.
    """
    chosen = report_format(form, output)
    report = read_report(sources, options, progress)
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
