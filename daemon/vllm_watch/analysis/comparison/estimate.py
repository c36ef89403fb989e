# SPDX-License-Identifier: Apache-2.0
"""
What is known of one metric on two sides: the ratio of b to a and its interval.

With several runs the run is the unit. With one run a side the blocks of its steady window are, and the interval is
widened by a stated variation between runs.
"""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from vllm_watch.analysis.comparison.comparison_model import Metric, metric_bounds, metric_value, needed_values
from vllm_watch.analysis.comparison.pair import (
    Measured,
    Pair,
    is_near_saturation,
    load_kind,
    metric_mean,
    metric_values,
    speculation,
    varies_by_chance,
)
from vllm_watch.analysis.loadtest.load_test import Bounds, Run, bounded
from vllm_watch.daemon.catalog.number_texts import limit
from vllm_watch.daemon.statistics.ratio import (
    CONFIDENCE,
    MIN_BLOCKS,
    block_interval,
    detectable_ratio,
    permutation_p,
    ratio_interval,
)


SIGNIFICANCE = 1 - CONFIDENCE

_FEW_USERS = 8
_FEW_USERS_FACTOR = 4.0
"""With drafts and fewer than eight users a run varies several times as much."""
_OPEN_FACTOR = 1.5
"""At a fixed rate a slower server also has a larger batch, which makes it slower still."""
_ONE_RUN = "There is one run of each side, and that of"
_MORE = "Give several runs of each."
_FOUND_IN_NINE_OF_TEN = 1 + 1.2816 / 1.96

Unit = Literal["runs", "blocks", "none"]


class Estimate(NamedTuple):
    """
    One metric on two sides: `low`, `ratio` and `high` are b to a.

    `p` is that of a single test; of blocks, `is_apart` says whether the interval of the asked confidence leaves out 1.
    `detectable` is the smallest ratio that is found in nine of ten cases.
    """

    metric: Metric
    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    n: tuple[int, int] = (0, 0)
    unit: Unit = "none"
    p: float | None = None
    is_apart: bool = False
    detectable: float | None = None
    note: str | None = None


def estimate(metric: Metric, pair: Pair, confidence: float = CONFIDENCE) -> Estimate | None:
    """Return what is known of a metric, `None` without values to show; a difference is found with this confidence."""
    a, b = (metric_values(metric, side) for side in pair.sides)
    if not (a or b) or not (metric.in_family or (a and b)):
        return None
    known = Estimate(metric, metric_mean(metric, pair.a), metric_mean(metric, pair.b), n=(len(a), len(b)), unit="runs")
    note = _missing(metric, pair, (a, b))
    if note is not None:
        return known._replace(note=note)
    if pair.is_single:
        return _of_blocks(known, pair, confidence)
    queue = _by_queue(metric, pair)
    if queue is not None:
        return known._replace(note=queue)
    return _with_bounds(_of_runs(known, a, b, confidence), _bounds(metric, pair.a), _bounds(metric, pair.b))


def _missing(metric: Metric, pair: Pair, values: Sequence[Sequence[float]]) -> str | None:
    for side, known in zip(pair.sides, values, strict=True):
        if not known:
            return f"No value is known of {side.name}."
        if min(known) <= 0:
            return f"A value of {side.name} is {limit(min(known))}, which has no ratio."
        few = [needed for result in side.results if (needed := needed_values(metric, result)) is not None]
        if few:
            return f"{metric.statistic.upper()} needs {few[0]} requests in each run, and {side.name} has fewer."
    return None


def _of_runs(known: Estimate, a: Sequence[float], b: Sequence[float], confidence: float) -> Estimate:
    found = ratio_interval(a, b)
    if found is None:
        return known._replace(note="All runs of a side have the same value, so nothing is known of how they vary.")
    check = permutation_p(a, b)
    is_doubtful = check is not None and found.p < SIGNIFICANCE < check
    single = next((name for name, values in (("a", a), ("b", b)) if len(values) == 1), None)
    return known._replace(
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p=1.0 if is_doubtful else found.p,
        detectable=detectable_ratio(found.error, found.degrees, confidence),
        note=f"The exact permutation test does not agree (p = {check:.2f})."
        if is_doubtful
        else "A side of one run is taken to vary as the other does."
        if single
        else None,
    )


def _bounds(metric: Metric, side: Measured) -> Bounds | None:
    """Return the bounds of all runs together, if any run has its percentile from buckets."""
    known = [bounds for result in side.results if (bounds := metric_bounds(metric, result)) is not None]
    if not known:
        return None
    lows, highs = [each.low for each in known], [each.high for each in known]
    exact = [
        value
        for result in side.results
        if metric_bounds(metric, result) is None and (value := metric_value(metric, result)) is not None
    ]
    return Bounds(
        low=None if None in lows else min([*(low for low in lows if low is not None), *exact]),
        high=None if None in highs else max([*(high for high in highs if high is not None), *exact]),
    )


