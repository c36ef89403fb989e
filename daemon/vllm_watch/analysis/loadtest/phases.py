# SPDX-License-Identifier: Apache-2.0
"""A server's history as phases: what it did from when to when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.loadtest.history import Point
from vllm_watch.analysis.loadtest.history_builder import typical_step
from vllm_watch.analysis.loadtest.loads import MOST_STEP, LoadSpan, has_work, tokens_grown
from vllm_watch.analysis.loadtest.model import Phase, PhaseName, Steady
from vllm_watch.analysis.loadtest.steady import DRIFT
from vllm_watch.analysis.loadtest.usage import server_use
from vllm_watch.daemon.catalog.states import EngineState


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
_PAUSE = 1.6
_OF_GAUGES: frozenset[EngineState] = frozenset({"idle", "serving", "saturated"})
_WORKING = frozenset({"ramp", "saturated", "idle"})


class _Part(NamedTuple):
    """A part of the time; `shares` are the seconds of each phase, where some were joined."""

    phase: PhaseName
    start: float
    end: float
    shares: Mapping[PhaseName, float] = {}

    @property
    def seconds(self) -> float:
        return self.end - self.start


def find_phases(
    points: Sequence[Point], loads: Sequence[LoadSpan], steady: Steady | None, span: tuple[float, float] | None = None
) -> tuple[Phase, ...]:
    """
    Return the phases of a history in order, each with what the server did in it.

    Args:
        points: The history.
        loads: Its loads: a short idle time inside one is no phase.
        steady: The steady window; work before and after it is `ramp`.
        span: From when to when; `None` for all.
    """
    parts = _merged(_parts(points))
    for load in loads:
        parts = _smooth(parts, load, max(SHORTEST, _STEPS * typical_step(points), _SHARE * (load.end - load.start)))
    if steady is not None and not (steady.problem or "").startswith(DRIFT):
        parts = [each for part in parts for each in _divided(part, steady)]
    if span is not None:
        parts = [part._replace(start=max(part.start, span[0]), end=min(part.end, span[1])) for part in parts]
    times = [point.at for point in points]
    return tuple(_phase(part, points, times) for part in _merged(parts) if part.seconds > 0)


def _parts(points: Sequence[Point]) -> list[_Part]:
    """Return what the server did in each interval; after a silence the last state held until shortly before a line."""
    step = min(typical_step(points) or MOST_STEP, MOST_STEP)
    parts = []
    for old, new in pairwise(points):
        start = old.at
        if new.at - old.at > _PAUSE * step:
            start = new.at - step if new.is_fresh else new.at
            parts.append(_Part(_BY_STATE[old.state], old.at, start))
        parts.append(_Part(_phase_of(old, new), start, new.at))
    return [part for part in parts if part.seconds > 0]


def _phase_of(old: Point, new: Point) -> PhaseName:
    """
    Return what a server did between two points: idle or asleep at both ends, it may have worked between them.

    A state comes and goes with some seconds of what it is about; here they are known, and the gauges are exact.
    """
    phase = _BY_STATE[new.state]
    if new.state in _OF_GAUGES and "requests_waiting" in new.gauges:
        is_queued = new.gauges["requests_waiting"] > new.gauges.get("requests_deferred", 0.0)
        phase = "saturated" if is_queued else "ramp" if has_work(new) else "idle"
    return "ramp" if phase == "idle" and tokens_grown(old, new) > 0 else phase


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    found: list[_Part] = []
    for part in parts:
        if found and found[-1].phase == part.phase:
            found[-1] = found[-1]._replace(end=part.end)
        else:
            found.append(part)
    return found


def _smooth(parts: Sequence[_Part], load: LoadSpan, shortest: float) -> list[_Part]:
    """Join what is too short to be a phase with what is around it, within a load; what lasted longest names it."""
    found: list[_Part] = []
    for part in parts:
        found.append(part)
        while len(found) >= 3 and _is_flicker(found[-3:], load, shortest):
            found[-3:] = [_joined(found[-3:])]
    return _merged(found)


def _is_flicker(parts: Sequence[_Part], load: LoadSpan, shortest: float) -> bool:
    before, short, after = parts
    is_short = short.seconds < shortest and load.start <= short.start and short.end <= load.end
    return is_short and before.phase == after.phase and {before.phase, short.phase} <= _WORKING


def _joined(parts: Sequence[_Part]) -> _Part:
    seconds: Counter[PhaseName] = Counter()
    for part in parts:
        seconds.update(part.shares or {part.phase: part.seconds})
    phase = max(seconds, key=lambda name: seconds[name])
    return _Part(phase, parts[0].start, parts[-1].end, seconds)


def _divided(part: _Part, steady: Steady) -> list[_Part]:
    """Return a part of work as what is before the steady window, in it, and after it."""
    start, end = max(part.start, steady.start), min(part.end, steady.end)
    if part.phase != "ramp" or start >= end:
        return [part]
    pieces = [part._replace(end=start), _Part("steady", start, end), part._replace(start=end)]
    return [piece for piece in pieces if piece.seconds > 0]


def _phase(part: _Part, points: Sequence[Point], times: Sequence[float]) -> Phase:
    inside = points[bisect_left(times, part.start) : bisect_right(times, part.end)]
    has_numbers = part.phase in {"ramp", "steady", "saturated", "stalled"} and len(inside) > 1
    use = {"result": server_use(inside)} if has_numbers else {}
    return Phase(phase=part.phase, start=part.start, end=part.end, **use)
