# SPDX-License-Identifier: Apache-2.0
"""
The loads in a server's history: from when to when it had work.

Each has its edges: the last point before it and the first one after it at which nothing is under way, so that what
counters grew between them is this load's and nothing else's.
"""

from __future__ import annotations

import math

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.loadtest.server_history import (
    COMPUTED,
    FINISHED,
    GENERATED,
    HTTP_REQUESTS,
    PROMPTED,
    Growth,
    Point,
    labelled,
    rate,
    typical_step,
)


IDLE_SECONDS = 30.0
"""An idle time of at least this long is between two loads, however light they are."""

PAUSE_SECONDS = 9.0
"""So is one of at least this long, which a line of zeros in a log is, between loads that have no pause themselves."""

BURST_REQUESTS = 10
"""With this many requests a stretch of work of any length is a test, and none of a light load's few in turn."""

EDGE_SECONDS = 10.0
"""A client's window may be cut at an idle point this long before or after it, if nothing happens between them."""

CLOCK_SECONDS = 1.5
"""By how much a client's window may be wrong: its clock prints whole seconds."""

MOST_STEP = 15.0
MOST_EDGE = 120.0
_STEPS = 1.5
_SILENCE = 1.6
_AROUND = 16
_UNSURE = frozenset({"stalled", "unknown", "down", "starting"})
_SERVER_ERRORS = labelled(HTTP_REQUESTS, "5xx")
_ABORTED = labelled(FINISHED, "abort")
_TOKENS = (GENERATED, PROMPTED, COMPUTED)


class LoadSpan(NamedTuple):
    """A time with work; its points are from the last one before the work to the first one after it."""

    start: float
    end: float
    points: tuple[Point, ...]


_Stretch = tuple[int, int]
"""The first and the last interval of a stretch of work, each by the index of the point at its end."""


def find_loads(points: Sequence[Point]) -> list[LoadSpan]:
    """Return the loads of a history, in order: a pause is between two, unless they are one of few requests in turn."""
    loads: list[_Stretch] = []
    step = typical_step(points)
    before: _Stretch | None = None
    for stretch in _stretches(points, PAUSE_SECONDS):
        if before is not None and not _is_between_loads(points, before, stretch, step):
            loads[-1] = (loads[-1][0], stretch[1])
        else:
            loads.append(stretch)
        before = stretch
    return [_load(points, first - 1, last) for first, last in loads]


def find_stretches(points: Sequence[Point], idle_seconds: float) -> list[LoadSpan]:
    """Return each stretch of work, in order, with at least so long an idle time between two."""
    return [_load(points, first - 1, last) for first, last in _stretches(points, idle_seconds)]


def _stretches(points: Sequence[Point], idle_seconds: float) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    step = typical_step(points)
    for index in _busy_intervals(points):
        if stretches and _idle_until(points, index, step) - points[stretches[-1][1]].at < idle_seconds:
            stretches[-1] = (stretches[-1][0], index)
        else:
            stretches.append((index, index))
    return stretches


def _is_between_loads(points: Sequence[Point], old: _Stretch, new: _Stretch, step: float) -> bool:
    """Return whether the pause between two stretches is one between loads: light ones have such pauses themselves."""
    pause = _idle_until(points, new[0], step) - points[old[1]].at
    return pause >= IDLE_SECONDS or all(_is_dense(points, stretch, pause) for stretch in (old, new))


def _is_dense(points: Sequence[Point], stretch: _Stretch, pause: float) -> bool:
    """Return whether a stretch is work without an idle moment: long enough for a test, or of many requests."""
    first, last = stretch
    seconds = points[last].at - points[first - 1].at
    most = max(point.gauges.get("requests_running", 0.0) for point in points[first : last + 1])
    is_long = seconds >= PAUSE_SECONDS and (most > 1 or seconds > pause)
    is_test = is_long or _answered(points[first - 1], points[last]) >= BURST_REQUESTS
    return is_test and all(has_work(point) for point in points[first:last] if point.is_fresh)


def _answered(old: Point, new: Point) -> float:
    """Return how many requests ended between two points, 0 if that is not known."""
    grown: dict[str, float] = defaultdict(float)
    for name in new.counters:
        kind = name.partition(".")[0]
        if kind in (FINISHED, HTTP_REQUESTS) and name in old.counters:
            grown[kind] += max(new.counters[name] - old.counters[name], 0.0)
    return max(grown.values(), default=0.0)


def load_between(points: Sequence[Point], start: float, end: float) -> LoadSpan | None:
    """
    Return what a server did in a client's window, `None` if no two points are around it.

    Its edges are points without work, so that no request is cut in two, or those nearest to the window's.
    """
    first = _edge(points, start, before=True)
    last = _edge(points, end, before=False)
    if first is None or last is None or last <= first:
        return None
    return LoadSpan(start, end, tuple(points[first : last + 1]))


def has_work(point: Point) -> bool:
    """Return whether requests are running or waiting."""
    return point.gauges.get("requests_running", 0.0) + point.gauges.get("requests_waiting", 0.0) > 0


