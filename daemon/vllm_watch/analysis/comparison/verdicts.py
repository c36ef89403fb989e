# SPDX-License-Identifier: Apache-2.0
"""The verdict on each metric, all of the family together, and the method in a sentence."""

from __future__ import annotations

import math

from collections.abc import Sequence

from vllm_watch.analysis.comparison.estimate import SIGNIFICANCE, Estimate
from vllm_watch.analysis.comparison.metrics import FAMILY, family_weights
from vllm_watch.analysis.comparison.model import Row, Verdict
from vllm_watch.analysis.comparison.pair import Pair
from vllm_watch.daemon.statistics.ratio import holm_adjusted


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
