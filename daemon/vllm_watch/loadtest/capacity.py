# SPDX-License-Identifier: Apache-2.0
"""
How many tokens per second a server sustains, and how that is known.

In this order: it was saturated for a minute and more; for so long more requests came than it answered; several runs
were made whose throughput stopped to grow; or the curve X(N) = N / (alpha + beta N) through what was seen, evaluated at
the number of requests that fit according to the server's own facts. The curve is only used where what was seen is near
enough to that number. Otherwise nothing is said but why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from vllm_watch.loadtest.growth import Growth
from vllm_watch.loadtest.history import Point
from vllm_watch.loadtest.loads import LoadSpan
from vllm_watch.loadtest.model import Capacity, LatencyTurn, Phase, Run, ServerUse
from vllm_watch.loadtest.number_texts import duration, percent
from vllm_watch.loadtest.usage import GENERATED, finished, server_use
from vllm_watch.statistics.throughput_fit import ThroughputFit, fit_throughput


SATURATED_SECONDS = 60.0
_AT_LIMIT = 0.95
_KV_AT_LIMIT = 0.9

WINDOW_SECONDS = 15.0
_MIN_WINDOWS = 20
_MIN_CLASSES = 4
_MIN_SHARE = 0.4
_MIN_R_SQUARED = 0.9
_LENGTH_TOLERANCE = 0.1
_HIT_TOLERANCE = 0.05
_KV_TOLERANCE = 0.3
_LEAST_KV = 0.02
"""Below this share of the KV cache its rounding is too large to learn from how many requests fill it."""

_LOW, _HIGH = 0.87, 1.05
"""The truth was found between these parts of the curve's value on published tables: it errs upwards."""

_SERVED = 0.98
"""A server that answers a smaller share of what comes does not keep up."""

_LADDER = 3
_PLATEAU = 0.05
_MORE = 1.2
"""So many times the requests at once are more of them, and not chance."""


UNKNOWN = "The maximum is not known"
"""How the reason begins why there is no capacity."""

POWER = (
    "Kleinrock's power: the run with the most output tokens per second for its mean end-to-end latency; with more "
    "requests at once latency grows more than throughput"
)


class Estimate(NamedTuple):
    """The capacity, or why it is not known, as a sentence."""

    capacity: Capacity | None
    reason: str = ""


class Limit(NamedTuple):
    """How many requests run at most, and what limits them."""

    requests: float
    by: str


def server_capacity(loads: Sequence[LoadSpan], phases: Sequence[Phase], facts: Mapping[str, float]) -> Estimate:
    """Return the capacity by a server's own history; the loads must be of one configuration."""
    longest = sorted(phases, key=lambda each: each.start - each.end)
    most = max((each.result.generation_tokens_per_second or 0.0 for each in phases), default=0.0)
    for found in (*(_saturated(phase, facts) for phase in longest), *(_overloaded(phase, most) for phase in longest)):
        if found is not None:
            return Estimate(found)
    return _by_curve(loads, facts)


def ladder_capacity(runs: Sequence[Run]) -> Capacity | None:
    """Return the capacity by several runs with ever more requests at once: the throughput at which it stops to grow."""
    steps = sorted(
        (in_flight, run.result.output_throughput)
        for run in runs
        if run.result is not None and run.result.output_throughput and (in_flight := requests_in_flight(run))
    )
    if len(steps) < _LADDER:
        return None
    best = max(throughput for _, throughput in steps)
    after = [throughput for _, throughput in steps[-2:]]
    has_more_at_once = steps[-1][0] >= _MORE * steps[-2][0]
    if not has_more_at_once or min(after) < (1 - _PLATEAU) * best:
        return None
    value = fmean(after)
    return _measured_by_load(
        value,
        f"from {steps[-2][0]:.0f} to {steps[-1][0]:.0f} requests at once the throughput of {len(steps)} runs grows "
        f"by no more than {percent(_PLATEAU)} %",
    )


def requests_in_flight(run: Run) -> float | None:
    """Return how many requests were under way on average; by Little's law where only the client is known."""
    use = run.use
    if use.running is not None:
        return use.running + (use.waiting or 0.0)
    result = run.result
    if result is None or result.request_throughput is None or result.e2el_ms is None or result.e2el_ms.mean is None:
        return None
    return result.request_throughput * result.e2el_ms.mean / 1000


def _saturated(phase: Phase, facts: Mapping[str, float]) -> Capacity | None:
    """Return the capacity if a phase shows it: requests waited all the time, and there was no room for them."""
    use, seconds = phase.result, phase.end - phase.start
    value = use.generation_tokens_per_second
    if phase.phase != "saturated" or seconds < SATURATED_SECONDS or not value:
        return None
    limit = _reached(use, facts)
    if limit is None:
        return None
    return Capacity(
        tokens_per_second=value,
        low=0.95 * value,
        high=1.05 * value,
        basis="saturated",
        explanation=f"for {seconds:.0f} s requests waited ({use.waiting:.0f} on average) while {limit}; ±5 %",
    )


