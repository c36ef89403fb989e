# SPDX-License-Identifier: Apache-2.0
"""Several runs in one table: what each was sent, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.loadtest.model import Latency, Run
from vllm_watch.rendering.document import Cells, Column, Table, plain_table
from vllm_watch.rendering.names import short_names
from vllm_watch.rendering.numbers import MISSING, count, percent, significant
from vllm_watch.rendering.results import percentile
from vllm_watch.rendering.setup import load_label


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


def overview(runs: Sequence[Run]) -> Table:
    """Return one row for each run; a column in which nothing is known, or nothing failed, is left out."""
    names = short_names([run.name for run in runs])
    rows = [_row(name, run) for name, run in zip(names, runs, strict=True)]
    kept = [at for at in range(len(_COLUMNS)) if at == 0 or {row[at] for row in rows} - _nothing(at)]
    columns = tuple(_COLUMNS[at] for at in kept)
    return plain_table("", columns, tuple(tuple(row[at] for at in kept) for row in rows))


def _nothing(column: int) -> set[str]:
    return {MISSING, "0"} if column == _FAILED else {MISSING}


def _row(name: str, run: Run) -> Cells:
    result = run.result
    if result is None:
        return (name, load_label(run.load), *[MISSING] * (len(_COLUMNS) - 2))
    tpot: Latency | None = result.tpot_ms
    return (
        name,
        load_label(run.load),
        count(result.failed),
        significant(result.output_throughput),
        percentile("p50", result.ttft_ms),
        percentile("p99", result.ttft_ms),
        MISSING if tpot is None else significant(tpot.mean),
        MISSING if result.goodput is None else percent(result.goodput.ratio),
    )
