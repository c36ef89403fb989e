# SPDX-License-Identifier: Apache-2.0
"""
Builds a server's history while its log and scrapes are read, in bounded memory.

There are at most `MAX_POINTS` points. If there are more, every second one is dropped: a long log is seen in less
detail, and takes no more memory.
"""

from __future__ import annotations

import math

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Event, Memory
from vllm_watch.analysis.loadtest.loads import stands_still
from vllm_watch.analysis.loadtest.server_history import (
    ACCEPTED,
    FINISHED,
    HTTP_REQUESTS,
    REJECTIONS,
    Point,
    ServerHistory,
    added,
    labelled,
)
from vllm_watch.daemon.catalog.codes import FLAGS_OF_FACTS
from vllm_watch.daemon.catalog.event_texts import FAILURES, STARTED
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.states import STATES, EngineState
from vllm_watch.daemon.reading.log_reader import TimedEvent
from vllm_watch.daemon.state.snapshot import EngineTotals, ServerSnapshot
from vllm_watch_parsers.events import Lifecycle, StartupFact
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import Histogram, MetricsReading


MAX_POINTS = 16_384
MAX_EVENTS = 1000
"""The most events that are kept: the last ones."""

LOG_ALONE_AFTER = 15.0
"""After this time without a scrape the log's statistics lines make points."""

LOG_ALONE = N_(
    "There is no /metrics: tokens are sums of the log's statistics lines, requests are those of its access log, and "
    "nothing is known of latencies."
)

_NO_EVENTS = frozenset({"shm_timeout", "request_error"})
"""Failures that may repeat for every request: they are counted, and no events."""

_STATES_TO_TELL: Mapping[EngineState, str] = {
    "stalled": N_("the server is stalled"),
    "down": N_("the server is down"),
    "sleeping": N_("the server is sleeping"),
}

_DEVICE = "device"
_SIZES = {"model_load_gib": "model_memory_gib", "kv_cache_memory_gib": "kv_cache_memory_gib"}
"""What the log prints of memory, and what it is called among the hardware."""

_GIB = 1 << 30
_KV_TOKENS = "kv_cache_capacity_tokens"
_OF_EACH_ENGINE = ("max_running_requests", _KV_TOKENS)
"""Facts that each engine of a data-parallel server has for itself."""

_HIT_COUNTERS = (
    "prompt_tokens_cached",
    "prompt_tokens_computed",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
)
"""Counters of a scrape that are no series, by the names of `metric_names`."""


class _Life(NamedTuple):
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
        self._kinds: set[str] = set()
        self._added = 0
        self._lives: dict[int, _Life] = {}

    def add(self, point: Point) -> None:
        """Take in a point; one of the same second as the last one takes its place."""
        self._added += 1
        if self.points and point.at <= self.points[-1].at:
            last = self.points.pop()
            point = point._replace(at=last.at, is_fresh=point.is_fresh or last.is_fresh)
        is_new = bool(self.points) and point.state != self.points[-1].state
        self.points.append(point)
        if is_new and point.state in _STATES_TO_TELL:
            at = self._date_back() if point.state == "stalled" else point.at
            self._events.append(Event(at=at, text=_(_STATES_TO_TELL[point.state])))
        self._note_config(point)
        if len(self.points) > MAX_POINTS:
            self.points = self.points[::2]

    def _date_back(self) -> float:
        """Let a stall, which is known only after a while, begin with its last token; return when that was seen."""
        first = len(self.points) - 1
        while first > 0 and stands_still(self.points[first - 1], self.points[first]):
            first -= 1
        for index in range(first + 1, len(self.points)):
            self.points[index] = self.points[index]._replace(state="stalled")
        return self.points[first].at

    def note(self, snapshot: ServerSnapshot) -> None:
        """Take in what happened since the last snapshot."""
        self.count(snapshot.at, snapshot.starts, None if snapshot.log is None else snapshot.log.events)
        self.started_with.note_snapshot(snapshot)

    def count(self, at: float, starts: int, failures: Mapping[str, int] | None) -> None:
        """Take in how often the server has started, and how often each failure was in its log, if it has one."""
        if self._starts is not None and starts > self._starts:
            self._events.append(Event(at=at, text=_(STARTED)))
        self._kinds.update(kind for kind, count in (failures or {}).items() if count)
        if failures is not None and self._failures is not None:
            for kind, count in failures.items():
                if kind not in _NO_EVENTS and count > self._failures.get(kind, 0):
                    self._events.append(Event(at=at, text=_(FAILURES[kind])))
        self._starts, self._failures = starts, failures

    def _note_config(self, point: Point) -> None:
        life = self._lives.get(point.process)
        if life is None or life.revision != self.started_with.revision:
            start = point.at if life is None else life.start
            self._lives[point.process] = _Life(start, self.started_with.revision, self.started_with.config)

    def _config_since(self) -> float:
        """Return the start of the first life from which on no flag has another value than at the end; 0 of all."""
        last = dict(self.started_with.config)
        since = 0.0
        for _number, life in sorted(self._lives.items(), reverse=True):
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
        facts = self.started_with
        thinned = _(
            "The history is long: of its {readings:,} readings {count:,} count, and peaks may be lower.",
            readings=self._added,
            count=len(self.points),
        )
        return ServerHistory(
            source=source,
            name=name,
            model=facts.model,
            version=facts.version,
            config=facts.config,
            facts=facts.facts_together,
            points=tuple(self.points),
            events=tuple(self._events),
            hardware=facts.hardware,
            has_metrics=has_metrics,
            warnings=(*warnings, thinned) if self._added > MAX_POINTS else tuple(warnings),
            engine_generation=facts.engine_generation,
            are_all_flags_known=facts.are_all_flags_known,
            failures=frozenset(self._kinds),
            config_since=self._config_since(),
            memory=facts.memory,
        )


