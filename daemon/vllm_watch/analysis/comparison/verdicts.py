# SPDX-License-Identifier: Apache-2.0
"""
The one decider of whether a difference is real: the verdict on each metric, and which of several configurations wins.

The metrics of the family are tested together. A configuration wins by a metric if these verdicts call it better than
each of the others, so a matrix of several says nothing that its pairs do not say.
"""

from __future__ import annotations

import math

from collections.abc import Sequence

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparability import side_settings, traps
from vllm_watch.analysis.comparison.comparison_model import (
    BY_NAME,
    FAMILY,
    GOODPUT,
    METRICS,
    OUTPUT,
    TPOT,
    Decision,
    MatrixRow,
    Metric,
    Row,
    Side,
    Verdict,
    family_weights,
)
from vllm_watch.analysis.comparison.estimate import SIGNIFICANCE, Estimate, estimate
from vllm_watch.analysis.comparison.pair import (
    Measured,
    Pair,
    common_view,
    headline_metric,
    mean_known,
    measured,
    metric_mean,
)
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.statistics.ratio import holm_adjusted


MEMORY = "memory_gib"

_CRITERIA = (
    ("lowest TTFT", "ttft_ms.p50"),
    ("most throughput", OUTPUT),
    ("most users within the objective", GOODPUT),
)
_MATRIX = ("ttft_ms.p50", TPOT, OUTPUT, GOODPUT)
_OUTSIDE = "No verdict: it is not one of the metrics that are tested together, so the interval is for it alone."
_SERVER_VIEW = " The server's view: a percentile is only known to be in a bucket, and its value is an estimate there."
_EXPLAINED = " To read more: vllm-watch compare --explain."
_HOPELESS = 10.0
_MORE_RUNS = "There are too few runs for how much they vary: not even a factor of ten would have been found."
_CORRECTED = "The interval leaves out 0, but several metrics are tested together, and then it is not enough."


def verdict_rows(pair: Pair) -> tuple[Row, ...]:
    """Return the verdict on each metric that a side has, the headline first."""
    headline, trapped = headline_metric(pair), traps(pair)
    weights = family_weights(headline)
    estimates = [
        found
        for metric in METRICS
        if (found := estimate(metric, pair, 1 - SIGNIFICANCE * weights.get(metric.name, 1.0))) is not None
    ]
    tested = {
        each.metric.name: each.p
        for each in estimates
        if each.metric.in_family and each.p is not None and each.metric.name not in trapped
    }
    adjusted = holm_adjusted(tested, weights)
    rows = []
    for each in estimates:
        name = each.metric.name
        if name in trapped:
            bare = Estimate(each.metric, each.a, each.b, n=each.n, note=trapped[name])
            rows.append(_row(bare, "not_compared", None, is_headline=name == headline, is_single=False))
        else:
            rows.append(
                _row(each, *_verdict(each, adjusted.get(name)), is_headline=name == headline, is_single=pair.is_single)
            )
    return tuple(sorted(rows, key=lambda row: not row.is_headline))


def method(pair: Pair) -> str:
    """Return how the verdicts came about, in one sentence or two."""
    seen = "" if pair.view == "client" else _SERVER_VIEW
    if pair.is_single:
        return (
            "Within one run: blocks of each steady window, 95 % intervals widened by a stated variation between runs, "
            f"Bonferroni's correction over {len(FAMILY)} metrics fixed beforehand. Only more runs can say what another "
            f"run would show.{seen}{_EXPLAINED}"
        )
    check = ", exact permutation test as a cross-check" if min(len(side.runs) for side in pair.sides) >= 5 else ""
    counts = " and ".join(str(len(side.runs)) for side in pair.sides)
    return (
        f"The run is the unit ({counts} runs): Student's t on the logarithm of each run's value (Welch), 95 % "
        f"intervals of the ratio, Holm's correction over {len(FAMILY)} metrics fixed beforehand{check}.{seen}"
        f"{_EXPLAINED}"
    )


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
    """Return who wins by each criterion; nobody where it is not shown."""
    view = common_view(sides)
    if view is None:
        return ()
    in_view = [measured(side, view) for side in sides]
    return (
        *(_decision(criterion, BY_NAME[name], in_view, view) for criterion, name in _CRITERIA),
        _memory_decision(sides),
    )


