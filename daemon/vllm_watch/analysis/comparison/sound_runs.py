# SPDX-License-Identifier: Apache-2.0
"""Whether the runs of both sides are sound: long enough, settled, without errors, each there once, in turns."""

from __future__ import annotations

import math

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple, TypeVar

from vllm_watch.analysis.comparison.comparison_model import BY_NAME, Side
from vllm_watch.analysis.comparison.pair import Measured, Pair, headline_metric, load_kind, metric_values, speculations
from vllm_watch.analysis.loadtest.load_test import Phase, Result, Run, overlap, seconds
from vllm_watch.daemon.catalog.metric_titles import titled
from vllm_watch.daemon.catalog.number_texts import duration, moment, percent
from vllm_watch.daemon.statistics.ratio import coefficient_of_variation
from vllm_watch.daemon.statistics.steady_window import MIN_SECONDS
from vllm_watch.daemon.statistics.throughput_fit import check_littles_law


ACCEPTANCE_TOLERANCE = 0.03
SUCCESS_GOOD = 0.99
SUCCESS_LIMIT = 0.90
ROUNDS = 10
"""How many requests each user of a closed load should send."""
IDLE_SHARE = 0.1
UNSTABLE_CV = 0.10
FEWEST_TO_VARY = 3

_S = TypeVar("_S", Side, Measured)


class Finding(NamedTuple):
    """What is wrong, in a sentence; `prevents`: the sides are not comparable, so no difference has a grade."""

    text: str
    prevents: bool = False


class SideFinding(NamedTuple):
    """What is wrong with a side: the sentence before its name and after it."""

    before: str
    after: str
    prevents: bool = False


def of_sides(sides: Iterable[_S], check: Callable[[_S], SideFinding | None]) -> Iterator[Finding]:
    """Yield what a check finds of each side; what it finds of several alike is one sentence with their names."""
    names: dict[SideFinding, list[str]] = {}
    for side in sides:
        finding = check(side)
        if finding is not None:
            names.setdefault(finding, []).append(side.name)
    for (before, after, prevents), of in names.items():
        yield Finding(f"{before} {' and '.join(of)} {after}", prevents)


def check_repetition(pair: Pair) -> Iterator[Finding]:
    """No run is there twice."""
    seen: list[tuple[Result, float | None]] = []
    names: list[str] = []
    for side, run, result in _all_runs(pair):
        if result.duration_s is not None and (result, run.start) in seen:
            twin = names[seen.index((result, run.start))]
            yield Finding(f"One run is there twice: {run.name} of {side.name} and {twin}.", prevents=True)
            return
        seen.append((result, run.start))
        names.append(f"{run.name} of {side.name}")


def check_overlap(pair: Pair) -> Iterator[Finding]:
    """No two time ranges of a server are of the same requests; of which server a file is, is not known."""
    runs = [(side.name, run) for side, run, _ in _all_runs(pair)]
    doubt: str | None = None
    for (one, run), (other, later) in combinations(runs, 2):
        if not overlap(run, later):
            continue
        text = f"The times of {run.name} of {one} and {later.name} of {other} overlap"
        if run.server == later.server is not None:
            yield Finding(f"{text}: they share requests.", prevents=True)
            return
        if (run.server is None) != (later.server is None):
            doubt = doubt or text
    if doubt is not None:
        yield Finding(f"{doubt}: if they are of one server, they share requests.")


def check_errors(pair: Pair) -> Iterator[Finding]:
    """Nearly all requests succeeded: failed ones make all the others faster."""
    yield from of_sides(pair.sides, _failures)
    yield from of_sides(pair.sides, _missing_answers)


def check_duration(pair: Pair) -> Iterator[Finding]:
    """Each run is long enough, and each user sends enough requests, to tell of a server that has settled."""
    yield from of_sides(pair.sides, _short)
    yield from of_sides(pair.sides, _few_rounds)


def check_idle(pair: Pair) -> Iterator[Finding]:
    """A load that no client measured has no long time without work in it, such as that after a warm-up."""
    if pair.view == "server":
        yield from of_sides(pair.sides, _idle)