class StartedWith:
    """Gathers what is known of a server; a new start replaces what the one before it reported. Memory is in GiB."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.model: str | None = None
        self.engine_generation: str | None = None
        self.facts: dict[str, float] = {}
        self._together: dict[str, float] = {}
        self._flags: Mapping[str, str] = {}
        self.are_all_flags_known = False
        self._memory: dict[str, str] = {}
        self._gpu: str | None = None
        self.revision = 0
        """Grows whenever `config` may have changed."""

    def note_events(self, events: Iterable[TimedEvent]) -> None:
        """Take in events of the log, in order."""
        for _at, event in events:
            if isinstance(event, StartupFact):
                self._note_fact(event)
            elif isinstance(event, Lifecycle) and event.phase == "starting":
                self._memory, self._gpu = {}, None
                self.facts, self._together = {}, {}
                self.revision += 1

    def note_snapshot(self, snapshot: ServerSnapshot) -> None:
        """Take in the server's names, flags and facts."""
        flags = snapshot.configuration.flags
        self.note_flags({name: flag.value for name, flag in flags.items()})
        self.are_all_flags_known = snapshot.configuration.are_all_known
        self.version = snapshot.version or self.version
        self.model = snapshot.model_name or self.model
        self.engine_generation = snapshot.engine_generation or self.engine_generation
        for engine in snapshot.engines:
            if engine.facts and not engine.facts.items() <= self.facts.items():
                self.facts.update(engine.facts)
                self.revision += 1
        for name in _OF_EACH_ENGINE:
            self.note_engines(name, [engine.facts[name] for engine in snapshot.engines if name in engine.facts])

    def note_flags(self, flags: Mapping[str, str]) -> None:
        """Take in all flags that are known now."""
        self.revision += flags != self._flags
        self._flags = flags

    def note_engines(self, name: str, values: Sequence[float]) -> None:
        """Take in a fact of each engine that has it."""
        if name in _OF_EACH_ENGINE and values:
            self._together[name] = sum(values)

    @property
    def facts_together(self) -> Mapping[str, float]:
        """The facts, those of the engines added up: what all of them hold together, as their gauges are."""
        return {**self.facts, **self._together}

    @property
    def config(self) -> Mapping[str, str]:
        """Every flag that is known."""
        flags = dict(self._flags)
        for fact, flag in FLAGS_OF_FACTS.items():
            if fact in self.facts and not (flag == "max-num-seqs" and "max-num-active-seqs" in flags):
                flags.setdefault(flag, f"{self.facts[fact]:g}")
        flags.pop(_DEVICE, None)
        return dict(sorted(flags.items()))

    @property
    def hardware(self) -> Mapping[str, str]:
        """What is known of the machine."""
        devices = {_DEVICE: self._flags.get(_DEVICE), "gpu": self._gpu}
        return {**{name: value for name, value in devices.items() if value}, **self._memory}

    @property
    def memory(self) -> Memory | None:
        """What is known of the memory; one engine's tokens are in the KV cache of each of its GPUs."""
        weights, cache = (float(self._memory[name]) if name in self._memory else None for name in _SIZES.values())
        tokens, every = self.facts.get(_KV_TOKENS), self.facts_together.get(_KV_TOKENS)
        if weights is None and cache is None and every is None:
            return None
        by_token = cache * _GIB / tokens if cache is not None and tokens else None
        return Memory(weights_gib=weights, kv_cache_gib=cache, kv_bytes_per_token=by_token, kv_cache_tokens=every)

    def _note_fact(self, fact: StartupFact) -> None:
        self._gpu = fact.gpu or self._gpu
        for field, name in _SIZES.items():
            value = getattr(fact, field)
            # A draft model's line looks like the main model's and comes after it.
            if value is not None:
                self._memory.setdefault(name, f"{value:g}")