def _verdict(known: Estimate, adjusted: float | None) -> tuple[Verdict, str | None]:
    """Return the verdict on one metric by its estimate and its p after Holm's correction, and what must be added."""
    if known.ratio is None:
        return "too_few", None
    low = -math.inf if known.low is None else known.low - 1
    high = math.inf if known.high is None else known.high - 1
    metric, leaves_out_zero = known.metric, low > 0 or high < 0
    if metric.in_family and -metric.matters <= low and high <= metric.matters:
        return "below_what_matters", None
    is_found = known.is_apart if known.unit == "blocks" else adjusted is not None and adjusted < SIGNIFICANCE
    if leaves_out_zero and metric.in_family and is_found:
        return ("better" if (low > 0) == metric.higher_is_better else "worse"), None
    if leaves_out_zero:
        return ("no_difference_shown", _CORRECTED) if metric.in_family else ("not_compared", _OUTSIDE)
    return ("too_few", _MORE_RUNS) if _is_hopeless(known) else ("no_difference_shown", None)


def _row(known: Estimate, verdict: Verdict, note: str | None, *, is_headline: bool, is_single: bool) -> Row:
    text = " ".join(each for each in (known.note, note) if each) or None
    has_difference = known.ratio is not None and known.a is not None and known.b is not None
    return Row(
        metric=known.metric.name,
        unit=known.metric.unit,
        higher_is_better=known.metric.higher_is_better,
        grade="in_these_two_runs" if is_single else "shown" if verdict in {"better", "worse"} else "not_decided",
        reason=text,
        runs=known.n,
        verdict=verdict,
        a=known.a,
        b=known.b,
        difference=(known.b or 0.0) - (known.a or 0.0) if has_difference else None,
        percent=_percent(known.ratio),
        low=_percent(known.low),
        high=_percent(known.high),
        n=known.n,
        detectable_percent=_percent(known.detectable) if known.metric.in_family and not _is_hopeless(known) else None,
        is_headline=is_headline,
        note=text,
    )


def _is_hopeless(known: Estimate) -> bool:
    return known.detectable is not None and known.detectable > _HOPELESS


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None or math.isinf(ratio) else (ratio - 1) * 100


def _matrix_values(side: Side, view: View | None) -> dict[str, float]:
    values = {} if view is None else {name: metric_mean(BY_NAME[name], measured(side, view)) for name in _MATRIX}
    values[MEMORY] = _memory(side)
    return {name: value for name, value in values.items() if value is not None}


def _decision(criterion: str, metric: Metric, sides: Sequence[Measured], view: View) -> Decision:
    """Return which side is better than each of the others: the second best is one of them, so no correction is due."""
    undecided = Decision(criterion=criterion, metric=metric.name)
    values = [metric_mean(metric, side) for side in sides]
    lacking = [side.name for side, value in zip(sides, values, strict=True) if value is None]
    if lacking:
        hint = " Give an objective." if metric.name == GOODPUT else ""
        return replace(undecided, note=f"Not known of {', '.join(lacking)}.{hint}")
    ranked = sorted(range(len(sides)), key=lambda at: values[at] or 0.0, reverse=metric.higher_is_better)
    best, others = ranked[0], sorted(ranked[1:])
    rows = [_row_of(metric, Pair(sides[min(best, other)], sides[max(best, other)], view)) for other in others]
    trap = next((row.note for row in rows if row.verdict == "not_compared"), None)
    if trap is not None:
        return replace(undecided, note=trap)
    not_shown = [
        sides[other].name
        for other, row in zip(others, rows, strict=True)
        if row.verdict != ("better" if other < best else "worse")
    ]
    if not_shown:
        note = f"{sides[best].name} has the best value, but a difference to {', '.join(not_shown)} is not shown."
        return replace(undecided, note=note)
    is_single = any(len(sides[best].runs) == len(sides[other].runs) == 1 for other in others)
    return replace(undecided, winner=sides[best].name, note="Within one run." if is_single else None)


def _row_of(metric: Metric, pair: Pair) -> Row:
    return next(row for row in verdict_rows(pair) if row.metric == metric.name)


def _memory_decision(sides: Sequence[Side]) -> Decision:
    undecided = Decision(criterion="least memory", metric=MEMORY)
    values = {side.name: value for side in sides if (value := _memory(side)) is not None}
    if len(values) < len(sides):
        lacking = ", ".join(side.name for side in sides if side.name not in values)
        return replace(undecided, note=f"Not known of {lacking}.")
    winners = [name for name, value in values.items() if value <= min(values.values()) * 1.01]
    if len(winners) > 1:
        return replace(undecided, note=f"{', '.join(winners)} are within 1 %.")
    return replace(undecided, winner=winners[0], note="Weights and the KV cache that was used at most.")


def _memory(side: Side) -> float | None:
    return mean_known([_run_memory(run) for run in side.runs])


def _run_memory(run: Run) -> float | None:
    used = run.use.max_kv_cache_usage_ratio
    try:
        weights, cache = (float(run.hardware[name]) for name in ("model_memory_gib", "kv_cache_memory_gib"))
    except (KeyError, ValueError):
        return None
    return None if used is None else weights + cache * used
