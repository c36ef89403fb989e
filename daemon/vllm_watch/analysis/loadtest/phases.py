# SPDX-License-Identifier: Apache-2.0
"""A load's phases, and what was measured in each; `statistics/steady_window.py` chooses the steady one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.loadtest.energy_and_cost import with_energy
from vllm_watch.analysis.loadtest.load_test import Objective, Phase, PhaseName, ServerUse, Steady, Timeline
from vllm_watch.analysis.loadtest.loads import MOST_STEP, LoadSpan, has_work, tokens_grown, worked_from
from vllm_watch.analysis.loadtest.server_history import COMPUTED, GENERATED, Growth, Point, rate, typical_step
from vllm_watch.analysis.loadtest.server_result import (
    HISTOGRAMS,
    arrivals,
    server_result,
    server_use,
)
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.statistics.steady_window import MEASURED, METHOD, Server, find_steady_window


DRIFT = N_("no steady state")
"""How the problem of a window begins that has no mean."""

_P99 = 0.99
_QUEUED = ("requests_running", "requests_waiting")
_NOT_SERVING: frozenset[EngineState] = frozenset({"stalled", "down", "starting", "sleeping"})


def find_steady(load: LoadSpan, objective: Objective | None = None) -> Steady | None:
    """Return the steady window of a load, `None` with too few points. One that drifts has no mean, so no result."""
    inside = [point for point in load.points if load.start <= point.at <= load.end and point.is_fresh]
    steps = [*pairwise([load.points[0], *inside])]
    running, waiting = ([point.gauges.get(name) for point in inside] for name in _QUEUED)
    window = find_steady_window(
        [point.at for point in inside],
        {
            MEASURED: [time_per_token(old, new) for old, new in steps],
            N_("output tokens/s"): [_rate(old, new, "generation_tokens_per_second", GENERATED) for old, new in steps],
            N_("requests in the server"): [
                None if runs is None else runs + (waits or 0.0) for runs, waits in zip(running, waiting, strict=True)
            ],
        },
        _issued(load.points),
        _slowest(load.points),
        Server(_serves(load.points, inside), running, waiting),
    )
    if window is None:
        return None
    points = [point for point in inside if window.start <= point.at <= window.end]
    has_drift = window.problem is not None and window.problem.startswith(_(DRIFT))
    seconds = window.end - window.start
    result = None
    if not has_drift and seconds > 0:
        result = with_energy(server_result(points, seconds, objective), points, seconds)
    return Steady(
        start=window.start,
        end=window.end,
        method=_(METHOD),
        problem=window.problem,
        result=result,
        use=server_use(points),
    )


def time_per_token(old: Point, new: Point) -> float | None:
    """
    Return the mean time per output token in an interval, in seconds.

    /metrics has it of finished requests; of a log it is the time divided by the tokens of each running request.
    """
    growth = Growth((old, new))
    observed = growth.histogram(HISTOGRAMS["tpot_ms"])
    if observed is not None:
        return observed.mean
    if HISTOGRAMS["tpot_ms"] in new.histograms:
        return None
    running = (old.gauges.get("requests_running", 0.0) + new.gauges.get("requests_running", 0.0)) / 2
    tokens = growth.counter(GENERATED) or 0.0
    return running * (new.at - old.at) / tokens if tokens > 0 and running > 0 else None


def _issued(points: Sequence[Point]) -> tuple[float, float] | None:
    came = [(old.at, new.at) for old, new in pairwise(points) if (arrivals((old, new), Growth((old, new))) or 0) > 0]
    return (came[0][0], came[-1][1]) if came else None


def _slowest(points: Sequence[Point]) -> float | None:
    """Return what the slowest hundredth of the requests takes at least, in seconds, if no stall made them slow."""
    if any(point.state == "stalled" for point in points):
        return None
    observed = Growth(points).histogram(HISTOGRAMS["e2el_ms"])
    if observed is None:
        return None
    bounds = zip((0.0, *observed.bounds), observed.counts, strict=False)
    return next((bound for bound, count in bounds if count >= _P99 * observed.observations), None)


def _serves(points: Sequence[Point], inside: Sequence[Point]) -> list[bool]:
    """Return whether a server served all through the interval before each point; a stall ends within intervals."""
    fails = [point.state in _NOT_SERVING for point in points]
    around = {
        point.at
        for place, point in enumerate(points)
        if any(fails[max(place - 1, 0) : place + 2]) or (place and points[place - 1].process != point.process)
    }
    return [point.at not in around for point in inside]


SHORTEST = 10.0
"""A change of state that lasts less than this, within a load, is no phase of its own."""

_STEPS = 3
_SHARE = 0.01
"""Nor is one of fewer points of the history, or of less of its load."""

_BY_STATE: Mapping[EngineState, PhaseName] = {
    "starting": "starting",
    "idle": "idle",
    "sleeping": "idle",
    "serving": "ramp",
    "saturated": "saturated",
    "stalled": "stalled",
    "down": "down",
    "unknown": "unknown",
}
_OF_GAUGES: frozenset[EngineState] = frozenset({"idle", "serving", "saturated"})
_WORKING = frozenset({"ramp", "saturated", "idle"})

_GAUGES = (
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
    "prefix_cache_hit_ratio",
    "spec_decode_mean_acceptance_length",
    "spec_decode_acceptance_ratio",
)
_RATES = {"generation_tokens_per_second": GENERATED, "prompt_tokens_per_second": COMPUTED}
"""Series that are computed from counters where these are known: the gauges are means over ten seconds."""

Value = float | None


class _Part(NamedTuple):
    phase: PhaseName
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def find_phases(
    points: Sequence[Point], loads: Sequence[LoadSpan], steady: Steady | None, span: tuple[float, float] | None = None
) -> tuple[Phase, ...]:
    """Return the phases of a history, or of a span of it, in order; a short idle time inside a load is none."""
    parts = _merged(_parts(points))
    for load in loads:
        parts = _smooth(parts, load, max(SHORTEST, _STEPS * typical_step(points), _SHARE * (load.end - load.start)))
    if steady is not None and not (steady.problem or "").startswith(_(DRIFT)):
        parts = [piece for part in parts for piece in _divided(part, steady)]
    if span is not None:
        parts = [part._replace(start=max(part.start, span[0]), end=min(part.end, span[1])) for part in parts]
    told = _with_silences(points)
    times = [point.at for point in told]
    return tuple(_phase(part, told, times) for part in _merged(parts) if part.seconds > 0)


def _parts(points: Sequence[Point]) -> list[_Part]:
    step = _step(points)
    parts = []
    for old, new in pairwise(points):
        start = worked_from(old, new, step)
        if start > old.at and not new.is_fresh:
            start = new.at
        parts.append(_Part(_BY_STATE[old.state], old.at, start))
        parts.append(_Part(_phase_of(old, new), start, new.at))
    return [part for part in parts if part.seconds > 0]


def _with_silences(points: Sequence[Point]) -> list[Point]:
    """Return the points with those at which silences end, so that a rate is not over the seconds of a silence."""
    step = _step(points)
    told = list(points[:1])
    for old, new in pairwise(points):
        start = worked_from(old, new, step)
        if start > old.at and new.is_fresh:
            told.append(old._replace(at=start, is_fresh=False))
        told.append(new)
    return told


def _step(points: Sequence[Point]) -> float:
    return min(typical_step(points) or MOST_STEP, MOST_STEP)


def _phase_of(old: Point, new: Point) -> PhaseName:
    phase = _BY_STATE[new.state]
    if new.state in _OF_GAUGES and "requests_waiting" in new.gauges:
        is_queued = new.gauges["requests_waiting"] > new.gauges.get("requests_deferred", 0.0)
        phase = "saturated" if is_queued else "ramp" if has_work(new) else "idle"
    return "ramp" if phase == "idle" and tokens_grown(old, new) > 0 else phase


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    merged: list[_Part] = []
    for part in parts:
        if merged and merged[-1].phase == part.phase:
            merged[-1] = merged[-1]._replace(end=part.end)
        else:
            merged.append(part)
    return merged


def _smooth(parts: Sequence[_Part], load: LoadSpan, shortest: float) -> list[_Part]:
    """Join what is too short to be a phase with what is around it, within a load; what lasted longest names it."""
    joined: list[_Part] = []
    for part in parts:
        joined.append(part)
        while len(joined) >= 3 and _is_flicker(joined[-3:], load, shortest):
            joined[-3:] = [_joined(*joined[-3:])]
    return _merged(joined)


def _is_flicker(parts: Sequence[_Part], load: LoadSpan, shortest: float) -> bool:
    before, short, after = parts
    is_short = short.seconds < shortest and load.start <= short.start and short.end <= load.end
    return is_short and before.phase == after.phase and {before.phase, short.phase} <= _WORKING


def _joined(before: _Part, short: _Part, after: _Part) -> _Part:
    phase = short.phase if short.seconds > before.seconds + after.seconds else before.phase
    return _Part(phase, before.start, after.end)


def _divided(part: _Part, steady: Steady) -> list[_Part]:
    start, end = max(part.start, steady.start), min(part.end, steady.end)
    if part.phase != "ramp" or start >= end:
        return [part]
    pieces = [part._replace(end=start), _Part("steady", start, end), part._replace(start=end)]
    return [piece for piece in pieces if piece.seconds > 0]


def _phase(part: _Part, points: Sequence[Point], times: Sequence[float]) -> Phase:
    # Of a phase that began before the load, or in an interval, the points around it have its numbers.
    inside = points[max(bisect_right(times, part.start) - 1, 0) : bisect_left(times, part.end) + 1]
    has_numbers = part.phase in {"ramp", "steady", "saturated", "stalled"} and len(inside) > 1
    use = server_use(inside) if has_numbers else ServerUse()
    return Phase(phase=part.phase, start=part.start, end=part.end, result=use)


def timeline(points: Sequence[Point]) -> Timeline:
    """Return the series of some points; a value is of the interval before its time."""
    times = [point.at for point in points[1:]]
    values: dict[str, list[Value]] = {name: [point.gauges.get(name) for point in points[1:]] for name in _GAUGES}
    for name, counter in _RATES.items():
        values[name] = [_rate(old, new, name, counter) for old, new in pairwise(points)]
    known = {name: tuple(series) for name, series in values.items() if any(value is not None for value in series)}
    return Timeline(times=tuple(times), values=known)


def _rate(old: Point, new: Point, name: str, counter: str) -> Value:
    growth = Growth((old, new))
    value = rate(growth.counter(counter), growth.seconds)
    return new.gauges.get(name) if value is None else value
