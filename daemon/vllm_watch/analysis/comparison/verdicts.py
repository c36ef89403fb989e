# SPDX-License-Identifier: Apache-2.0
"""The one decider: the verdict on each metric, all of the family together, and which of several configurations wins."""

from __future__ import annotations

import math

from collections.abc import Sequence

from vllm_watch.analysis.comparison.comparability import Traps, side_settings
from vllm_watch.analysis.comparison.comparison_model import Decision, MatrixRow, Row, Side, Verdict
from vllm_watch.analysis.comparison.estimate import SIGNIFICANCE, Estimate, estimate
from vllm_watch.analysis.comparison.metrics import BY_NAME, FAMILY, GOODPUT, OUTPUT, TPOT, Metric, family_weights
from vllm_watch.analysis.comparison.pair import Measured, Pair, common_view, mean_known, measured, metric_mean
from vllm_watch.analysis.loadtest.model import Run, View
from vllm_watch.daemon.statistics.holm import holm_adjusted


_OUTSIDE = "No verdict: it is not one of the six metrics that are tested together, so the interval is for it alone."
_SERVER_VIEW = " The server's view: a percentile is only known to be in a bucket, and its value is an estimate there."
_EXPLAINED = " To read more: vllm-watch compare --explain."
_HOPELESS = 10.0
_MORE_RUNS = "There are too few runs for how much they vary: not even a factor of ten would have been found."
_CORRECTED = "The interval leaves out 0, but six metrics are tested together, and then it is not enough."


def verdict_rows(estimates: Sequence[Estimate], headline: str) -> tuple[Row, ...]:
    """
    Return the rows of the metrics that are compared.

    Args:
        estimates: Of these metrics; those of the family are tested together.
        headline: The metric that was chosen before any value was seen.
    """
    tested = {each.metric.name: each.p for each in estimates if each.metric.in_family and each.p is not None}
    adjusted = holm_adjusted(tested, family_weights(headline))
    return tuple(_row(each, adjusted.get(each.metric.name), headline) for each in estimates)


def blocked_row(known: Estimate, note: str, headline: str) -> Row:
    """Return the row of a metric that the sides cannot be compared in: its values, and why."""
    return Row(
        metric=known.metric.name,
        unit=known.metric.unit,
        higher_is_better=known.metric.higher_is_better,
        verdict="not_compared",
        a=known.a,
        b=known.b,
        n=known.n,
        is_headline=known.metric.name == headline,
        note=note,
    )


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


def _row(known: Estimate, adjusted: float | None, headline: str) -> Row:
    verdict, note = _verdict(known, adjusted)
    has_interval = known.ratio is not None
    return Row(
        metric=known.metric.name,
        unit=known.metric.unit,
        higher_is_better=known.metric.higher_is_better,
        verdict=verdict,
        a=known.a,
        b=known.b,
        difference=known.b - known.a if has_interval and known.a is not None and known.b is not None else None,
        percent=_percent(known.ratio),
        low=_percent(known.low),
        high=_percent(known.high),
        n=known.n,
        detectable_percent=_percent(known.detectable) if known.metric.in_family and not _is_hopeless(known) else None,
        is_headline=known.metric.name == headline,
        note=" ".join(text for text in (known.note, note) if text) or None,
    )


def _verdict(known: Estimate, adjusted: float | None) -> tuple[Verdict, str | None]:
    """Return the verdict on one metric, and what must be said with it."""
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


def _is_hopeless(known: Estimate) -> bool:
    """Return whether nothing that occurs would have been found."""
    return known.detectable is not None and known.detectable > _HOPELESS


def _percent(ratio: float | None) -> float | None:
    """Return a ratio as a difference in per cent; one beyond all numbers is not known."""
    return None if ratio is None or math.isinf(ratio) else (ratio - 1) * 100


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
            values=tuple(_matrix_values(side, view)),
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


def _matrix_values(side: Side, view: View | None) -> list[tuple[str, float]]:
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
    weights, cache = (_as_number(run.hardware.get(name)) for name in ("model_memory_gib", "kv_cache_memory_gib"))
    used = run.use.max_kv_cache_usage_ratio
    return None if weights is None or cache is None or used is None else weights + cache * used


def _as_number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
