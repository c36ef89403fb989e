# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch compare``: what is different between configurations, and whether it is real."""

from __future__ import annotations

import sys

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from vllm_watch.analysis.comparison.compare_arguments import (
    BROKEN,
    UNKNOWN,
    Rule,
    SideArgument,
    check_loads,
    check_rule,
    parse_rule,
    parse_sides,
)
from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Comparisons, Side
from vllm_watch.analysis.loadtest.load_test import Objective, Run
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, read_report
from vllm_watch.analysis.loadtest.source_names import paths_of, queries_of
from vllm_watch.analysis.rendering.comparison_answer import brief
from vllm_watch.analysis.rendering.comparison_tables import (
    TABLE_NAMES,
    TableName,
    comparison_table,
    table_csv,
)
from vllm_watch.analysis.rendering.comparisons import comparisons_document
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.document import Table
from vllm_watch.analysis.rendering.json_output import comparisons_json
from vllm_watch.analysis.rendering.markdown import table_lines
from vllm_watch.analysis.rendering.text import render_blocks
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.cli.commands.options import (
    COMPARISON_FORMATS,
    ComparisonFormat,
    check_output,
    output_option,
    progress_bar,
    say,
)
from vllm_watch.cli.commands.output_formats import (
    comparison_format,
    explain_option,
    language_option,
    rendered,
    text_width,
    write_answer,
)
from vllm_watch.cli.commands.source_options import cost_of, given_source, objective_option
from vllm_watch.daemon.support.errors import FileError, PrometheusError, UsageError


@click.command("compare")
@click.argument("sides", nargs=-1, metavar="A B [C...]", type=click.Path(readable=False))
@click.option("--baseline", metavar="NAME", help="The side that the others are compared with [default: the first].")
@output_option
@language_option
@click.option(
    "--format",
    "form",
    type=click.Choice(COMPARISON_FORMATS),
    help="[default: by the ending of FILE, else text].",
)
@click.option(
    "--fail-if",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 if the 95 % interval is beyond it, such as 'ttft_ms.p99 > +10%', with 3 if that cannot be told.",
)
@click.option("--all", "is_whole", is_flag=True, help="Print warnings, all metrics, what differs, and every note.")
@click.option(
    "--table",
    type=click.Choice(TABLE_NAMES),
    help="Print a table instead: wide has a row for each side, gains each metric against the baseline.",
)
@objective_option
@click.option(
    "--cost-per-hour",
    "costs",
    multiple=True,
    metavar="[SIDE=]N",
    help="What a server costs in an hour, in any currency, on all sides or on one; may be repeated.",
)
@explain_option("comparison", "how sides are given, what is compared and by which method")
def command(
    sides: tuple[str, ...],
    baseline: str | None,
    output: str | None,
    form: ComparisonFormat | None,
    rules: tuple[str, ...],
    is_whole: bool,
    table: TableName | None,
    objective: Objective | None,
    costs: tuple[str, ...],
) -> None:
    """
    Compare load tests: what is different, and whether it is real.

    Each side is a source, as of report, or several with a name: A=run1.json,run2.json. One run of a configuration says
    little, for the next one is different; five runs of each, taking turns, find a difference of a few per cent.

    --fail-if exits with 1 if the whole 95 % interval of its metric is beyond the limit, and with 3 if that cannot be
    told: a file is missing, requests failed, the metric was not measured, the sides are not comparable, a side lacks a
    load, or there is one run of each.
    """
    parsed = [parse_rule(text) for text in rules]
    named = _named_sides(sides, baseline)
    check_output(output, [path for side in named for path in paths_of(side.sources)])
    chosen = comparison_format(form, output)
    if table is not None and chosen in {"html", "json"}:
        raise UsageError(f"--table {table}: as text, Markdown or CSV, not as {chosen}, which has all of it")
    prices = _side_costs(costs, [side.name for side in named])
    try:
        with progress_bar("compare") as progress:
            read = _read_sides(named, objective, prices, progress)
    except (FileError, PrometheusError) as error:
        if not parsed:
            raise
        say(f"cannot be told: {error}")
        sys.exit(UNKNOWN)
    comparisons = compare_sides(read, baseline, objective, [rule.metric for rule in parsed])
    write_answer(_text(comparisons, chosen, output, table, is_whole=is_whole), chosen, output)
    sys.exit(_check(parsed, comparisons))


