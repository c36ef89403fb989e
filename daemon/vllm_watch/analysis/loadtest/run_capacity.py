# SPDX-License-Identifier: Apache-2.0
"""
How many tokens per second a server sustains, and how that is known.

In this order: it was saturated for a minute and more; more requests came in that time than it answered; several runs
were made whose throughput stopped to grow; or what was seen near the number of requests that fit according to the
server's own facts, with the curve X(N) = N / (alpha + beta N) up to that number. Saturation and curve are found as the
daemon finds them while a server runs (`vllm_watch.daemon.capacity`). Otherwise nothing is said but why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Capacity, LatencyTurn, Phase, Run
from vllm_watch.analysis.loadtest.server_history import ACCEPTED, COMPUTED, DRAFTS, GENERATED, Point
from vllm_watch.daemon.capacity.curve import (
    MAX_BEYOND,
    MIN_LEVELS,
    MIN_WINDOWS,
    WINDOW_SECONDS,
    Curve,
    NoCurve,
)
from vllm_watch.daemon.capacity.load import LoadSample
from vllm_watch.daemon.capacity.saturation import SATURATED_SECONDS, SaturationMeter, Stretch
from vllm_watch.daemon.capacity.tracker import CapacityTracker, curve_range, measured_range, saturated_range
from vllm_watch.daemon.catalog.codes import CapacityReason
from vllm_watch.daemon.catalog.number_texts import duration, percent, significant


_SERVED = 0.98
"""A server that answers a smaller share of what comes does not keep up."""

_LEAST_LOADS = 3
"""The fewest loads that show where throughput stops to grow, or where latency turns."""

_PLATEAU = 0.05
_MORE = 1.2
"""A larger load has this many times the requests at once: less may be chance."""

UNKNOWN = "The maximum is not known"
"""How the reason begins why there is no capacity."""


class Estimate(NamedTuple):
    """The capacity, or why it is not known, as a sentence."""

    capacity: Capacity | None
    reason: str = ""


def server_capacity(points: Sequence[Point], phases: Sequence[Phase], facts: Mapping[str, float]) -> Estimate:
    """Return the capacity by a server's own history; it must be of one configuration."""
    tracker = CapacityTracker()
    for sample in load_samples(points):
        tracker.add(sample)
    learnt = tracker.draw(facts)
    if learnt.saturated is not None:
        return Estimate(_saturated(learnt.saturated, facts))
    most = max((phase.result.generation_tokens_per_second or 0.0 for phase in phases), default=0.0)
    for phase in sorted(phases, key=lambda phase: phase.start - phase.end):
        overloaded = _overloaded(phase, most)
        if overloaded is not None:
            return Estimate(overloaded)
    if isinstance(learnt.curve, NoCurve):
        return Estimate(None, _no_estimate(learnt.curve, _not_reached(tracker.meter)))
    return Estimate(_at_limit(learnt.curve))


def unless_exceeded(estimate: Estimate, most: float) -> Estimate:
    """Return an estimate, or why it is none if a whole load had more output tokens per second than it allows."""
    capacity = estimate.capacity
    if capacity is None or most <= capacity.high:
        return estimate
    return Estimate(
        None,
        f"{UNKNOWN}: a load had {significant(most)} output tokens/s, more than the {significant(capacity.high)} that "
        "the rest of the history shows.",
    )


def plateau_capacity(runs: Sequence[Run]) -> Capacity | None:
    """Return the capacity by several runs with ever more requests at once: the throughput at which it stops to grow."""
    steps = sorted(
        (in_flight, run.result.output_throughput, run.use.prompt_tokens_per_second)
        for run in runs
        if run.result is not None and run.result.output_throughput and (in_flight := requests_in_flight(run))
    )
    if len(steps) < _LEAST_LOADS:
        return None
    best = max(throughput for _, throughput, _ in steps)
    after = [throughput for _, throughput, _ in steps[-2:]]
    prompts = [prompt for _, _, prompt in steps[-2:] if prompt is not None]
    has_more_at_once = steps[-1][0] >= _MORE * steps[-2][0]
    if not has_more_at_once or min(after) < (1 - _PLATEAU) * best:
        return None
    value = fmean(after)
    return _measured_by_load(
        value,
        fmean(prompts) if prompts else None,
        f"from {steps[-2][0]:.0f} to {steps[-1][0]:.0f} requests at once the throughput of {len(steps)} runs grows "
        f"by no more than {percent(_PLATEAU)} %",
    )