def _overloaded(phase: Phase, most: float) -> Capacity | None:
    """
    Return the capacity if requests came faster than they were answered, although no limit is known to be reached.

    `most` is the highest throughput of any phase: a server that did more at another time was held up by something else,
    such as one very long prompt.
    """
    use, seconds = phase.result, phase.end - phase.start
    value, offered, served = (
        use.generation_tokens_per_second,
        use.offered_requests_per_second,
        use.requests_per_second,
    )
    if phase.phase != "saturated" or seconds < SATURATED_SECONDS or not value or offered is None or served is None:
        return None
    if served >= _SERVED * offered or value < 0.9 * most:
        return None
    return _measured_by_load(
        value,
        f"for {seconds:.0f} s {offered:.2f} requests came in a second and {served:.2f} were answered, while others "
        "waited",
    )


def _measured_by_load(value: float, why: str) -> Capacity:
    """Return a capacity that a load test has shown without holding it at a limit: to 10 %."""
    return Capacity(
        tokens_per_second=value, low=0.9 * value, high=1.1 * value, basis="bench", explanation=f"{why}; ±10 %"
    )


def _reached(use: ServerUse, facts: Mapping[str, float]) -> str | None:
    seats = facts.get("max_running_requests")
    if seats and use.running is not None and use.running >= _AT_LIMIT * seats:
        return f"{use.running:.0f} of at most {seats:.0f} requests ran"
    if use.kv_cache_usage_ratio is not None and use.kv_cache_usage_ratio >= _KV_AT_LIMIT:
        return f"{percent(use.kv_cache_usage_ratio)} % of the KV cache were used"
    return None


def _by_curve(loads: Sequence[LoadSpan], facts: Mapping[str, float]) -> Estimate:
    windows = [window for load in loads for window in steady_windows(load)]
    uses = [server_use(window) for window in windows]
    limit = running_limit(uses, windows, facts)
    if isinstance(limit, str):
        return Estimate(None, f"{UNKNOWN}: {limit}.")
    seen = [(use.running, use.generation_tokens_per_second) for use in uses]
    pairs = [(running, tokens) for running, tokens in seen if running and tokens]
    reason = _unfit(pairs, uses, windows, limit)
    fit = fit_throughput(pairs)
    if reason is None and (fit is None or fit.r_squared < _MIN_R_SQUARED):
        quality = "" if fit is None else f" (R² {fit.r_squared:.2f}, at least {_MIN_R_SQUARED} is needed)"
        reason = f"throughput does not flatten as more requests run{quality}"
    if reason is not None or fit is None:
        return Estimate(None, f"{UNKNOWN}: it was not reached, and {reason}.")
    return Estimate(_at_limit(fit, limit, pairs, uses))


def _at_limit(
    fit: ThroughputFit, limit: Limit, pairs: Sequence[tuple[float, float]], uses: Sequence[ServerUse]
) -> Capacity:
    value = fit.at(limit.requests)
    hits = [use.prefix_cache_hit_ratio for use in uses if use.prefix_cache_hit_ratio is not None]
    reused = f", with {percent(fmean(hits))} % of prompt tokens from the prefix cache" if hits else ""
    return Capacity(
        tokens_per_second=value,
        low=_LOW * value,
        high=_HIGH * value,
        basis="curve",
        explanation=(
            f"the curve N/(alpha + beta N) through {len(pairs)} windows of {WINDOW_SECONDS:.0f} s with up to "
            f"{max(n for n, _ in pairs):.0f} requests (R² {fit.r_squared:.2f}), at {limit.requests:.0f} requests, the "
            f"most that fit ({limit.by}); for these lengths only{reused}"
        ),
    )


def _unfit(
    pairs: Sequence[tuple[float, float]], uses: Sequence[ServerUse], windows: Sequence[Sequence[Point]], limit: Limit
) -> str | None:
    """Return why the curve cannot be drawn on to the limit."""
    classes = {int(running).bit_length() for running, _ in pairs}
    if len(pairs) < _MIN_WINDOWS or len(classes) < _MIN_CLASSES:
        return _too_few_loads(len(pairs), len(classes))
    most = max(running for running, _ in pairs)
    if most < _MIN_SHARE * limit.requests:
        return (
            f"at most {most:.0f} requests ran, and {limit.requests:.0f} fit: {percent(_MIN_SHARE)} % of them are needed"
        )
    if any(use.preemptions for use in uses):
        return "requests were preempted"
    lengths = [length for window in windows if (length := _length(window))]
    if lengths and max(lengths) > (1 + 2 * _LENGTH_TOLERANCE) * min(lengths):
        return "the lengths of the requests changed by more than 10 %"
    hits = [use.prefix_cache_hit_ratio for use in uses if use.prefix_cache_hit_ratio is not None]
    if hits and max(hits) - min(hits) > 2 * _HIT_TOLERANCE:
        return "the share of prompt tokens from the prefix cache changed by more than 5 points"
    return None