def _named_sides(texts: Sequence[str], baseline: str | None) -> tuple[SideArgument, ...]:
    """Return the sides that the command line names, one of which is the baseline."""
    if len(texts) == 1 and (folders := _folders_in(Path(texts[0]))):
        raise UsageError(f"give at least two sides; {texts[0]} has the folders {', '.join(folders)}")
    sides = parse_sides(texts, lambda path: Path(path).exists(), given_source)
    names = [side.name for side in sides]
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline}: no such side; there are {', '.join(names)}")
    return sides


def _folders_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _side_costs(texts: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Return what an hour costs by side, where that is given: ``2.4`` for all, ``A=2.4`` for one, which wins."""
    for_all: dict[str, float] = {}
    for_one: dict[str, float] = {}
    for text in texts:
        name, separator, price = text.rpartition("=")
        if separator and name not in names:
            raise UsageError(f"--cost-per-hour {text}: no side {name}; there are {', '.join(names)}")
        prices = dict.fromkeys([name] if separator else names, cost_of("--cost-per-hour", price))
        for_one, for_all = (for_one | prices, for_all) if separator else (for_one, prices)
    return for_all | for_one


def _read_sides(
    named: Sequence[SideArgument], objective: Objective | None, prices: Mapping[str, float], progress: Progress
) -> tuple[Side, ...]:
    """Read the sources of all sides; each time of a Prometheus has to have a load in it."""
    sides = []
    for number, side in enumerate(named):

        def part(share: float, before: int = number) -> None:
            progress((before + share) / len(named))

        runs = read_report(side.sources, ReadOptions(objective, prices.get(side.name)), part).runs
        ranges = [query.source for query in queries_of(side.sources)]
        for source in ranges:
            if not any(source in run.source for run in runs):
                raise FileError(f"{source}: no load is in it, or none that was measured")
        sides.append(Side(name=side.name, runs=_tested(runs, ranges)))
    return tuple(sides)


def _text(
    comparisons: Comparisons, form: ComparisonFormat, output: str | None, table: TableName | None, *, is_whole: bool
) -> str:
    if form == "json":
        return comparisons_json(comparisons)
    if form == "html":
        return comparisons_html(comparisons)
    if table is not None or form == "csv":
        return _table_text(comparison_table(comparisons, table or "wide"), form, text_width(output))
    if form == "text" and not is_whole:
        return render_blocks(brief(comparisons), text_width(output))
    return rendered(comparisons_document(comparisons), form, output)


def _table_text(table: Table, form: ComparisonFormat, width: int) -> str:
    if table.is_empty:
        say("the sides have no metric in common: the table is empty")
    if form == "csv":
        return table_csv(table)
    return render_blocks((table,), width) if form == "text" else "\n".join(table_lines(table)).strip() + "\n"


def _check(rules: Sequence[Rule], comparisons: Comparisons) -> int:
    """Say on standard error what became of each rule in each comparison, and where there is none; return the status."""
    outcomes = [check_rule(rule, pair) for rule in rules for pair in comparisons.pairs]
    missing = check_loads(comparisons.left_out)
    if rules and missing is not None:
        outcomes.append(missing)
    for outcome in outcomes:
        say(outcome.text)
    statuses = {outcome.exit_status for outcome in outcomes}
    return BROKEN if BROKEN in statuses else max(statuses, default=0)


def _tested(runs: Sequence[Run], ranges: Sequence[str]) -> tuple[Run, ...]:
    """
    Return the runs that a client measured, or all if there is none: the others are warm-ups and other users.

    A time of a Prometheus in which no client measured anything was given for its own loads.
    """
    covered = {source for run in runs if _is_measured(run) for source in run.source}
    alone = set(ranges) - covered
    tested = tuple(run for run in runs if _is_measured(run) or not alone.isdisjoint(run.source))
    return tested if covered else tuple(runs)


def _is_measured(run: Run) -> bool:
    return any(view.view == "client" for view in (run.result, *run.views) if view)