def snapshot_point(snapshot: ServerSnapshot, reading: MetricsReading | None, *, is_fresh: bool) -> Point:
    """Return a snapshot as a point, all engines together; some counters are only in the last scrape."""
    totals = [*(engine.totals for engine in snapshot.engines), *snapshot.former]
    return Point(
        snapshot.at,
        worst_state(engine.state for engine in snapshot.engines),
        _gauges(snapshot),
        _counters(snapshot, totals, reading),
        summed((name, each.histogram) for engine in totals for name, each in engine.histograms.items()),
        mean_positions(
            (position, reading.value)
            for engine in snapshot.engines
            for position, reading in enumerate(engine.position_acceptance)
            if reading is not None
        ),
        snapshot.starts,
        is_fresh,
    )


def worst_state(states: Iterable[EngineState]) -> EngineState:
    """Return the state of a server whose engines are in these states."""
    return max(states, key=lambda state: STATES[state].severity, default="unknown")


def together(name: str, values: list[float]) -> float:
    """Return the value of all engines together: the mean of ratios, the sum of everything else."""
    is_mean = name.endswith("_ratio") or name == "spec_decode_mean_acceptance_length"
    return sum(values) / len(values) if is_mean else sum(values)


def summed(histograms: Iterable[tuple[str, Histogram]]) -> dict[str, Histogram]:
    """Return the histograms of all engines together by name; one with other bounds than the first is left out."""
    sums: dict[str, Histogram] = {}
    for name, histogram in histograms:
        other = sums.get(name)
        if other is None or other.bounds == histogram.bounds:
            sums[name] = histogram if other is None else added(other, histogram)
    return sums


def _gauges(snapshot: ServerSnapshot) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for engine in snapshot.engines:
        for name, reading in engine.gauges.items():
            values[name].append(reading.value)
    return {name: together(name, each) for name, each in values.items() if name != "last_token_timestamp_seconds"}


def _counters(
    snapshot: ServerSnapshot, totals: Iterable[EngineTotals], reading: MetricsReading | None
) -> dict[str, float]:
    counters: dict[str, float] = defaultdict(float)
    for each in totals:
        for name, value in each.counters.items():
            counters[name] += value.value
        for reason, value in each.requests_finished.items():
            counters[labelled(FINISHED, reason)] += value.value
    for key, count in snapshot.http_requests.items():
        if key.handler in INFERENCE_HANDLERS and key.code[:1].isdigit():
            counters[labelled(HTTP_REQUESTS, f"{key.code[0]}xx")] += count
    for rejected in snapshot.admission_rejections.values():
        counters[REJECTIONS] += rejected.value
    return {**counters, **({} if reading is None else _scraped_counters(reading))}


def _scraped_counters(reading: MetricsReading) -> dict[str, float]:
    counters: dict[str, float] = defaultdict(float)
    for engine in reading.engines.values():
        for name in _HIT_COUNTERS:
            if name in engine.counters:
                counters[name] += engine.counters[name]
        for position, accepted in enumerate(engine.position_accepted):
            counters[labelled(ACCEPTED, str(position))] += accepted
    return counters


def mean_positions(ratios: Iterable[tuple[int, float]]) -> tuple[float | None, ...]:
    """Return the mean acceptance at each position of a draft, of all engines that know it."""
    by_position: dict[int, list[float]] = defaultdict(list)
    for position, ratio in ratios:
        by_position[position].append(ratio)
    means = {position: sum(values) / len(values) for position, values in by_position.items()}
    return tuple(means.get(position) for position in range(max(means, default=-1) + 1))
