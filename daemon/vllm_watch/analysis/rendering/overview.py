# SPDX-License-Identifier: Apache-2.0
"""The most important numbers of a run in one row, and of several runs in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Latency, Run
from vllm_watch.analysis.rendering.document import Cells, Column, Table, plain_table
from vllm_watch.analysis.rendering.names import short_names
from vllm_watch.analysis.rendering.results import percentile
from vllm_watch.analysis.rendering.selection import TELLING, telling_runs
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.catalog.number_texts import MISSING, count, percent, significant


_COLUMNS = (
    Column("Run", is_text=True),
    Column("Load", is_text=True),
    Column("Failed"),
    Column("Output", "tokens/s"),
    Column("TTFT P50", "ms"),
    Column("TTFT P99", "ms"),
    Column("TPOT mean", "ms"),
    Column("Goodput", "%"),
)
_FAILED = 2
_ALL = "--format json has all runs."


_MEASURED: Mapping[View, str] = {
    "client": "As the client measured it, over the whole load.",
    "server": "As the server measured it, over the whole load.",
}


def overview(runs: Sequence[Run], most: int | None = None) -> Table:
    """
    Return one row for each run; a column in which nothing is known, or nothing failed, is left out.

    Args:
        runs: All runs.
        most: How many rows there may be, if not as many as there are runs.
    """
    kept = runs if most is None else telling_runs(runs, most)
    names = short_names([run.name for run in kept])
    left_out = len(runs) - len(kept)
    notes = (f"{count(left_out)} of {count(len(runs))} runs are left out: these are {TELLING}. {_ALL}",)
    table = _known([_row(name, run) for name, run in zip(names, kept, strict=True)], first=0)
    return table._replace(notes=notes) if left_out else table


def headline(run: Run) -> Table | None:
    """Return the row of one run without its name, and who measured it; `None` if no number of it is known."""
    table = _known([_row(run.name, run)], first=1)
    if run.result is None or len(table.columns) == 1:
        return None
    return table._replace(notes=(_MEASURED[run.result.view],))


def _known(rows: Sequence[Cells], first: int) -> Table:
    """Return rows as a table from their column `first` on, which is kept; of the others, those that say something."""
    kept = [at for at in range(first, len(_COLUMNS)) if at == first or {row[at] for row in rows} - _nothing(at)]
    columns = tuple(_COLUMNS[at] for at in kept)
    return plain_table("", columns, tuple(tuple(row[at] for at in kept) for row in rows))


def _nothing(column: int) -> set[str]:
    return {MISSING, "0"} if column == _FAILED else {MISSING}


def _row(name: str, run: Run) -> Cells:
    result = run.result
    if result is None:
        return (name, load_text(run.load) or MISSING, *[MISSING] * (len(_COLUMNS) - 2))
    tpot: Latency | None = result.tpot_ms
    return (
        name,
        load_text(run.load) or MISSING,
        count(result.failed),
        significant(result.output_throughput),
        percentile("p50", result.ttft_ms),
        percentile("p99", result.ttft_ms),
        MISSING if tpot is None else significant(tpot.mean),
        MISSING if result.goodput is None else percent(result.goodput.ratio),
    )
