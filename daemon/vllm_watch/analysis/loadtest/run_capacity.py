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
from vllm_watch.analysis.loadtest.offered_load import is_saturated, load_kind
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
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import duration, percent, significant


_SERVED = 0.98
"""A server that answers a smaller share of what comes does not keep up."""

_LEAST_LOADS = 3
"""The fewest loads that show where throughput stops to grow, or where latency turns."""

_PLATEAU = 0.05
_MORE = 1.2
"""A larger load has this many times the requests at once: less may be chance."""

UNKNOWN = N_("The maximum is not known")
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
        _(
            "The maximum is not known: a load had {most} output tokens/s, more than the {high} that the rest of the "
            "history shows.",
            most=significant(most),
            high=significant(capacity.high),
        ),
    )


def plateau_capacity(runs: Sequence[Run]) -> Capacity | None:
    """Return the capacity by several runs with ever more requests at once: the throughput at which it stops to grow."""
    steps = sorted(
        (in_flight, run.result.output_throughput, run.use.prompt_tokens_per_second)
        for run in runs
        if run.result is not None
        and run.result.output_throughput
        and _is_pressed(run)
        and (in_flight := requests_in_flight(run))
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
        _(
            "from {fewer:.0f} to {more:.0f} requests at once the throughput of {runs} runs grows by no more than "
            "{share} %",
            fewer=steps[-2][0],
            more=steps[-1][0],
            runs=len(steps),
            share=percent(_PLATEAU),
        ),
    )


def _is_pressed(run: Run) -> bool:
    """Return whether the server was given as much as it could take: of a rate that it keeps up with nobody knows."""
    return not run.may_be_shorter and (
        load_kind(run.load) in {"closed", "burst"} or bool(is_saturated(run, run.result))
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
        ran = {"running": stretch.running, "most": facts["max_running_requests"], "deferred": stretch.deferred}
        limit = _("{running:.0f} of at most {most:.0f} requests ran", **ran)
        if stretch.deferred >= 1:
            limit = _("{running:.0f} of at most {most:.0f} requests ran and {deferred:.0f} were deferred", **ran)
    else:
        limit = _("{share} % of the KV cache were used", share=percent(stretch.kv_cache_usage))
    return Capacity(
        **saturated_range(stretch)._asdict(),
        basis="saturated",
        explanation=_(
            "for {seconds:.0f} s requests waited ({queued:.0f} on average) while {limit}; ±5 %",
            seconds=stretch.seconds,
            queued=stretch.queued,
            limit=limit,
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
        _(
            "for {seconds:.0f} s {offered:.2f} requests came in a second and {served:.2f} were answered, while others "
            "waited",
            seconds=seconds,
            offered=offered,
            served=served,
        ),
    )


def _measured_by_load(value: float, prompt: float | None, why: str) -> Capacity:
    return Capacity(
        **measured_range(value, None, None, prompt)._asdict(),
        basis="bench",
        explanation=_("{why}; ±10 %", why=why),
    )


def _not_reached(meter: SaturationMeter) -> str:
    if not meter.longest_seconds:
        return _("it was not reached")
    if meter.longest_seconds < SATURATED_SECONDS:
        return _(
            "the longest saturated phase is {longest}, and a measurement needs {needed}",
            longest=duration(meter.longest_seconds),
            needed=duration(SATURATED_SECONDS),
        )
    waited = N_("requests waited for {time}, but not because a known limit was reached")
    return _(waited, time=duration(meter.longest_seconds))


def _at_limit(curve: Curve) -> Capacity:
    hits = curve.prefix_hits
    seen = _(
        "at least what was seen with {running:.0f} requests at once, at most the curve N/(alpha + beta N) through "
        "{windows} windows of {seconds:.0f} s at {limit:.0f}, the most that fit ({by})",
        running=curve.most_running,
        windows=curve.windows,
        seconds=WINDOW_SECONDS,
        limit=curve.limit.requests,
        by=curve.limit.by,
    )
    only = _("{seen}; for these lengths only", seen=seen)
    if hits is not None:
        reused = N_("{seen}; for these lengths only, with {share} % of prompt tokens from the prefix cache")
        only = _(reused, seen=seen, share=percent(hits))
    return Capacity(
        **curve_range(curve)._asdict(),
        basis="curve",
        explanation=only,
    )


def _no_estimate(why: NoCurve, not_reached: str) -> str:
    text = _WHY[why.reason](why.numbers)
    if why.reason in _ABOUT_LIMIT:
        return _("The maximum is not known: {why}.", why=text)
    return _("The maximum is not known: {first}; {second}.", first=not_reached, second=text)


def _too_few_loads(numbers: Mapping[str, float]) -> str:
    windows, seen = numbers["windows"], numbers["levels"]
    levels = [str(2**level) for level in range(1, MIN_LEVELS + 1)]
    # Each load loses its first and its last window.
    seconds = (-(-MIN_WINDOWS // MIN_LEVELS) + 2) * WINDOW_SECONDS
    return _(
        "an estimate needs {needed} of work without a queue, at {levels} levels of running requests, each about twice "
        "the one before; this test has {seen}, at {found:.0f} of them. Record several loads in turn, such as {loads} "
        "requests at once, each for {time} or longer",
        needed=duration(MIN_WINDOWS * WINDOW_SECONDS),
        levels=MIN_LEVELS,
        seen=duration(windows * WINDOW_SECONDS),
        found=seen,
        loads=listed(levels),
        time=duration(seconds),
    )


def _left(what: str) -> Callable[[Mapping[str, float]], str]:
    return lambda numbers: _(
        "{what}: {time} of the test can be compared",
        what=_(what),
        time=duration(numbers["windows"] * WINDOW_SECONDS),
    )


_WHY: Mapping[CapacityReason, Callable[[Mapping[str, float]], str]] = {
    "limit_unknown": lambda _numbers: _("neither the log nor /metrics shows how many requests run at most"),
    "limits_differ": lambda numbers: _(
        "by its size the KV cache holds {by_size:.0f} of these requests, by what was used of it {by_usage:.0f}",
        **numbers,
    ),
    "too_few_loads": _too_few_loads,
    "too_light": lambda numbers: _(
        "at most {running:.0f} requests ran at once, and {limit:.0f} fit: record a load of {least} or more",
        **numbers,
        least=ceil(numbers["limit"] / MAX_BEYOND),
    ),
    "preempted": _left(N_("requests were preempted")),
    "lengths_differ": _left(N_("the lengths of the requests changed by more than 10 %")),
    "prefix_hits_differ": _left(N_("the share of prompt tokens from the prefix cache changed by more than 5 points")),
    "acceptance_differs": _left(N_("the acceptance of drafts changed by more than 10 %")),
    "no_curve": lambda _numbers: _(
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