def requests_in_flight(run: Run) -> float | None:
    """Return how many requests were under way on average, by Little's law where the result has its latency."""
    result, use = run.result, run.use
    # Rate and latency are of one view: the server's gauges count what is under way beside this client, too.
    if result is not None and result.request_throughput and result.e2el_ms is not None and result.e2el_ms.mean:
        return result.request_throughput * result.e2el_ms.mean / 1000
    return None if use.running is None else use.running + (use.waiting or 0.0)


def _saturated(stretch: Stretch, facts: Mapping[str, float]) -> Capacity:
    if stretch.limit(facts) == "max-num-seqs":
        limit = f"{stretch.running:.0f} of at most {facts['max_running_requests']:.0f} requests ran"
        limit += f" and {stretch.deferred:.0f} were deferred" if stretch.deferred >= 1 else ""
    else:
        limit = f"{percent(stretch.kv_cache_usage)} % of the KV cache were used"
    return Capacity(
        **saturated_range(stretch)._asdict(),
        basis="saturated",
        explanation=(
            f"for {stretch.seconds:.0f} s requests waited ({stretch.queued:.0f} on average) while {limit}; ±5 %"
        ),
    )


def _overloaded(phase: Phase, most: float) -> Capacity | None:
    """
    Return the capacity if requests came faster than they were answered, although no limit is known to be reached.

    A server that did more at another time was held up by something else, such as one very long prompt.
    """
    use, seconds = phase.result, phase.end - phase.start
    value, offered, served = use.generation_tokens_per_second, use.offered_requests_per_second, use.requests_per_second
    if phase.phase != "saturated" or seconds < SATURATED_SECONDS or not value or offered is None or served is None:
        return None
    if served >= _SERVED * offered or value < 0.9 * most:
        return None
    return _measured_by_load(
        value,
        use.prompt_tokens_per_second,
        f"for {seconds:.0f} s {offered:.2f} requests came in a second and {served:.2f} were answered, while others "
        "waited",
    )


def _measured_by_load(value: float, prompt: float | None, why: str) -> Capacity:
    return Capacity(
        **measured_range(value, None, None, prompt)._asdict(),
        basis="bench",
        explanation=f"{why}; ±10 %",
    )


def _not_reached(meter: SaturationMeter) -> str:
    if not meter.longest_seconds:
        return "it was not reached"
    if meter.longest_seconds < SATURATED_SECONDS:
        return (
            f"the longest saturated phase is {duration(meter.longest_seconds)}, and a measurement needs "
            f"{duration(SATURATED_SECONDS)}"
        )
    return f"requests waited for {duration(meter.longest_seconds)}, but not because a known limit was reached"


def _at_limit(curve: Curve) -> Capacity:
    hits = curve.prefix_hits
    reused = "" if hits is None else f", with {percent(hits)} % of prompt tokens from the prefix cache"
    return Capacity(
        **curve_range(curve)._asdict(),
        basis="curve",
        explanation=(
            f"at least what was seen with {curve.most_running:.0f} requests at once, at most the curve "
            f"N/(alpha + beta N) through {curve.windows} windows of {WINDOW_SECONDS:.0f} s at "
            f"{curve.limit.requests:.0f}, the most that fit ({curve.limit.by}); for these lengths only{reused}"
        ),
    )


def _no_estimate(why: NoCurve, not_reached: str) -> str:
    text = _WHY[why.reason](why.numbers)
    if why.reason in _ABOUT_LIMIT:
        return f"{UNKNOWN}: {text}."
    return f"{UNKNOWN}: {not_reached}; {text}."


