# SPDX-License-Identifier: Apache-2.0
"""Two tables for articles and spreadsheets, with the digits that the client prints: ``wide`` and ``gains``."""

from __future__ import annotations

import csv

from collections.abc import Sequence
from typing import Literal, get_args

from vllm_watch.analysis.comparison.comparability import side_settings
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, Comparisons, Side, needed_values
from vllm_watch.analysis.comparison.pair import Measured, common_view, load_name, measured, metric_mean
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.analysis.rendering.comparison_answer import grade_text
from vllm_watch.analysis.rendering.document import Column, Table, plain_table
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, metric_title
from vllm_watch.daemon.catalog.number_texts import MISSING, count, hundredths


TableName = Literal["wide", "gains"]
TABLE_NAMES: tuple[TableName, ...] = get_args(TableName)

_RATES = ("request_throughput", "output_throughput", "total_token_throughput")
_STATISTICS = ("mean", "p50", "p99")
_FEW = "†"
_FEW_NOTE = N_("† Few requests stand behind this percentile: it may be below the true one.")


class _Lines(list[str]):
    """What `csv` writes to."""

    def write(self, line: str) -> None:
        self.append(line)


def comparison_table(comparisons: Comparisons, name: TableName) -> Table:
    """Return a table by its name."""
    return wide_table(comparisons) if name == "wide" else gains_table(comparisons)


def wide_table(comparisons: Comparisons) -> Table:
    """Return a row for each side, or for each load of one: what differs, all rates and latencies, success, memory."""
    sides = [each for side in comparisons.sides for each in _by_load(side)]
    settings = [side_settings(side.runs) for side in sides]
    flags = sorted({name for each in settings for name in each if len({other.get(name) for other in settings}) > 1})
    loads = [load_name(side.runs[0].load) for side in sides]
    memory = {row.name: row.values.get("memory_gib") for row in comparisons.matrix}
    view = common_view(sides)
    names = [*_RATES, *(f"{latency}.{statistic}" for latency in LATENCIES for statistic in _STATISTICS)]
    seen = [] if view is None else [measured(side, view) for side in sides]
    known = [name for name in names if any(metric_mean(BY_NAME[name], side) is not None for side in seen)]
    has_loads, has_memory = len(set(loads)) > 1, any(memory.values())
    columns = [Column(_("Side"), is_text=True), *(Column(name, is_text=True) for name in flags)]
    columns += [Column(_("Load"), is_text=True)] if has_loads else []
    columns += [Column(metric_title(name).label, metric_title(name).unit) for name in known]
    columns += [Column(_("Success"), is_text=True)]
    columns += [Column(_("Memory"), "GiB")] if has_memory else []
    rows = []
    for at, (side, of_side, load) in enumerate(zip(sides, settings, loads, strict=True)):
        cells = [side.name, *(of_side.get(name, MISSING) for name in flags), *([load] if has_loads else [])]
        cells += [_value(name, seen[at]) for name in known]
        cells += [_success(side.runs), *([hundredths(memory.get(side.name))] if has_memory else [])]
        rows.append(tuple(cells))
    return _noted(plain_table("", tuple(columns), tuple(rows)))


def gains_table(comparisons: Comparisons) -> Table:
    """Return for each side and metric the value, that of the baseline, and the gain: absolute, and in per cent."""
    heads = (_("Side"), _("Metric"), _("Unit"), _("Baseline"), _("Value"), _("Gain"), _("Gain %"), _("Grade"))
    columns = tuple(Column(head, is_text=head in {_("Side"), _("Metric"), _("Unit"), _("Grade")}) for head in heads)
    rows = [
        (
            pair.candidate,
            metric_title(row.metric).label,
            metric_title(row.metric).unit or row.unit,
            hundredths(row.a),
            hundredths(row.b),
            _signed(row.difference),
            MISSING if row.percent is None else f"{row.percent:+,.2f}",
            grade_text(row),
        )
        for pair in comparisons.pairs
        for row in pair.metrics
        if row.difference is not None
    ]
    note = _("The baseline is {baseline}.", baseline=comparisons.baseline)
    return plain_table("", columns, tuple(rows))._replace(notes=(note,))


def table_csv(table: Table) -> str:
    """Return a table as CSV with a head: numbers have no commas and no marks, what is not known is empty."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([f"{column.head} ({column.unit})" if column.unit else column.head for column in table.columns])
    for group in table.groups:
        for row in group.rows:
            writer.writerow([_plain(cell, column) for cell, column in zip(row, table.columns, strict=True)])
    return "".join(lines)


def _plain(cell: str, column: Column) -> str:
    if cell == MISSING:
        return ""
    return cell if column.is_text else cell.replace(",", "").removesuffix(f" {_FEW}")


def _by_load(side: Side) -> list[Side]:
    loads = dict.fromkeys(load_name(run.load) for run in side.runs)
    return [Side(name=side.name, runs=tuple(run for run in side.runs if load_name(run.load) == load)) for load in loads]


def _value(name: str, side: Measured) -> str:
    metric = BY_NAME[name]
    value = hundredths(metric_mean(metric, side))
    is_few = any(needed_values(metric, result) is not None for result in side.results)
    return f"{value} {_FEW}" if is_few and value != MISSING and name.endswith(".p99") else value


def _success(runs: Sequence[Run]) -> str:
    """Return how many of the requests succeeded, of all runs together: ``100 of 100``."""
    results = [run.result for run in runs if run.result is not None and run.result.successful is not None]
    if not results:
        return MISSING
    succeeded = sum(result.successful or 0 for result in results)
    failed = None if any(result.failed is None for result in results) else sum(result.failed or 0 for result in results)
    return (
        count(succeeded)
        if failed is None
        else _("{part} of {whole}", part=count(succeeded), whole=count(succeeded + failed))
    )


def _signed(value: float | None) -> str:
    text = hundredths(value)
    return f"+{text}" if value is not None and value > 0 else text


def _noted(table: Table) -> Table:
    is_few = any(cell.endswith(f" {_FEW}") for group in table.groups for row in group.rows for cell in row)
    return table._replace(notes=(_(_FEW_NOTE),)) if is_few else table
