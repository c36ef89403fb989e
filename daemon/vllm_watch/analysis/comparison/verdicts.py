# SPDX-License-Identifier: Apache-2.0
"""
The one decider of how sure a difference is: the grade of each metric of two sides.

The headline is tested first, alone, with most of the 5 % by which any difference may be falsely shown. If it is
shown, the other metrics of the family share the 5 % among them, else the little that the headline left. So the chance
that any difference is falsely shown is 5 %, and a printed interval leaves out 0 just where its difference is shown.
"""

from __future__ import annotations

import math

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparability import traps
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, FAMILY, MAKESPAN, METRICS, Metric, Row
from vllm_watch.analysis.comparison.estimate import estimate, notes
from vllm_watch.analysis.comparison.pair import Pair, headline_metric, metric_mean, metric_values
from vllm_watch.analysis.comparison.sound_runs import are_in_turns
from vllm_watch.daemon.catalog.language import N_, _, sentences
from vllm_watch.daemon.catalog.number_texts import limit
from vllm_watch.daemon.statistics.ratio import MOST_RUNS, Interval, needed_runs


FALSE = 0.05
"""How often any difference is shown of two equal configurations."""
HEADLINE = 1 - 0.8 * FALSE
"""The confidence at which the headline is judged."""
LIKELY = 0.90
"""A difference is likely if its interval at this confidence leaves out 0."""
TYPICAL_CV = 0.05
"""How much runs are taken to vary where there is one of each side: how many are needed is said, and no more."""
FEWEST_RUNS = 3

_APART = N_("The sides are not comparable.")
_OUTSIDE = N_("It is not one of the metrics that are tested together, so it is no more than likely.")
_ORDER = N_("All runs of one side came first, so a drift may look like this.")
_HOPELESS = N_("Not even {runs:,} runs of each would show so small a difference.")


class _Test(NamedTuple):
    """How a metric is judged: its interval's confidence, and why a difference is no more than likely."""

    metric: Metric
    confidence: float
    doubt: str | None


def graded_rows(pair: Pair, *, are_comparable: bool) -> tuple[Row, ...]:
    """Return the values of each metric that the sides have with its grade, the headline first."""
    refused = traps(pair) if are_comparable else dict.fromkeys(BY_NAME, _(_APART))
    order = None if are_in_turns(pair) else _(_ORDER)
    headline = BY_NAME[headline_metric(pair)]
    first = replace(_graded(_Test(headline, HEADLINE, order), pair, refused), is_headline=True)
    is_passed = first.confidence is None or first.grade == "shown" or _leaves_out_zero(first)
    level = others_confidence(headline.name, is_passed=is_passed)
    tests = (
        _Test(metric, level, order) if metric.in_family else _Test(metric, LIKELY, _(_OUTSIDE))
        for metric in METRICS
        if metric is not headline and _is_shown(metric, pair)
    )
    rows = (first, *(_graded(test, pair, refused) for test in tests))
    return tuple(row for row in rows if row.a is not None or row.b is not None)


def chosen_rows(pair: Pair, names: Iterable[str], *, are_comparable: bool) -> tuple[Row, ...]:
    """Return the metrics that were chosen before any value was seen, each judged by itself at 95 %."""
    refused = traps(pair) if are_comparable else dict.fromkeys(BY_NAME, _(_APART))
    order = None if are_in_turns(pair) else _(_ORDER)
    chosen = [BY_NAME[name] for name in dict.fromkeys(names) if _is_shown(BY_NAME[name], pair)]
    return tuple(_graded(_Test(metric, 1 - FALSE, order), pair, refused) for metric in chosen)


def others_confidence(headline: str, *, is_passed: bool) -> float:
    """Return the confidence at which each other metric of the family is judged, if the headline is shown or not."""
    left = FALSE if is_passed else FALSE - (1 - HEADLINE)
    return 1 - left / len([name for name in FAMILY if name != headline])


def _is_shown(metric: Metric, pair: Pair) -> bool:
    if metric.name == MAKESPAN and not pair.is_burst:
        return False
    has = [bool(metric_values(metric, side)) for side in pair.sides]
    return all(has) or (metric.in_family and any(has))


