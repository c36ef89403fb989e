# SPDX-License-Identifier: Apache-2.0
"""The most important numbers of a run in one row, and of several runs in one table: of very many, the most telling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Latency, Result, Run
from vllm_watch.analysis.rendering.document import Cells, Column, Table, plain_table
from vllm_watch.analysis.rendering.results import percentile
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.catalog.number_texts import MISSING, count, percent, significant


_RANKED_BY: tuple[Callable[[Result], float | None], ...] = (
    lambda result: -result.output_throughput if result.output_throughput is not None else None,
    lambda result: None if result.ttft_ms is None else result.ttft_ms.p50,
    lambda result: None if result.tpot_ms is None else result.tpot_ms.mean,
    lambda result: -float(result.failed) if result.failed else None,
)
"""What runs are ranked by, the lowest first; `None` of a run that it says nothing of."""

TELLING = "the runs with the most output, the lowest TTFT P50 and mean TPOT, and the most failed requests"
"""Which runs are kept, in words."""

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


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the folders that all begin with and the parts that all end with: ``bench1``, ``bench2``."""
    if len(set(names)) < 2:
        return list(names)
    parts = [name.split("/") for name in names]
    start = _alike(parts)
    end = _alike([each[start:][::-1] for each in parts])
    short = ["/".join(each[start : len(each) - end]) for each in parts]
    return short if all(short) else list(names)


def _alike(parts: Sequence[Sequence[str]]) -> int:
    count = 0
    for each in zip(*parts, strict=False):
        if len(set(each)) > 1:
            return count
        count += 1
    return count


def telling_runs(runs: Sequence[Run], most: int) -> tuple[Run, ...]:
    """
    Return at most so many runs, in their order: by turns the next best of each order, and the next with failures.

    A run of which an order knows nothing, or in which nothing failed, has no place in it.
    """
    if len(runs) <= most:
        return tuple(runs)
    kept: set[int] = set()
    for places in zip_longest(*(_ranked(runs, value) for value in _RANKED_BY)):
        for place in places:
            if place is not None and len(kept) < most:
                kept.add(place)
    return tuple(runs[place] for place in sorted(kept))


def _ranked(runs: Sequence[Run], value: Callable[[Result], float | None]) -> list[int]:
    ranks = [(None if run.result is None else value(run.result), place) for place, run in enumerate(runs)]
    return [place for _, place in sorted((rank, place) for rank, place in ranks if rank is not None)]


def overview(runs: Sequence[Run], most: int | None = None) -> Table:
    """Return a row for each run, or for `most` of them, without columns in which nothing is known or failed."""
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
