# SPDX-License-Identifier: Apache-2.0
"""A server's history as phases: what it did from when to when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.catalog.states import EngineState
from vllm_watch.loadtest.history import Point
from vllm_watch.loadtest.history_builder import typical_step
from vllm_watch.loadtest.loads import MOST_STEP, LoadSpan, has_work, tokens_grown
from vllm_watch.loadtest.model import Phase, PhaseName, Steady
from vllm_watch.loadtest.steady import DRIFT
from vllm_watch.loadtest.usage import server_use


SHORTEST = 10.0
"""A change of state that lasts less than this, within a load, is no phase of its own."""

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
_WORKING = frozenset({"ramp", "saturated", "idle"})


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
        parts = _smooth(parts, load)
    if steady is not None and not (steady.problem or "").startswith(DRIFT):
        parts = [each for part in parts for each in _divided(part, steady)]
    if span is not None:
        parts = [part._replace(start=max(part.start, span[0]), end=min(part.end, span[1])) for part in parts]
    return tuple(_phase(part, points) for part in _merged(parts) if part.seconds > 0)


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
    """Return what a server did between two points: idle at both ends, it may have worked between them."""
    if new.state == "idle" and (tokens_grown(old, new) > 0 or has_work(new)):
        return "ramp"
    return _BY_STATE[new.state]


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    found: list[_Part] = []
    for part in parts:
        if found and found[-1].phase == part.phase:
            found[-1] = found[-1]._replace(end=part.end)
        else:
            found.append(part)
    return found


def _smooth(parts: list[_Part], load: LoadSpan) -> list[_Part]:
    """Join what is too short to be a phase with what is around it, within a load, the shortest first."""
    while True:
        short = [
            index
            for index in range(1, len(parts) - 1)
            if parts[index].seconds < SHORTEST
            and parts[index].phase in _WORKING
            and parts[index - 1].phase in _WORKING
            and parts[index - 1].phase == parts[index + 1].phase
            and load.start <= parts[index].start
            and parts[index].end <= load.end
        ]
        if not short:
            return parts
        index = min(short, key=lambda each: parts[each].seconds)
        joined = parts[index - 1]._replace(end=parts[index + 1].end)
        parts = [*parts[: index - 1], joined, *parts[index + 2 :]]


def _divided(part: _Part, steady: Steady) -> list[_Part]:
    """Return a part of work as what is before the steady window, in it, and after it."""
    start, end = max(part.start, steady.start), min(part.end, steady.end)
    if part.phase != "ramp" or start >= end:
        return [part]
    pieces = [part._replace(end=start), _Part("steady", start, end), part._replace(start=end)]
    return [piece for piece in pieces if piece.seconds > 0]


def _phase(part: _Part, points: Sequence[Point]) -> Phase:
    inside = [point for point in points if part.start <= point.at <= part.end]
    has_numbers = part.phase in {"ramp", "steady", "saturated", "stalled"} and len(inside) > 1
    use = {"result": server_use(inside)} if has_numbers else {}
    return Phase(phase=part.phase, start=part.start, end=part.end, **use)