def _too_few_loads(numbers: Mapping[str, float]) -> str:
    windows, seen = numbers["windows"], numbers["levels"]
    levels = [str(2**level) for level in range(1, MIN_LEVELS + 1)]
    # Each load loses its first and its last window.
    seconds = (-(-MIN_WINDOWS // MIN_LEVELS) + 2) * WINDOW_SECONDS
    return (
        f"an estimate needs {duration(MIN_WINDOWS * WINDOW_SECONDS)} of work without a queue, at {MIN_LEVELS} "
        "levels of running requests, each about twice the one before; this test has "
        f"{duration(windows * WINDOW_SECONDS)} at {seen:.0f} level{'s' * (seen != 1)}. Record several loads in "
        f"turn, such as {', '.join(levels[:-1])} and {levels[-1]} requests at once, each for {duration(seconds)} or "
        "longer"
    )


def _left(what: str) -> Callable[[Mapping[str, float]], str]:
    return lambda numbers: f"{what}: {duration(numbers['windows'] * WINDOW_SECONDS)} of the test can be compared"


_WHY: Mapping[CapacityReason, Callable[[Mapping[str, float]], str]] = {
    "limit_unknown": lambda _: "neither the log nor /metrics shows how many requests run at most",
    "limits_differ": lambda numbers: (
        f"by its size the KV cache holds {numbers['by_size']:.0f} of these requests, by what was used of it "
        f"{numbers['by_usage']:.0f}"
    ),
    "too_few_loads": _too_few_loads,
    "too_light": lambda numbers: (
        f"at most {numbers['running']:.0f} requests ran at once, and {numbers['limit']:.0f} fit: record a load of "
        f"{ceil(numbers['limit'] / MAX_BEYOND)} or more"
    ),
    "preempted": _left("requests were preempted"),
    "lengths_differ": _left("the lengths of the requests changed by more than 10 %"),
    "prefix_hits_differ": _left("the share of prompt tokens from the prefix cache changed by more than 5 points"),
    "acceptance_differs": _left("the acceptance of drafts changed by more than 10 %"),
    "no_curve": lambda _: (
        "throughput still grows in proportion as more requests run, or varies too much; record more load"
    ),
}
"""The reasons with the numbers of a test, each a clause."""

_ABOUT_LIMIT = frozenset({"limit_unknown", "limits_differ"})


def latency_turn(runs: Sequence[Run]) -> LatencyTurn | None:
    """Return the run with the most throughput for its latency, if it is neither the lightest nor the heaviest."""
    points = sorted(
        (
            LatencyTurn(
                run=run.name,
                requests_in_flight=in_flight,
                output_throughput=result.output_throughput,
                e2el_ms=result.e2el_ms.mean,
            )
            for run in runs
            if (result := run.result) is not None
            and result.output_throughput
            and result.e2el_ms is not None
            and result.e2el_ms.mean
            and (in_flight := requests_in_flight(run))
        ),
        key=lambda point: point.requests_in_flight,
    )
    more = sum(new.requests_in_flight > _MORE * old.requests_in_flight for old, new in pairwise(points))
    if more + 1 < _LEAST_LOADS:
        return None
    best = max(range(len(points)), key=lambda place: points[place].output_throughput / points[place].e2el_ms)
    return points[best] if 0 < best < len(points) - 1 else None


_RATES = {GENERATED: "generation_tokens_per_second", COMPUTED: "prompt_tokens_per_second"}
"""What a history has where tokens are not counted."""


def load_samples(points: Sequence[Point]) -> Iterator[LoadSample]:
    """Yield each point that has values of its own as a sample of the load, all engines together."""
    added = dict.fromkeys(_RATES, 0.0)
    last: float | None = None
    for point in points:
        gauges = point.gauges
        if not point.is_fresh or "requests_running" not in gauges:
            continue
        seconds = 0.0 if last is None else point.at - last
        last = point.at
        tokens = {}
        for counter, rate in _RATES.items():
            added[counter] += gauges.get(rate, 0.0) * seconds
            tokens[counter] = point.counters.get(counter, added[counter] if rate in gauges else None)
        yield _sample(point, tokens)


def _sample(point: Point, tokens: Mapping[str, float | None]) -> LoadSample:
    gauges, counters, histograms = point.gauges, point.counters, point.histograms
    prompts, answers = histograms.get("request_prompt_tokens"), histograms.get("request_generation_tokens")
    return LoadSample(
        at=point.at,
        running=gauges["requests_running"],
        queued=gauges.get("requests_waiting", 0.0) - gauges.get("requests_deferred", 0.0),
        deferred=gauges.get("requests_deferred", 0.0),
        kv_cache_usage=gauges.get("kv_cache_usage_ratio"),
        generated=tokens[GENERATED],
        computed=tokens[COMPUTED],
        preemptions=counters.get("preemptions_total"),
        prefix_queries=counters.get("prefix_cache_queries"),
        prefix_hits=counters.get("prefix_cache_hits"),
        drafts=counters.get(DRAFTS),
        accepted=counters.get(ACCEPTED),
        prompted=None if prompts is None or prompts.is_estimate else prompts.sum,
        answered=None if answers is None or answers.is_estimate else answers.sum,
        measured=None if prompts is None else prompts.observations,
    )