def check_saturation(pair: Pair) -> Iterator[Finding]:
    """Both sides were saturated, or neither."""
    states = pair.a.is_saturated, pair.b.is_saturated
    if None not in states and states[0] != states[1]:
        side = pair.a if states[0] else pair.b
        yield Finding(
            f"The server of {side.name} was saturated and the other was not: its latencies tell how long its queue "
            "grew.",
        )


def check_steadiness(pair: Pair) -> Iterator[Finding]:
    """No run drifts, and by Little's law a closed load had as many requests in flight as it has users."""
    yield from of_sides(pair.sides, _drift)
    yield from of_sides(pair.sides, _in_flight)


def check_variation(pair: Pair) -> Iterator[Finding]:
    """Runs of one configuration are alike."""
    metric = BY_NAME[headline_metric(pair)]
    values = {side.name: metric_values(metric, side) for side in pair.sides}
    cvs = {name: coefficient_of_variation(each) for name, each in values.items() if len(each) >= FEWEST_TO_VARY}
    varying = {name: cv for name, cv in cvs.items() if cv is not None and cv > UNSTABLE_CV}
    for name, cv in varying.items():
        yield Finding(
            f"The runs of {name} vary by {percent(cv)} % in {titled(metric.name)}: something besides the "
            "configuration may have changed, such as other users of the machine."
        )


def check_acceptance(pair: Pair) -> Iterator[Finding]:
    """With the same speculative decoding equally many drafts were accepted."""
    ways = speculations(pair)
    a, b = (side.mean(_acceptance) for side in pair.sides)
    if ways[0] == ways[1] and a is not None and b is not None and abs(a - b) > ACCEPTANCE_TOLERANCE:
        text = f"The shares of drafts that were accepted differ: {percent(a)} % and {percent(b)} %."
        yield Finding(text)


def check_burst(pair: Pair) -> Iterator[Finding]:
    """Latencies of a burst are those of its queue."""
    if pair.is_burst:
        yield Finding("All requests came at once (a burst): TTFT and E2EL tell how long they waited in the queue.")


def check_order(pair: Pair) -> Iterator[Finding]:
    """The sides took turns: otherwise all that changed over time counts as a difference between them."""
    if are_in_turns(pair):
        return
    yield Finding(
        "All runs of one side came before those of the other: what changed with time (clocks, heat, caches) counts "
        "as a difference, so none is more than likely. Let the sides take turns.",
    )


def are_in_turns(pair: Pair) -> bool:
    """Return whether the sides took turns, as far as is known, so that a drift is not taken for a difference."""
    a, b = ([run.start for run in side.runs if run.start is not None] for side in pair.sides)
    return min(len(a), len(b)) < 2 or not (max(a) < min(b) or max(b) < min(a))


RUN_CHECKS: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    check_errors,
    check_duration,
    check_idle,
    check_burst,
    check_saturation,
    check_steadiness,
    check_variation,
    check_acceptance,
    check_order,
)
"""In the order of what they say."""


def _all_runs(pair: Pair) -> Iterator[tuple[Measured, Run, Result]]:
    for side in pair.sides:
        for run, result in zip(side.runs, side.results, strict=True):
            yield side, run, result


def _idle(side: Measured) -> SideFinding | None:
    for run in side.runs:
        pauses = [phase for phase in run.phases if phase.phase == "idle" and _within(phase, run)]
        idle = sum(_within(phase, run) for phase in pauses)
        if len(run.views) == 1 and idle > IDLE_SHARE * seconds(run) > 0:
            longest = max(pauses, key=lambda phase: _within(phase, run))
            lengths = f"{duration(round(idle))} of the {duration(round(seconds(run)))}"
            return SideFinding(
                "The server of",
                f"had no work for {lengths} of {run.name} (its longest pause ends at {moment(longest.end)} UTC): rates "
                "are lower by that. If that is the pause after a warm-up, let the time begin at its end.",
            )
    return None