def _graded(test: _Test, pair: Pair, refused: Mapping[str, str]) -> Row:
    row = _ungraded(test.metric, pair)
    unknown = [side.name for side in pair.sides if not metric_values(test.metric, side)]
    refusal = _("No value is known of {name}.", name=unknown[0]) if unknown else refused.get(test.metric.name)
    if refusal is not None:
        return replace(row, reason=refusal)
    if pair.is_single:
        needed = needed_runs(TYPICAL_CV, _size(row), HEADLINE)
        return replace(
            row,
            grade="in_these_two_runs",
            reason=_("There is one run of each side."),
            needed_runs=None if needed is None else max(needed, FEWEST_RUNS),
        )
    if min(value for side in pair.sides for value in metric_values(test.metric, side)) <= 0:
        return _by_zeros(row, pair, test)
    known = estimate(test.metric, pair, test.confidence)
    if known.interval is None:
        return replace(row, reason=known.refusal)
    row = replace(row, low=_percent(known.low), high=_percent(known.high), confidence=test.confidence)
    return _by_interval(row, known.interval, test._replace(doubt=known.doubt or test.doubt))


def _by_interval(row: Row, interval: Interval, test: _Test) -> Row:
    """Return a row with the grade that its interval gives it."""
    if _leaves_out_zero(row) and test.doubt is None:
        note = _smaller(test.metric, row, _("It is below {limit} %, which hardly matters."))
        return replace(row, grade="shown", note=_joined(row.note, note))
    needed = None
    if test.doubt in {None, _(_ORDER)}:  # Runs in turns leave no such doubt.
        cv = interval.error / math.sqrt(sum(1 / number for number in row.runs))
        needed = needed_runs(cv, _size(row), test.confidence)
    if _leaves_out_zero(row) or interval.p < 1 - LIKELY:
        only = _(
            "Its {likely} % interval leaves out 0, but not that of {confidence} %.",
            likely=_per_cent(LIKELY),
            confidence=_per_cent(test.confidence),
        )
        return replace(row, grade="likely", reason=test.doubt or only, needed_runs=needed)
    small = _smaller(test.metric, row, _("If there is a difference, it is below {limit} %, which hardly matters."))
    if small is not None:
        return replace(row, reason=small)
    why = _(_HOPELESS, runs=MOST_RUNS) if needed is None and test.doubt is None else _("The interval holds 0.")
    return replace(row, reason=why, needed_runs=needed)


def _by_zeros(row: Row, pair: Pair, test: _Test) -> Row:
    """
    Return the grade of a metric with zeros, which have no ratio: it depends on how many runs there are.

    If each run of any side had a zero by the same chance, all runs of just one side would have it in so many cases at
    most.
    """
    is_zero = [{value <= 0 for value in metric_values(test.metric, side)} for side in pair.sides]
    row = replace(row, confidence=test.confidence)
    if is_zero not in ([{True}, {False}], [{False}, {True}]):
        return replace(row, reason=_("Some values are 0, which has no ratio."))
    side = pair.a if is_zero[0] == {True} else pair.b
    chance = (1 + (row.runs[0] == row.runs[1])) / 4 ** min(row.runs)
    why = _("{name} has 0 in each run.", name=side.name)
    if chance <= 1 - test.confidence and test.doubt is None:
        return replace(row, grade="shown", note=_joined(row.note, why), low=row.percent, high=row.percent)
    needed = math.ceil(math.log(2 / (1 - test.confidence), 4)) if test.doubt is None else None
    is_likely = chance <= 1 - LIKELY
    return replace(
        row, grade="likely" if is_likely else "not_decided", reason=_joined(why, test.doubt), needed_runs=needed
    )


def _leaves_out_zero(row: Row) -> bool:
    return (row.low is not None and row.low > 0) or (row.high is not None and row.high < 0)


def _ungraded(metric: Metric, pair: Pair) -> Row:
    """Return the values of both sides, and their difference if both have one."""
    a, b = (metric_mean(metric, side) for side in pair.sides)
    counts = len(metric_values(metric, pair.a)), len(metric_values(metric, pair.b))
    return Row(
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        a=a,
        b=b,
        difference=None if a is None or b is None else b - a,
        percent=None if not a or b is None else (b / a - 1) * 100,
        note=_joined(*notes(metric, pair)),
        runs=counts,
    )


def _smaller(metric: Metric, row: Row, text: str) -> str | None:
    """Return a text, with the limit, if the whole interval is below what matters."""
    most = max((math.inf if bound is None else abs(bound) for bound in (row.low, row.high)), default=math.inf)
    return text.format(limit=limit(metric.matters * 100)) if most <= metric.matters * 100 else None


def _size(row: Row) -> float:
    """Return a difference as the relative one that is above 0: half as much is as far away as twice as much."""
    if not row.difference:
        return 0.0
    return max(row.a, row.b) / min(row.a, row.b) - 1 if row.a and row.b else math.inf


def _joined(*texts: str | None) -> str | None:
    return sentences(each for each in texts if each) or None


def _per_cent(confidence: float) -> str:
    return limit(round(confidence * 100, 2))


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None or math.isinf(ratio) else (ratio - 1) * 100
