# SPDX-License-Identifier: Apache-2.0
"""The result block: requests, tokens, rates and latencies, in the order of ``vllm bench serve``, view beside view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from vllm_watch.analysis.loadtest.load_test import QUANTILES, Bounds, Goodput, Latency, Quantile, Result, Run, bounded
from vllm_watch.analysis.rendering.document import Cells, Column, Group, Table, plain_table
from vllm_watch.analysis.rendering.run_facts import objective_text, run_objective
from vllm_watch.daemon.catalog.metric_titles import (
    LATENCIES,
    LATENCY_NAMES,
    STATISTIC_LABELS,
    VIEW_LABELS,
    LatencyName,
    titled,
)
from vllm_watch.daemon.catalog.number_texts import MISSING, count, limit, percent, significant


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
    rows = [_row("Mean", results, _of(name, lambda latency: significant(latency.mean)))]
    for quantile in QUANTILES:
        label = "Median" if quantile == "p50" else STATISTIC_LABELS[quantile]
        rows.append(_row(label, results, _of(name, partial(percentile, quantile))))
    extra = [
        _row("Standard deviation", results, _of(name, lambda latency: significant(latency.std))),
        _row("Values", results, _of(name, lambda latency: count(latency.count))),
    ]
    known = [row for row in rows if set(row[1:]) - {MISSING}]
    extra = [row for row in extra if set(row[1:]) - {MISSING}]
    return Group(f"{LATENCY_NAMES[name]}, ms", tuple([*rows, *extra] if known else []))


def _of(name: LatencyName, show: Callable[[Latency], str]) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        latency: Latency | None = getattr(result, name)
        return MISSING if latency is None else show(latency)

    return cell


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
