# SPDX-License-Identifier: Apache-2.0
"""
Several configurations side by side: their values, and which of them wins by what.

A configuration wins by a metric if the grades of its pairs call it better than each of the others, so a matrix of
several says nothing that its pairs do not say.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparability import side_settings
from vllm_watch.analysis.comparison.comparison_model import (
    BY_NAME,
    GOODPUT,
    OUTPUT,
    TPOT,
    Decision,
    Grade,
    MatrixRow,
    Metric,
    Side,
)
from vllm_watch.analysis.comparison.pair import Measured, Pair, common_view, mean_known, measured, metric_mean
from vllm_watch.analysis.comparison.verdicts import graded_rows
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.analysis.loadtest.planning import memory_gib
from vllm_watch.daemon.catalog.language import N_, _, listed, sentences
from vllm_watch.daemon.catalog.metric_titles import View


MEMORY = "memory_gib"

_CRITERIA = (
    (N_("lowest TTFT"), "ttft_ms.p50"),
    (N_("most throughput"), OUTPUT),
    (N_("most users within the objective"), GOODPUT),
)
_MATRIX = ("ttft_ms.p50", TPOT, OUTPUT, GOODPUT)
_WEAKEST_FIRST: tuple[Grade, ...] = ("not_decided", "in_these_two_runs", "likely", "shown")


def matrix(sides: Sequence[Side]) -> tuple[MatrixRow, ...]:
    """Return a row for each side: what it ran with, as far as the sides differ, and its values."""
    settings = [side_settings(side.runs) for side in sides]
    names = sorted({name for flags in settings for name in flags})
    differing = [name for name in names if len({flags.get(name) for flags in settings}) > 1]
    view = common_view(sides)
    return tuple(
        MatrixRow(
            name=side.name,
            config={name: flags[name] for name in differing if name in flags},
            values=_matrix_values(side, view),
        )
        for side, flags in zip(sides, settings, strict=True)
    )


def decide(sides: Sequence[Side]) -> tuple[Decision, ...]:
    """Return who wins by each criterion, and how sure that is; nobody where it is not decided."""
    view = common_view(sides)
    if view is None:
        return ()
    in_view = [measured(side, view) for side in sides]
    return tuple(_decision(criterion, BY_NAME[name], in_view, view) for criterion, name in _CRITERIA)


def _matrix_values(side: Side, view: View | None) -> dict[str, float]:
    values = {} if view is None else {name: metric_mean(BY_NAME[name], measured(side, view)) for name in _MATRIX}
    values[MEMORY] = _memory(side)
    return {name: value for name, value in values.items() if value is not None}


def _decision(criterion: str, metric: Metric, sides: Sequence[Measured], view: View) -> Decision:
    """Return which side is better than each of the others: the second best is one of them, so no correction is due."""
    undecided = Decision(criterion=_(criterion), metric=metric.name)
    values = [metric_mean(metric, side) for side in sides]
    lacking = [side.name for side, value in zip(sides, values, strict=True) if value is None]
    if lacking:
        unknown = _("Not known of {sides}.", sides=listed(lacking))
        hint = [_("Give an objective, and results of --save-detailed.")] if metric.name == GOODPUT else []
        return replace(undecided, note=sentences([unknown, *hint]))
    ranked = sorted(range(len(sides)), key=lambda at: values[at] or 0.0, reverse=metric.higher_is_better)
    best, others = ranked[0], sorted(ranked[1:])
    pairs = [Pair(sides[min(best, other)], sides[max(best, other)], view) for other in others]
    rows = [row for pair in pairs for row in graded_rows(pair, are_comparable=True) if row.metric == metric.name]
    open_to = [sides[other].name for other, row in zip(others, rows, strict=True) if row.grade == "not_decided"]
    if open_to:
        why = next((row.reason for row in rows if row.grade == "not_decided" and row.low is None), None) or ""
        note = _(
            "{name} has the best value, but the difference to {others} is not decided.",
            name=sides[best].name,
            others=listed(open_to),
        )
        return replace(undecided, note=sentences([note, *([why] if why else [])]))
    return replace(undecided, winner=sides[best].name, grade=min((row.grade for row in rows), key=_WEAKEST_FIRST.index))


def _memory(side: Side) -> float | None:
    return mean_known([_run_memory(run) for run in side.runs])


def _run_memory(run: Run) -> float | None:
    """Return what the weights and the KV cache that was used at most take."""
    memory, used = memory_gib(run.hardware), run.use.max_kv_cache_usage_ratio
    return None if memory is None or used is None else memory[0] + memory[1] * used