def _with_bounds(known: Estimate, a: Bounds | None, b: Bounds | None) -> Estimate:
    """Widen an interval to what the buckets leave open: values in one bucket only seem to be the same."""
    if (a is None and b is None) or known.a is None or known.b is None:
        return known
    a, b = a or Bounds(low=known.a, high=known.a), b or Bounds(low=known.b, high=known.b)
    note = f"From buckets: {bounded(a)} and {bounded(b)} {known.metric.unit}."
    if known.ratio is None:
        return known._replace(note=note)
    low = None if b.low is None or not a.high else b.low / a.high
    high = None if b.high is None or not a.low else b.high / a.low
    do_overlap = (low is None or low <= 1) and (high is None or high >= 1)
    return known._replace(
        low=None if low is None or known.low is None else min(low, known.low),
        high=None if high is None or known.high is None else max(high, known.high),
        p=1.0 if do_overlap else known.p,
        detectable=None,
        note=note,
    )


def _by_queue(metric: Metric, pair: Pair) -> str | None:
    """
    Return why TTFT tells nothing: near saturation it is that of a queue.

    If a queue is left to chance, some runs have none and others a long one: an interval of a few runs is too narrow.
    """
    if metric.latency != "ttft_ms":
        return None
    near = [
        is_near_saturation(run, result)
        for side in pair.sides
        for run, result in zip(side.runs, side.results, strict=True)
        if pair.is_single or varies_by_chance(run)
    ]
    if all(each is False for each in near):
        return None
    state = "saturation" if True in near else "saturation, which cannot be excluded here,"
    told = (
        "one run of each side tells nothing of TTFT."
        if pair.is_single
        else "a few runs of each side tell nothing of TTFT: some have a queue and others do not."
    )
    return f"Near {state} {told} {_what_tells_more(pair, is_known=True in near)}"


def _what_tells_more(pair: Pair, *, is_known: bool) -> str:
    if not is_known:
        return "Give the server's log or a recording with each run."
    if any(varies_by_chance(run) for side in pair.sides for run in side.runs):
        return "Test at a lower rate, or with a fixed number of users (--max-concurrency)."
    return _MORE


def _of_blocks(known: Estimate, pair: Pair, confidence: float) -> Estimate:
    metric, runs = known.metric, (pair.a.runs[0], pair.b.runs[0])
    if metric.cv_of_runs is None:
        return known._replace(note="One run of each side tells nothing of it: it varies too much between runs.")
    queue = _by_queue(metric, pair)
    if queue is not None:
        return known._replace(note=queue)
    blocks = [_blocks(run, metric.name) for run in runs]
    note = next((text for text in map(_no_blocks, pair.sides, blocks) if text is not None), None)
    if note is not None:
        return known._replace(note=note)
    cv = metric.cv_of_runs * _load_factor(runs)
    shown, together = (block_interval(blocks[0], blocks[1], cv, each) for each in (CONFIDENCE, confidence))
    if shown is None or together is None:
        return known._replace(note="A block has no positive mean.")
    return known._replace(
        a=fmean(blocks[0]),
        b=fmean(blocks[1]),
        ratio=shown.ratio,
        low=shown.low,
        high=shown.high,
        n=(len(blocks[0]), len(blocks[1])),
        unit="blocks",
        is_apart=together.is_different,
        detectable=math.exp(together.half * _FOUND_IN_NINE_OF_TEN),
        note=f"Within one run; runs of one configuration are taken to vary by {limit(100 * cv)} %.",
    )


def _blocks(run: Run, name: str) -> tuple[float, ...]:
    blocks: Mapping[str, tuple[float, ...]] = {} if run.steady is None else run.steady.blocks
    return blocks.get(name, ())


def _no_blocks(side: Measured, blocks: Sequence[float]) -> str | None:
    steady = side.runs[0].steady
    if steady is None:
        return f"{_ONE_RUN} {side.name} has no steady window. {_MORE}"
    if steady.problem is not None:
        return f"{_ONE_RUN} {side.name} is not enough ({steady.problem}). {_MORE}"
    if len(blocks) < MIN_BLOCKS:
        return f"{_ONE_RUN} {side.name} has too few blocks of it. {_MORE}"
    return None


def _load_factor(runs: Sequence[Run]) -> float:
    """Return how many times as much runs of this load vary as those of many users without a given rate."""
    factors = [1.0]
    for run in runs:
        users = run.load.max_concurrency
        if load_kind(run.load) == "open":
            factors.append(_OPEN_FACTOR)
        elif users is not None and users < _FEW_USERS and speculation(run) not in {None, "off"}:
            factors.append(_FEW_USERS_FACTOR)
    return max(factors)
