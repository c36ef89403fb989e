# SPDX-License-Identifier: Apache-2.0
"""Several configurations side by side: the matrix, and who wins by what, where that is shown."""

from __future__ import annotations

import math

from collections.abc import Sequence

from vllm_watch.analysis.comparison.configuration import side_settings
from vllm_watch.analysis.comparison.estimate import SIGNIFICANCE, Estimate, estimate
from vllm_watch.analysis.comparison.metrics import BY_NAME, GOODPUT, OUTPUT, TPOT, Metric
from vllm_watch.analysis.comparison.model import Decision, MatrixRow, Side
from vllm_watch.analysis.comparison.pair import Measured, Pair, common_view, mean_known, measured, metric_mean
from vllm_watch.analysis.comparison.traps import Traps
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.daemon.catalog.metric_titles import View


MEMORY = "memory_gib"

_CRITERIA = (
    ("lowest TTFT", "ttft_ms.p50"),
    ("most throughput", OUTPUT),
    ("most users within the objective", GOODPUT),
)
_MATRIX = ("ttft_ms.p50", TPOT, OUTPUT, GOODPUT)


def matrix(sides: Sequence[Side]) -> tuple[MatrixRow, ...]:
    """Return a row for each side: what it ran with, as far as the sides differ, and its values."""
    each = [side_settings(side.runs) for side in sides]
    names = sorted({name for known in each for name in known})
    shown = [name for name in names if len({known.get(name) for known in each}) > 1]
    view = common_view(sides)
    return tuple(
        MatrixRow(
            name=side.name,
            config=tuple((name, known[name]) for name in shown if name in known),
            values=tuple(_values(side, view)),
        )
        for side, known in zip(sides, each, strict=True)
    )


def decide(sides: Sequence[Side]) -> tuple[Decision, ...]:
    """Return who wins by each criterion; nobody where it is not shown."""
    view = common_view(sides)
    if view is None:
        return ()
    known = [measured(side, view) for side in sides]
    return (
        *(_decision(criterion, BY_NAME[name], known, view) for criterion, name in _CRITERIA),
        _memory_decision(sides),
    )


def _values(side: Side, view: View | None) -> list[tuple[str, float]]:
    values = [] if view is None else [(name, metric_mean(BY_NAME[name], measured(side, view))) for name in _MATRIX]
    return [(name, value) for name, value in (*values, (MEMORY, _side_memory(side))) if value is not None]


def _decision(criterion: str, metric: Metric, sides: Sequence[Measured], view: View) -> Decision:
    """Return who is better than each of the others, if that is shown for all of them together."""
    values = {side.name: value for side in sides if (value := metric_mean(metric, side)) is not None}
    if len(values) < len(sides):
        lacking = ", ".join(side.name for side in sides if side.name not in values)
        hint = " Give an objective." if metric.name == GOODPUT else ""
        return Decision(criterion=criterion, metric=metric.name, note=f"Not known of {lacking}.{hint}")
    best = sorted(sides, key=lambda side: values[side.name], reverse=metric.higher_is_better)[0]
    pairs = [Pair(side, best, view) for side in sides if side is not best]
    trap = next((note for pair in pairs if (note := Traps(pair).note(metric)) is not None), None)
    if trap is not None:
        return Decision(criterion=criterion, metric=metric.name, note=trap)
    tests = math.comb(len(sides), 2)  # Which one is best was seen before: any pair could have been the one tested.
    open_pairs = [
        pair.a.name for pair in pairs if not _is_shown(estimate(metric, pair, 1 - SIGNIFICANCE / tests), tests)
    ]
    if open_pairs:
        note = f"{best.name} has the best value, but a difference to {', '.join(open_pairs)} is not shown."
        return Decision(criterion=criterion, metric=metric.name, note=note)
    within = "Within one run." if any(pair.is_single for pair in pairs) else None
    return Decision(criterion=criterion, metric=metric.name, winner=best.name, note=within)


def _is_shown(found: Estimate | None, tests: int) -> bool:
    """Return whether a difference is shown, and matters."""
    if found is None or found.ratio is None or found.low is None or found.high is None:
        return False
    matters = found.metric.matters
    if 1 - matters <= found.low and found.high <= 1 + matters:
        return False
    return found.is_apart if found.p is None else found.p * tests < SIGNIFICANCE


def _memory_decision(sides: Sequence[Side]) -> Decision:
    values = {side.name: value for side in sides if (value := _side_memory(side)) is not None}
    if len(values) < len(sides):
        lacking = ", ".join(side.name for side in sides if side.name not in values)
        return Decision(criterion="least memory", metric=MEMORY, note=f"Not known of {lacking}.")
    least = min(values.values())
    winners = [name for name, value in values.items() if value <= least * 1.01]
    if len(winners) > 1:
        return Decision(criterion="least memory", metric=MEMORY, note=f"{', '.join(winners)} are within 1 %.")
    return Decision(
        criterion="least memory",
        metric=MEMORY,
        winner=winners[0],
        note="Weights and the KV cache that was used at most.",
    )


def _side_memory(side: Side) -> float | None:
    return mean_known([_memory(run) for run in side.runs])


def _memory(run: Run) -> float | None:
    """Return the memory for the weights and for the KV cache that was used at most, in GiB."""
    weights, cache = (_number(run.hardware.get(name)) for name in ("model_memory_gib", "kv_cache_memory_gib"))
    used = run.use.max_kv_cache_usage_ratio
    return None if weights is None or cache is None or used is None else weights + cache * used


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