def _failures(side: Measured) -> SideFinding | None:
    """Look for dead runs first: the others of a side do not make up for one, and its 0 is in every mean."""
    dead = [run.name for run, result in zip(side.runs, side.results, strict=True) if result.successful == 0]
    if dead and len(dead) == len(side.runs):
        return SideFinding("No request of", "succeeded.", prevents=True)
    if dead:
        return SideFinding(f"In {' and '.join(dead)} of", "no request succeeded.", prevents=True)
    counts = [(r.successful, r.failed) for r in side.results if r.successful is not None and r.failed is not None]
    good, all_of_them = sum(good for good, _ in counts), sum(good + bad for good, bad in counts)
    if not all_of_them or good >= SUCCESS_GOOD * all_of_them:
        return None
    share = good / all_of_them
    before, after = f"Only {percent(share)} % of the requests of", "succeeded: failed requests make the others faster."
    return SideFinding(before, after, prevents=share < SUCCESS_LIMIT)


def _missing_answers(side: Measured) -> SideFinding | None:
    """Look at the prompts of the runs whose client does not count failures."""
    counts = [
        (result.successful, run.load.num_prompts)
        for run, result in zip(side.runs, side.results, strict=True)
        if result.view == "client" and result.failed is None and result.successful is not None and run.load.num_prompts
    ]
    asked = sum(prompts for _, prompts in counts)
    share = sum(answers for answers, _ in counts) / asked if asked else 1.0
    if share >= SUCCESS_GOOD:
        return None
    return SideFinding(
        f"Only {percent(share)} % of the prompts of",
        "that were asked for have an answer: how many failed is not known, and failed requests make the others faster.",
        prevents=share < SUCCESS_LIMIT,
    )


def _short(side: Measured) -> SideFinding | None:
    lasted = [result.duration_s for result in side.results if result.duration_s is not None]
    if not lasted or min(lasted) >= MIN_SECONDS:
        return None
    before, last = ("The run of", "lasts") if len(side.runs) == 1 else ("The runs of", "last")
    return SideFinding(
        before,
        f"{last} only {_below(min(lasted), 10)}: the start and the end of the load are a part of the values. "
        f"Runs of {duration(MIN_SECONDS)} or longer are advised.",
    )


def _few_rounds(side: Measured) -> SideFinding | None:
    for run, result in zip(side.runs, side.results, strict=True):
        users, answered = run.load.max_concurrency, result.successful
        if load_kind(run.load) == "closed" and users and answered is not None and answered < ROUNDS * users:
            requests = f"{answered} request{'s' * (answered != 1)} of {users} user{'s' * (users != 1)}"
            what = "so the start and the end of the load are a large part of it."
            return SideFinding("A run of", f"has few requests of each user ({run.name}: {requests}), {what}")
    return None


def _in_flight(side: Measured) -> SideFinding | None:
    for run, result in zip(side.runs, side.results, strict=True):
        users, rate, latency = run.load.max_concurrency, result.request_throughput, result.e2el_ms
        if load_kind(run.load) != "closed" or not users or rate is None or latency is None or latency.mean is None:
            continue
        law = check_littles_law(users, rate, latency.mean / 1000)
        if law is not None and law.grade == "doubtful":
            return SideFinding(
                f"The run {run.name} of",
                f"had {law.expected:.1f} requests in flight on average, not {users}: the start and the end of the "
                "load, or a slow client, are a large part of it.",
            )
    return None


def _drift(side: Measured) -> SideFinding | None:
    problems = [run.steady.problem for run in side.runs if run.steady is not None and run.steady.problem is not None]
    drifts = [problem for problem in problems if not problem.startswith("too short")]
    if not drifts:
        return None
    runs = f"{len(drifts)} of {len(side.runs)} runs" if len(side.runs) > 1 else "the run"
    return SideFinding(f"In {runs} of", f"there is {drifts[0]}.")


def _within(phase: Phase, run: Run) -> float:
    if run.start is None or run.end is None:
        return 0.0
    return max(min(phase.end, run.end) - max(phase.start, run.start), 0.0)


def _below(seconds: float, parts: int) -> str:
    """Return a duration to such a part of a second, rounded down, so that it is below a limit that it is below."""
    return duration(math.floor(parts * seconds) / parts)


def _acceptance(run: Run) -> float | None:
    drafted, wasted = run.use.drafted_tokens, run.use.wasted_draft_tokens
    return None if not drafted or wasted is None else 1 - wasted / drafted
