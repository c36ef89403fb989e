# SPDX-License-Identifier: Apache-2.0
"""Whether the runs of both sides are sound: long enough, settled, without errors, each there once, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from vllm_watch.analysis.comparison.comparison_model import BY_NAME, Side
from vllm_watch.analysis.comparison.pair import Measured, Pair, headline_metric, metric_values
from vllm_watch.analysis.loadtest.load_test import Result, Run, overlap
from vllm_watch.analysis.loadtest.offered_load import answered_share, load_kind
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.metric_titles import titled
from vllm_watch.daemon.catalog.number_texts import duration, percent
from vllm_watch.daemon.statistics.ratio import coefficient_of_variation
from vllm_watch.daemon.statistics.steady_window import MIN_SECONDS


ACCEPTANCE_TOLERANCE = 0.03
SUCCESS_GOOD = 0.99
SUCCESS_LIMIT = 0.90
ROUNDS = 10
"""How many requests each user of a closed load should send."""
UNSTABLE_CV = 0.10
FEWEST_TO_VARY = 3

_S = TypeVar("_S", Side, Measured)


class Finding(NamedTuple):
    """
    What is wrong, in a sentence; `prevents`: the sides are not comparable, so no difference has a grade.

    Of one side the sentence has ``{side}`` in the place of its name.
    """

    text: str
    prevents: bool = False


def of_sides(sides: Iterable[_S], check: Callable[[_S], Finding | None]) -> Iterator[Finding]:
    """Yield what a check finds of each side; what it finds of several alike is one sentence with their names."""
    names: dict[Finding, list[str]] = {}
    for side in sides:
        finding = check(side)
        if finding is not None:
            names.setdefault(finding, []).append(side.name)
    for finding, of in names.items():
        *first, last = of
        yield finding._replace(text=finding.text.replace("{side}", _(" and ").join([listed(first), last][not first :])))


def check_sides(sides: Sequence[Measured]) -> Iterator[Finding]:
    """Nearly all requests succeeded; runs are long enough to tell of a server that has settled, and none drifts."""
    for check in (_failures, _short, _few_rounds, _drift):
        yield from of_sides(sides, check)


def check_repetition(pair: Pair) -> Iterator[Finding]:
    """No run is there twice: neither as one file, nor as a file and the text that the client printed."""
    runs = [
        (_("{run} of {side}", run=run.name, side=side.name), run, result)
        for side in pair.sides
        for run, result in side.measured_runs
    ]
    for (one, run, result), (other, again, repeated) in combinations(runs, 2):
        is_one_time = run.start == again.start or None in {run.start, again.start}
        if is_one_time and result.duration_s is not None and _printed(result) == _printed(repeated):
            yield Finding(_("One run is there twice: {other} and {one}.", other=other, one=one), prevents=True)
            return


def check_overlap(pair: Pair) -> Iterator[Finding]:
    """No two time ranges of a server are of the same requests."""
    runs = [
        (_("{run} of {side}", run=run.name, side=side.name), run)
        for side in pair.sides
        for run in side.runs
        if run.server is not None
    ]
    for (one, run), (other, later) in combinations(runs, 2):
        if run.server == later.server and overlap(run, later):
            yield Finding(
                _("The times of {one} and {other} overlap: they share requests.", one=one, other=other), prevents=True
            )
            return


def check_burst(pair: Pair) -> Iterator[Finding]:
    """Latencies of a burst are those of its queue."""
    if pair.is_burst:
        yield Finding(_("All requests came at once (a burst): TTFT and E2EL tell how long they waited in the queue."))


def check_saturation(pair: Pair) -> Iterator[Finding]:
    """Both sides were saturated, or neither."""
    states = pair.a.is_saturated, pair.b.is_saturated
    if None not in states and states[0] != states[1]:
        side = pair.a if states[0] else pair.b
        yield Finding(
            _(
                "The server of {name} was saturated and the other was not: its latencies tell how long its queue grew.",
                name=side.name,
            )
        )


def check_variation(pair: Pair) -> Iterator[Finding]:
    """Runs of one configuration are alike."""
    metric = BY_NAME[headline_metric(pair)]
    for side in pair.sides:
        values = metric_values(metric, side)
        cv = coefficient_of_variation(values) if len(values) >= FEWEST_TO_VARY else None
        if cv is not None and cv > UNSTABLE_CV:
            yield Finding(
                _(
                    "The runs of {name} vary by {cv} % in {metric}: something besides the configuration may have "
                    "changed, such as other users of the machine.",
                    name=side.name,
                    cv=percent(cv),
                    metric=titled(metric.name),
                )
            )


def check_acceptance(pair: Pair) -> Iterator[Finding]:
    """Equally many drafts were accepted."""
    a, b = (side.mean(_acceptance) for side in pair.sides)
    if a is not None and b is not None and abs(a - b) > ACCEPTANCE_TOLERANCE:
        yield Finding(_("The shares of drafts that were accepted differ: {a} % and {b} %.", a=percent(a), b=percent(b)))


def check_order(pair: Pair) -> Iterator[Finding]:
    """The sides took turns: otherwise all that changed over time counts as a difference between them."""
    if not are_in_turns(pair):
        yield Finding(
            _(
                "All runs of one side came before those of the other: what changed with time (clocks, heat, caches) "
                "counts as a difference, so none is more than likely. Let the sides take turns.",
            )
        )


def are_in_turns(pair: Pair) -> bool:
    """Return whether the sides took turns, as far as is known, so that a drift is not taken for a difference."""
    a, b = ([run.start for run in side.runs if run.start is not None] for side in pair.sides)
    return min(len(a), len(b)) < 2 or not (max(a) < min(b) or max(b) < min(a))


RUN_CHECKS: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    check_burst,
    check_saturation,
    check_variation,
    check_acceptance,
    check_order,
)
"""In the order of what they say."""


def _printed(result: Result) -> tuple[float | None, ...]:
    """Return what tells one run from another, in the digits that a client prints."""
    means = [latency.mean for latency in (result.ttft_ms, result.tpot_ms) if latency is not None]
    values = (result.successful, result.total_output_tokens, result.duration_s, result.output_throughput, *means)
    return tuple(None if value is None else round(value, 2) for value in values)


def _failures(side: Measured) -> Finding | None:
    """Look for dead runs first: the others of a side do not make up for one, and its 0 is in every mean."""
    dead = [run.name for run, result in side.measured_runs if result.successful == 0]
    if dead and len(dead) == len(side.runs):
        return Finding(_("No request of {side} succeeded."), prevents=True)
    if dead:
        return Finding(_("In {dead} of {{side}} no request succeeded.", dead=_(" and ").join(dead)), prevents=True)
    counts = [
        (result.successful, result.successful / answered_share(run, result))
        for run, result in side.measured_runs
        if result.successful
    ]
    share = sum(good for good, _sent in counts) / sum(sent for _good, sent in counts) if counts else 1.0
    if share >= SUCCESS_GOOD:
        return None
    text = _(
        "Only {share} % of the requests of {{side}} succeeded: failed requests make the others faster.",
        share=percent(share),
    )
    return Finding(text, prevents=share < SUCCESS_LIMIT)


def _short(side: Measured) -> Finding | None:
    if all(result.duration_s is None or result.duration_s >= MIN_SECONDS for result in side.results):
        return None
    return Finding(
        _(
            "A run of {{side}} lasts less than {time}, so the start and the end of the load are a part of the values.",
            time=duration(MIN_SECONDS),
        )
    )


def _few_rounds(side: Measured) -> Finding | None:
    for run, result in side.measured_runs:
        users, answered = run.load.max_concurrency, result.successful
        if load_kind(run.load) == "closed" and users and answered is not None and answered < ROUNDS * users:
            return Finding(
                _(
                    "A run of {{side}} has fewer than {count} requests of each user, so the start and the end of "
                    "the load are a large part of it.",
                    count=ROUNDS,
                )
            )
    return None


def _drift(side: Measured) -> Finding | None:
    problems = [run.steady.problem for run in side.runs if run.steady is not None and run.steady.problem is not None]
    drifts = [problem for problem in problems if not problem.startswith(_("too short"))]
    if not drifts:
        return None
    if len(side.runs) == 1:
        return Finding(_("In the run of {{side}} there is {problem}.", problem=drifts[0]))
    of_several = N_("In {count} of {runs} runs of {{side}} there is {problem}.")
    return Finding(_(of_several, count=len(drifts), runs=len(side.runs), problem=drifts[0]))


def _acceptance(run: Run) -> float | None:
    drafted, wasted = run.use.drafted_tokens, run.use.wasted_draft_tokens
    return None if not drafted or wasted is None else 1 - wasted / drafted