def tokens_grown(old: Point, new: Point) -> float:
    """Return how many tokens were computed between two points, 0 if that is not known."""
    return sum(
        max(new.counters[name] - old.counters[name], 0.0)
        for name in _TOKENS
        if name in new.counters and name in old.counters
    )


def stands_still(old: Point, new: Point) -> bool:
    """Return whether a server had work in an interval and computed nothing: no token, and no request was finished."""
    answered = (name for name in new.counters if name.startswith(f"{FINISHED}.") and name != _ABORTED)
    has_answered = any(new.counters[name] > old.counters.get(name, 0.0) for name in answered)
    return has_work(old) and old.process == new.process and tokens_grown(old, new) == 0 and not has_answered


def _busy_intervals(points: Sequence[Point]) -> list[int]:
    return [
        index + 1
        for index, (old, new) in enumerate(pairwise(points))
        if has_work(new) or tokens_grown(old, new) > 0 or (has_work(old) and new.state == "stalled")
    ]


def _idle_until(points: Sequence[Point], index: int, step: float) -> float:
    """Return when the idle time before a point ends, at most one step before it: what happened earlier is not known."""
    old, new = points[index - 1], points[index]
    return old.at if has_work(old) else max(old.at, new.at - step)


def _load(points: Sequence[Point], first: int, last: int) -> LoadSpan:
    step = min(_step_at(points, points[first + 1].at) or MOST_STEP, MOST_STEP)
    # If the last point with work is followed by one of a server that is gone, that one is told as well.
    after = last + 1 if has_work(points[last]) or _fails_after(points, last) else last
    return LoadSpan(*_span(points, first, last, step), tuple(points[first : after + 1]))


def _fails_after(points: Sequence[Point], last: int) -> bool:
    """Return whether requests failed because the server went down after a point, though none was seen under way."""
    following = points[last + 1 : last + 2]
    growth = Growth((points[last], *following))
    return bool(following and following[0].state == "down" and growth.counter(_SERVER_ERRORS))


def worked_from(old: Point, new: Point, step: float) -> float:
    """Return from when an interval's work may have been: after a silence it was shortly before the line that has it."""
    return old.at if new.at - old.at <= _SILENCE * step else max(old.at, new.at - step)


def _span(points: Sequence[Point], first: int, last: int, step: float) -> tuple[float, float]:
    """Return from when to when there was work: of the intervals at both ends, what their tokens took."""
    begin, until = worked_from(points[first], points[first + 1], step), points[first + 1].at
    if last - first < 2:
        return begin, until
    since, end = points[last - 1].at, points[last].at
    start = until - min(_seconds(points[first : first + 2], points[first + 1 : first + 3]), until - begin)
    if not has_work(points[last]):
        end = since + min(_seconds(points[last - 1 : last + 1], points[last - 2 : last]), end - since)
    return start, end


def _seconds(interval: Sequence[Point], beside: Sequence[Point]) -> float:
    """Return how long an interval's work took at the rates beside it, by the slowest of its kinds of tokens."""
    seconds = 0.0
    for name in _TOKENS:
        grown, usual = Growth(interval).counter(name), Growth(beside)
        per_second = rate(usual.counter(name), usual.seconds)
        if grown:
            seconds = max(seconds, grown / per_second if per_second else math.inf)
    return seconds or math.inf


def _edge(points: Sequence[Point], moment: float, *, before: bool) -> int | None:
    farthest = max(EDGE_SECONDS, _STEPS * min(_step_at(points, moment), MOST_EDGE)) + CLOCK_SECONDS
    first = bisect_left(points, moment - farthest, key=_at)
    last = bisect_right(points, moment + farthest, key=_at)
    near = [index for index in range(first, last) if points[index].counters]
    if not near:
        # A log is silent while nothing happens: its last line holds until the next.
        is_silent = before and 0 < first < len(points) and _is_quiet(points[first - 1])
        return first - 1 if is_silent else None
    if before:
        quiet = [index for index in reversed(near) if points[index].at <= moment + CLOCK_SECONDS]
        if not quiet and first > 0:
            quiet = [first - 1]
    else:
        quiet = [index for index in near if points[index].at >= moment - CLOCK_SECONDS]
    quiet = [index for index in quiet if _is_quiet(points[index])]
    # Between two requests of a light load there is a moment without work, too: then tokens come on both sides of it.
    surely = [index for index in quiet if not _has_growth(points, index if before else index + 1)]
    return next(iter(surely or quiet), min(near, key=lambda index: abs(points[index].at - moment)))


def _step_at(points: Sequence[Point], moment: float) -> float:
    place = bisect_left(points, moment, key=_at)
    return typical_step(points[max(place - _AROUND, 0) : place + _AROUND])


def _at(point: Point) -> float:
    return point.at


def _is_quiet(point: Point) -> bool:
    return bool(point.counters) and not has_work(point) and point.state not in _UNSURE


def _has_growth(points: Sequence[Point], index: int) -> bool:
    return 0 < index < len(points) and tokens_grown(points[index - 1], points[index]) > 0
