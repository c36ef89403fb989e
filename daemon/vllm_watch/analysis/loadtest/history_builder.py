# SPDX-License-Identifier: Apache-2.0
"""
Builds a server's history while its log and scrapes are read, in bounded memory.

There are at most `MAX_POINTS` points. If there are more, each two that follow each other become one: a long log is
seen in less detail, and takes no more memory.
"""

from __future__ import annotations

import math

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.loadtest.history import Point, ServerHistory
from vllm_watch.analysis.loadtest.model import Event
from vllm_watch.analysis.loadtest.started_with import StartedWith
from vllm_watch.daemon.catalog.event_texts import FAILURES, STARTED
from vllm_watch.daemon.catalog.states import STATES
from vllm_watch.daemon.state.snapshot import ServerSnapshot


MAX_POINTS = 16_384
MAX_EVENTS = 1000
"""So many events are kept, the last ones."""

LOG_ALONE = (
    "There is no /metrics: tokens are sums of the log's statistics lines, requests are those of its access log, and "
    "nothing is known of latencies."
)

_NO_EVENTS = frozenset({"shm_timeout", "request_error"})
"""Failures that may repeat for every request: they are counted, and no events."""

_STATES_TO_TELL = frozenset({"stalled", "down", "sleeping"})


class _Life(NamedTuple):
    """One life of the server: since when, and the last that is known of its flags."""

    start: float
    revision: int
    config: Mapping[str, str]


class HistoryBuilder:
    """Takes in points and snapshots in order of time."""

    def __init__(self) -> None:
        self.started_with = StartedWith()
        self.points: list[Point] = []
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._starts: int | None = None
        self._failures: Mapping[str, int] | None = None
        self._added = 0
        self._lives: dict[int, _Life] = {}

    def add(self, point: Point) -> None:
        """Take in a point; one of the same second as the last one takes its place."""
        self._added += 1
        if self.points and point.at <= self.points[-1].at:
            point = point._replace(at=self.points[-1].at, is_fresh=point.is_fresh or self.points[-1].is_fresh)
            self.points.pop()
        if self.points and point.state != self.points[-1].state and point.state in _STATES_TO_TELL:
            self._events.append(Event(at=point.at, text=f"the server is {point.state}"))
        self.points.append(point)
        self._note_config(point)
        if len(self.points) > MAX_POINTS:
            self.points = merged(self.points)

    def note(self, snapshot: ServerSnapshot) -> None:
        """Take in what happened since the last snapshot."""
        self.count(snapshot.at, snapshot.starts, None if snapshot.log is None else snapshot.log.events)
        self.started_with.note_snapshot(snapshot)

    def count(self, at: float, starts: int, failures: Mapping[str, int] | None) -> None:
        """Take in how often the server has started, and how often each failure was in its log, if it has one."""
        if self._starts is not None and starts > self._starts:
            self._events.append(Event(at=at, text=STARTED))
        if failures is not None and self._failures is not None:
            for kind, count in failures.items():
                if kind not in _NO_EVENTS and count > self._failures.get(kind, 0):
                    self._events.append(Event(at=at, text=FAILURES[kind]))
        self._starts, self._failures = starts, failures

    def _note_config(self, point: Point) -> None:
        """Take in what a life of the server ran with, as far as is known at a point."""
        known = self.started_with
        life = self._lives.get(point.process)
        if life is None or life.revision != known.revision:
            start = point.at if life is None else life.start
            self._lives[point.process] = _Life(start, known.revision, known.config)

    def _config_since(self) -> float:
        """Return the start of the first life from which on no flag has another value than at the end; 0 of all."""
        last = dict(self.started_with.config)
        since = 0.0
        for _, life in sorted(self._lives.items(), reverse=True):
            if any(last.setdefault(flag, value) != value for flag, value in life.config.items()):
                return since
            since = life.start
        return 0.0

    def forget_counters(self, names: Iterable[str], before: float = math.inf) -> None:
        """Leave out counters of points before a moment: what counted them is not known, or not used later."""
        unknown = frozenset(names)
        for index in range(bisect_left(self.points, before, key=lambda point: point.at)):
            point = self.points[index]
            counters = {name: value for name, value in point.counters.items() if name not in unknown}
            self.points[index] = point._replace(counters=counters)

    def build(self, source: str, name: str, *, has_metrics: bool, warnings: Sequence[str] = ()) -> ServerHistory:
        """Return the history."""
        known = self.started_with
        thinned = (
            [f"The history is long: its {self._added:,} readings are {len(self.points):,} points, and peaks are lower."]
            if self._added > MAX_POINTS
            else []
        )
        return ServerHistory(
            source=source,
            name=name,
            model=known.model,
            version=known.version,
            config=known.config,
            facts=known.facts_together,
            points=tuple(self.points),
            events=tuple(self._events),
            hardware=known.hardware,
            has_metrics=has_metrics,
            warnings=(*warnings, *thinned),
            engine_generation=known.engine_generation,
            is_resolved=known.is_resolved,
            is_given=known.is_given,
            config_since=self._config_since(),
        )


def merged(points: Sequence[Point]) -> list[Point]:
    """
    Return at most three quarters as many points: two that follow each other become one.

    They have one state, if that is enough: else states that change from point to point become one, too.
    """
    found = _paired(points, lambda one, other: one.state == other.state)
    return found if len(found) <= 0.75 * len(points) else _paired(points, lambda _one, _other: True)


def _paired(points: Sequence[Point], is_alike: Callable[[Point, Point], bool]) -> list[Point]:
    found: list[Point] = []
    waiting: Point | None = None
    for point in points:
        if waiting is not None and is_alike(waiting, point):
            found.append(_pair(waiting, point))
            waiting = None
            continue
        if waiting is not None:
            found.append(waiting)
        waiting = point
    return [*found, waiting] if waiting is not None else found


def _pair(one: Point, other: Point) -> Point:
    """Return two points as one, at the time of the later: means of gauges, and the worse of two states."""
    shared = one.gauges.keys() & other.gauges.keys()
    means = {name: (one.gauges[name] + other.gauges[name]) / 2 for name in shared}
    state = max(one.state, other.state, key=lambda state: STATES[state].severity)
    gauges = {**one.gauges, **other.gauges, **means}
    return other._replace(gauges=gauges, state=state, is_fresh=one.is_fresh or other.is_fresh)


def typical_step(points: Sequence[Point]) -> float:
    """Return the usual seconds between two points that have values of their own; 0 if there are not two."""
    steps = sorted(later.at - earlier.at for earlier, later in pairwise(point for point in points if point.is_fresh))
    return steps[len(steps) // 2] if steps else 0.0
