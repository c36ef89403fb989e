# SPDX-License-Identifier: Apache-2.0
"""Results of runs: the most important numbers in a row each, and the block of ``vllm bench serve``, view by view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import QUANTILES, Bounds, Goodput, Latency, Quantile, Result, Run, bounded
from vllm_watch.analysis.rendering.document import Cells, Column, Group, Table, plain_table
from vllm_watch.analysis.rendering.run_facts import objective_text, run_objective, short_names
from vllm_watch.daemon.catalog.metric_titles import (
    LATENCIES,
    LATENCY_NAMES,
    STATISTIC_LABELS,
    VIEW_LABELS,
    LatencyName,
    View,
    titled,
)
from vllm_watch.daemon.catalog.number_texts import MISSING, count, limit, percent, significant


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
_NOTHING = {2: {"0"}}
"""What says nothing in a column: where no run has failed requests, there is none of them."""

_MEASURED: Mapping[View, str] = {
    "client": "As the client measured it, over the whole load.",
    "server": "As the server measured it, over the whole load.",
}

_COUNTS = ("successful", "failed", "total_input_tokens", "total_output_tokens")
_TOTALS = (
    "successful",
    "failed",
    "duration_s",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
)
_COSTS = ("cost_per_million_input_tokens", "cost_per_million_output_tokens", "cost_per_million_tokens")
_ENERGIES = ("mean_watts", "energy_joules", "joules_per_output_token", "tokens_per_joule")
_ENERGY = "Energy"
_OF_GPUS = "Energy is that of the GPUs alone: CPUs, fans and cooling are not in it."
_COST = "Cost"
_WHOLE_COST = "Cost: each line is the whole cost, by another count of tokens. The lines do not add up."
_BUCKETS = "“250 to 500”: the percentile is between these bounds of a bucket; “>500”, “<250”: only one is known."
_TOO_FEW = "“Too few values”: nothing is known of this percentile."


def overview(runs: Sequence[Run]) -> Table:
    """Return a row for each run, without columns in which nothing is known or failed."""
    names = short_names([run.name for run in runs])
    return _table([_run_row(name, run) for name, run in zip(names, runs, strict=True)], first=0)


def headline(run: Run) -> Table | None:
    """Return the row of one run without its name, and who measured it; `None` if no number of it is known."""
    table = _table([_run_row(run.name, run)], first=1)
    if run.result is None or len(table.columns) == 1:
        return None
    return table._replace(notes=(_MEASURED[run.result.view],))


def _table(rows: Sequence[Cells], first: int) -> Table:
    """Return rows as a table from their column `first` on, which is kept; of the others, those that say something."""
    columns = range(first, len(_COLUMNS))
    kept = [at for at in columns if at == first or {row[at] for row in rows} - {MISSING} - _NOTHING.get(at, set())]
    return plain_table("", tuple(_COLUMNS[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in rows))


def _run_row(name: str, run: Run) -> Cells:
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


def result_columns(run: Run) -> tuple[tuple[Column, Result], ...]:
    """Return a run's results, each with the head of its column: the views of the whole load, then the steady window."""
    views = run.views or (() if run.result is None else (run.result,))
    columns = [(Column(VIEW_LABELS[view.view], "whole load"), view) for view in views]
    if run.steady is not None and run.steady.result is not None:
        steady = run.steady.result
        columns.append((Column(VIEW_LABELS[steady.view], "steady window"), steady))
    return tuple(columns)


def result_block(run: Run) -> Table:
    """Return the result block of a run; it is empty if nothing is known."""
    columns = result_columns(run)
    results = [result for _, result in columns]
    groups = [_known_group("", _TOTALS, results)]
    groups += [_latency_group(name, results) for name in LATENCIES]
    groups += [_known_group(_ENERGY, _ENERGIES, results), _known_group(_COST, _COSTS, results)]
    filled = tuple(group for group in groups if group.rows)
    said = {_ENERGY: _OF_GPUS, _COST: _WHOLE_COST}
    notes = (*percentile_notes(filled), *(said[group.title] for group in filled if group.title in said))
    return Table("", (Column("", is_text=True), *(column for column, _ in columns)), filled, notes)