def _too_few_loads(windows: int, classes: int) -> str:
    """Return what an estimate from a curve needs, what there is of it, and how to measure the rest."""
    levels = [str(2**level) for level in range(1, _MIN_CLASSES + 1)]
    # Each load loses its first and its last window.
    seconds = (-(-_MIN_WINDOWS // _MIN_CLASSES) + 2) * WINDOW_SECONDS
    return (
        f"an estimate needs {duration(_MIN_WINDOWS * WINDOW_SECONDS)} of work without a queue, at {_MIN_CLASSES} "
        "levels of running requests, each about twice the one before; this has "
        f"{duration(windows * WINDOW_SECONDS)} at {classes} level{'s' * (classes != 1)}. Record several loads in turn, "
        f"such as {', '.join(levels[:-1])} and {levels[-1]} requests at once, each for {duration(seconds)} or longer"
    )


def steady_windows(load: LoadSpan) -> list[tuple[Point, ...]]:
    """Return the points of a load in windows of 15 s and more, without its first and last ones, and without waiting."""
    inside = [point for point in load.points if load.start <= point.at <= load.end and point.is_fresh]
    found: list[tuple[Point, ...]] = []
    first = 0
    for index, point in enumerate(inside):
        if point.at - inside[first].at >= WINDOW_SECONDS:
            found.append(tuple(inside[first : index + 1]))
            first = index
    middle = found[1:-1] if len(found) > 3 else found
    return [window for window in middle if not any(point.gauges.get("requests_waiting", 0) >= 1 for point in window)]


def running_limit(
    uses: Sequence[ServerUse], windows: Sequence[Sequence[Point]], facts: Mapping[str, float]
) -> Limit | str:
    """Return how many requests run at most by the server's facts, or why that is not known."""
    seats = facts.get("max_running_requests")
    by_facts = _fitting(windows, facts)
    used = [(use.running, use.kv_cache_usage_ratio) for use in uses]
    seen = [running / share for running, share in used if running and share and share >= _LEAST_KV]
    by_sight = min(seen, default=None)
    fitting = min((each for each in (by_facts, by_sight) if each is not None), default=None)
    if seats and (fitting is None or seats <= fitting):
        return Limit(seats, "max-num-seqs")
    if fitting is None:
        return "neither the log nor /metrics shows how many requests run at most"
    if by_facts and by_sight and abs(by_facts - by_sight) > _KV_TOLERANCE * max(by_facts, by_sight):
        return f"by its size the KV cache holds {by_facts:.0f} of these requests, by what was used of it {by_sight:.0f}"
    return Limit(fitting, "KV cache")


def _fitting(windows: Sequence[Sequence[Point]], facts: Mapping[str, float]) -> float | None:
    """Return how many requests the KV cache holds: each has its prompt, but for what is shared, and half its answer."""
    tokens = facts.get("kv_cache_capacity_tokens")
    held = []
    for window in windows:
        growth = Growth(window)
        done, given = finished(growth), growth.counter("prompt_tokens_total")
        if done and given is not None:
            shared = growth.ratio("prefix_cache_hits", "prefix_cache_queries") or 0.0
            held.append((given * (1 - shared) + (growth.counter(GENERATED) or 0.0) / 2) / done)
    return tokens / fmean(held) if tokens and held and fmean(held) > 0 else None


def _length(window: Sequence[Point]) -> float | None:
    """Return the mean length of a window's finished requests, in tokens."""
    growth = Growth(window)
    sizes = [growth.histogram(name) for name in ("request_prompt_tokens", "request_generation_tokens")]
    known = [size.sum / size.observations for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def latency_turn(runs: Sequence[Run]) -> LatencyTurn | None:
    """
    Return where latency turns: the run with the most power, which is throughput divided by latency.

    `None` if there are fewer than three loads, or the most power is that of the lightest or the heaviest.
    """
    points = sorted(
        (
            LatencyTurn(
                run=run.name,
                requests_in_flight=in_flight,
                output_throughput=result.output_throughput,
                e2el_ms=result.e2el_ms.mean,
                method=POWER,
            )
            for run in runs
            if (result := run.result) is not None
            and result.output_throughput
            and result.e2el_ms is not None
            and result.e2el_ms.mean
            and (in_flight := requests_in_flight(run))
        ),
        key=lambda each: each.requests_in_flight,
    )
    more = sum(new.requests_in_flight > _MORE * old.requests_in_flight for old, new in pairwise(points))
    if more + 1 < _LADDER:
        return None
    best = max(range(len(points)), key=lambda place: points[place].output_throughput / points[place].e2el_ms)
    return points[best] if 0 < best < len(points) - 1 else None