def percentile_notes(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return what explains the percentiles of a table that are no numbers, as `percentile` writes them."""
    shown = {cell for group in groups for row in group.rows for cell in row[1:]}
    buckets = any(" to " in cell or cell.startswith((">", "<")) for cell in shown)
    too_few = "too few values" in shown
    return (*((_BUCKETS,) if buckets else ()), *((_TOO_FEW,) if too_few else ()))


def goodput_block(run: Run) -> Table | None:
    """Return the share of requests within the objective, view by view; `None` without an objective."""
    objective = run_objective(run)
    columns = [(column, result) for column, result in result_columns(run) if result.goodput is not None]
    if objective is None or not columns:
        return None
    results = [result for _, result in columns]
    rows = (
        _row(titled("goodput.ratio"), results, lambda result: _ratio(result.goodput)),
        _row(titled("goodput.request_goodput"), results, lambda result: _goodput_rate(result.goodput)),
    )
    heads = (Column("", is_text=True), *(column for column, _ in columns))
    return plain_table(f"Objective {objective_text(objective)}", heads, tuple(row for row in rows if any(row[1:])))


def percentile(quantile: Quantile, latency: Latency | None) -> str:
    """Return a percentile: a number, the bounds of its bucket, or, of too few values, above which bound it is."""
    if latency is None:
        return MISSING
    bounds = latency.bounds.get(quantile)
    if quantile in latency.too_few:
        return f">{limit(bounds.low)}" if bounds is not None and bounds.low else "too few values"
    if bounds is not None and (bounds.low, bounds.high) != (None, None):
        return bounded(Bounds(low=bounds.low or None, high=bounds.high))
    value: float | None = getattr(latency, quantile)
    return significant(latency.median if quantile == "p50" and value is None else value)


def _known_group(title: str, names: Sequence[str], results: list[Result]) -> Group:
    rows = tuple(_row(titled(name), results, _total(name)) for name in names)
    return Group(title, tuple(row for row in rows if set(row[1:]) - {MISSING}))


def _latency_group(name: LatencyName, results: list[Result]) -> Group:
    """Return the statistics of a latency; percentiles that are not known have their rows beside those that are."""
    latencies: list[Latency | None] = [getattr(result, name) for result in results]
    rows = [(label, *(MISSING if each is None else show(each) for each in latencies)) for label, show in _STATISTICS]
    known = [row for row in rows if set(row[1:]) - {MISSING}]
    if not {row[0] for row in known} - _EXTRA:
        return Group("", ())
    return Group(f"{LATENCY_NAMES[name]}, ms", tuple(row for row in rows if row in known or row[0] not in _EXTRA))


_EXTRA = frozenset({"Standard deviation", "Values"})
_STATISTICS: Sequence[tuple[str, Callable[[Latency], str]]] = (
    ("Mean", lambda latency: significant(latency.mean)),
    *(("Median" if each == "p50" else STATISTIC_LABELS[each], partial(percentile, each)) for each in QUANTILES),
    ("Standard deviation", lambda latency: significant(latency.std)),
    ("Values", lambda latency: count(latency.count)),
)


def _total(name: str) -> Callable[[Result], str]:
    show = count if name in _COUNTS else significant
    return lambda result: show(getattr(result, name))


def _row(label: str, results: list[Result], show: Callable[[Result], str]) -> Cells:
    return (label, *(show(result) for result in results))


def _ratio(goodput: Goodput | None) -> str:
    if goodput is None:
        return MISSING
    if goodput.bounds is not None and (goodput.bounds.low, goodput.bounds.high) != (None, None):
        return bounded(goodput.bounds, 100)
    return percent(goodput.ratio)


def _goodput_rate(goodput: Goodput | None) -> str:
    return MISSING if goodput is None else significant(goodput.request_goodput)
