# SPDX-License-Identifier: Apache-2.0
"""
The history of a server from its series in a Prometheus: each scrape of vllm-watch is a point.

A point has the time at which vllm-watch read its values, which it exports. A counter that decreases has started again
(vllm-watch was restarted without its checkpoint), and is continued. If several vllm-watch report one server at a time,
one of them counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple, cast

from vllm_watch.analysis.loadtest.history import EnergyReading, Point, ServerHistory, labelled
from vllm_watch.analysis.loadtest.history_builder import HistoryBuilder
from vllm_watch.analysis.loadtest.prometheus_queries import (
    CONFIG,
    ENGINE_STATE,
    FACT_GAUGES,
    FAILURES,
    GAUGES,
    INFO,
    LAST_READING,
    POSITION,
    PRICE,
    SERVER_GPU,
    STARTS,
)
from vllm_watch.analysis.loadtest.recording_history import LOG_ALONE_AFTER
from vllm_watch.analysis.loadtest.snapshot_point import (
    FINISHED,
    HTTP_REQUESTS,
    added,
    together,
    worst_state,
)
from vllm_watch.analysis.loadtest.usage import COMPUTED
from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.catalog.states import STATES, EngineState
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch.daemon.state.configuration import are_all_known, flags_of_labels
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import EngineKey, Histogram


_OWN_LABELS = frozenset({"__name__", "le", *(label for series in SERIES.values() for label in series.labels)})
"""Labels of vllm-watch's series. All others are Prometheus' own (``job``, ``instance``): where the values come from."""

_FEW_FLAGS = "Series have few of the server's flags: they do not show every difference of configuration."
_GENERATION_TOKENS = "generation_tokens_total"

Origin = frozenset[tuple[str, str]]
"""The labels that a Prometheus adds: one set for each vllm-watch that it scrapes."""


class Answers(NamedTuple):
    """What the queries for a part of the time answered, all at the same moments."""

    sampled: tuple[PromSeries, ...]
    gauges: tuple[PromSeries, ...]
    counters: tuple[PromSeries, ...]
    histograms: tuple[PromSeries, ...]
    energy: tuple[PromSeries, ...] = ()
    energy_read: tuple[PromSeries, ...] = ()
    divided: tuple[PromSeries, ...] = ()


class Sampling(NamedTuple):
    """When a server was scraped: seconds between two scrapes, the first and the last of them."""

    interval: float
    first: float
    last: float


def sampling_of(sampled: Iterable[PromSeries]) -> Sampling | None:
    """Return how often a server was scraped, by the answer to `sampled_at` at many moments; `None` if it never was."""
    moments = sorted({value for series in sampled for _, value in series.values})
    if not moments:
        return None
    by_origin = [sorted({value for _, value in series.values}) for series in sampled]
    gaps = [later - earlier for each in by_origin for earlier, later in pairwise(each)]
    return Sampling(median(gaps) if gaps else 1.0, moments[0], moments[-1])


class PrometheusHistory:
    """
    Takes in answers in order of time.

    Args:
        interval: Seconds between two scrapes: a sample that is older than that is none of its moment.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._builder = HistoryBuilder()
        self._counters = _Counters()
        self._histograms = _Histograms()
        self._last_sample = 0.0
        self._readings: dict[str, float] = {}
        """When each source was last read."""
        self._overlapping: set[Origin] = set()
        self._cost_per_hour: float | None = None

    def add(self, answers: Answers) -> None:
        """Take in the next part of the time."""
        chosen = self._choose(answers.sampled)
        rows = _Rows(chosen)
        rows.take(answers.gauges)
        rows.take(answers.counters)
        rows.take(answers.histograms)
        gpus = _Gpus(answers)
        for at in sorted(chosen):
            sample = chosen[at].at
            if sample > self._last_sample:
                self._last_sample = sample
                self._add_point(at, sample, rows.at[at], gpus)

    def build(self, source: str, name: str, warnings: Iterable[str] = ()) -> ServerHistory:
        """Return the history."""
        several = []
        if self._overlapping:
            shown = ", ".join(sorted(_shown(origin) for origin in self._overlapping))
            several = [f'Several vllm-watch report the server "{name}" at the same time: {shown}. One of them counts.']
        has_metrics = _GENERATION_TOKENS in self._counters.totals()
        built = self._builder.build(source, name, has_metrics=has_metrics, warnings=[_FEW_FLAGS, *warnings, *several])
        return built._replace(cost_per_hour=self._cost_per_hour)

    def _choose(self, sampled: Iterable[PromSeries]) -> dict[float, _Chosen]:
        """Return whose values count at each moment: of several vllm-watch the one with the most samples."""
        ordered = sorted(sampled, key=lambda series: (-len(series.values), sorted(_origin(series.labels))))
        chosen: dict[float, _Chosen] = {}
        for series in ordered:
            origin = _origin(series.labels)
            for at, value in series.values:
                if value <= at - self._interval - _ROUNDING:
                    continue
                if at not in chosen:
                    chosen[at] = _Chosen(origin, value)
                elif chosen[at].origin != origin:
                    self._overlapping |= {origin, chosen[at].origin}
        return chosen

    def _add_point(self, at: float, sample: float, row: _Row, gpus: _Gpus) -> None:
        """Add a point, unless all in it was there a moment before."""
        self._counters.take(row)
        self._histograms.take(row)
        points = self._builder.points
        last = points[-1].at if points else 0.0
        reading = self._new_reading(at, row)
        state = worst_state(_states(row))
        if reading is None and points and state == points[-1].state and sample - last < LOG_ALONE_AFTER:
            return
        moment = max(last, sample if reading is None else reading)
        totals = self._counters.totals()
        self._note_facts(moment, row, totals)
        point = Point(
            moment,
            state,
            _gauges(row),
            _counters(totals),
            self._histograms.summed(),
            _positions(row),
            int(totals.get(STARTS, 0)),
            reading is not None,
            gpus.reading(at, row),
        )
        self._builder.add(point)

    def _new_reading(self, at: float, row: _Row) -> float | None:
        """Return when the values were read that are new: from /metrics, or from the log if that is all there is."""
        readings = {labels.get("source"): value for labels, value in row[LAST_READING] if value <= at + _ROUNDING}
        for source in ("metrics", "log"):
            found = readings.get(source, 0.0)
            is_alone = source == "metrics" or found - self._readings.get("metrics", 0.0) > LOG_ALONE_AFTER
            if found > self._readings.get(source, 0.0) and is_alone:
                self._readings[source] = found
                return found
        return None

    def _note_facts(self, at: float, row: _Row, totals: Mapping[str, float]) -> None:
        known = self._builder.started_with
        self._cost_per_hour = next((value for _, value in row[PRICE]), self._cost_per_hour)
        for labels, _ in row[INFO]:
            known.version = labels.get("version") or known.version
            known.model = labels.get("model_name") or known.model
            known.engine_generation = labels.get("engine_generation") or known.engine_generation
        for labels, _ in row[CONFIG]:
            known.note_flags(flags_of_labels(labels))
            known.is_resolved = are_all_known(labels)
        for name in FACT_GAUGES:
            for _, value in row[name]:
                known.revision += known.facts.get(name) != value
                known.facts[name] = value
            known.note_engines(name, list({labels.get("engine"): value for labels, value in row[name]}.values()))
        prefix = labelled(FAILURES, "")
        failures = {name.removeprefix(prefix): int(value) for name, value in totals.items() if name.startswith(prefix)}
        self._builder.count(at, int(totals.get(STARTS, 0)), failures or None)


class _Chosen(NamedTuple):
    """Whose values count, and when they were scraped."""

    origin: Origin
    at: float


_Row = defaultdict[str, list[tuple[Mapping[str, str], float]]]
"""The values of one moment by the names of the series without their prefix, each with its labels."""

_ROUNDING = 0.001
_NOT_COUNTED = (FAILURES, STARTS)
_BY_SOURCE = "prompt_tokens_by_source_total"
_COMPUTED = labelled(_BY_SOURCE, "local_compute")
_MAX_POSITIONS = 64


class _Rows:
    """Gathers the values of each moment from whole series."""

    def __init__(self, chosen: Mapping[float, _Chosen]) -> None:
        self._chosen = chosen
        self.at: dict[float, _Row] = {at: defaultdict(list) for at in chosen}

    def take(self, many: Iterable[PromSeries]) -> None:
        for series in many:
            name = series.labels.get("__name__", "").removeprefix(PREFIX)
            origin = _origin(series.labels)
            for at, value in series.values:
                chosen = self._chosen.get(at)
                if chosen is not None and chosen.origin == origin:
                    self.at[at][name].append((series.labels, value))


class _Gpus:
    """What the GPUs of a server have used, whichever exporter reads them: at each moment, by GPU."""

    def __init__(self, answers: Answers) -> None:
        self._joules, self._read, self._divided = (
            {(series.labels.get("gpu", ""), at): value for series in many for at, value in series.values}
            for many in (answers.energy, answers.energy_read, answers.divided)
        )

    def reading(self, at: float, row: _Row) -> EnergyReading | None:
        """Return what is known at a moment; `None` if no GPU of the server is."""
        shared = {labels.get("gpu", ""): labels.get("shared") == "true" for labels, _ in row[SERVER_GPU]}
        if not shared:
            return None
        return EnergyReading(
            max(self._read.get((gpu, at), 0.0) for gpu in shared),
            {gpu: self._joules.get((gpu, at)) for gpu in shared},
            frozenset(gpu for gpu, is_shared in shared.items() if is_shared or (gpu, at) in self._divided),
        )


class _Counters:
    """Counters of all engines together. Each is continued where it starts again, and kept where it is missing."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, EngineKey, str], tuple[float, float]] = {}
        """The last value of each, and what it had counted before it started again."""

    def take(self, row: _Row) -> None:
        for name, values in row.items():
            if not name.endswith("_total"):
                continue
            together_now: dict[tuple[str, EngineKey, str], float] = defaultdict(float)
            for labels, value in values:
                label = _counted_by(name, labels)
                if label is not None:
                    together_now[name, _engine(labels), label] += value
            for key, value in together_now.items():
                last, before = self._series.get(key, (0.0, 0.0))
                self._series[key] = (value, before + last if value < last else before)

    def totals(self) -> dict[str, float]:
        totals: dict[str, float] = defaultdict(float)
        for (name, _, label), (last, before) in self._series.items():
            totals[labelled(name, label) if label else name] += last + before
        return dict(totals)


class _Histograms:
    """Histograms of all engines together, continued like counters."""

    def __init__(self) -> None:
        self._each: dict[tuple[str, EngineKey], tuple[Histogram, Histogram | None]] = {}
        """The last values of each, and what it had counted before it started again."""

    def take(self, row: _Row) -> None:
        buckets: dict[tuple[str, EngineKey], dict[float, float]] = defaultdict(dict)
        sums: dict[tuple[str, EngineKey], float] = {}
        for name, values in row.items():
            for labels, value in values:
                if name.endswith("_bucket") and "le" in labels:
                    buckets[name.removesuffix("_bucket"), _engine(labels)][float(labels["le"])] = value
                elif name.endswith("_sum"):
                    sums[name.removesuffix("_sum"), _engine(labels)] = value
        for key, counts in buckets.items():
            if key in sums and float("inf") in counts:
                bounds = tuple(sorted(counts))
                self._note(key, Histogram(bounds, tuple(counts[bound] for bound in bounds), sums[key]))

    def summed(self) -> dict[str, Histogram]:
        found: dict[str, Histogram] = {}
        for (name, _), (last, before) in self._each.items():
            histogram = last if before is None else added(before, last)
            other = found.get(name)
            if other is None:
                found[name] = histogram
            elif other.bounds == histogram.bounds:
                found[name] = added(other, histogram)
        return found

    def _note(self, key: tuple[str, EngineKey], histogram: Histogram) -> None:
        last, before = self._each.get(key, (None, None))
        if last is not None and last.bounds != histogram.bounds:
            last = before = None
        is_restarted = last is not None and any(
            now < earlier for now, earlier in zip(histogram.counts, last.counts, strict=True)
        )
        if last is not None and is_restarted:
            before = last if before is None else added(before, last)
        self._each[key] = (histogram, before)


def _origin(labels: Mapping[str, str]) -> Origin:
    return frozenset((name, value) for name, value in labels.items() if name not in _OWN_LABELS)


def _shown(origin: Origin) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(origin)) + "}"


def _engine(labels: Mapping[str, str]) -> EngineKey:
    return EngineKey(labels.get("model_name", ""), labels.get("engine", ""))


def _counted_by(name: str, labels: Mapping[str, str]) -> str | None:
    """Return the value of the label that a point tells apart, empty without one; `None` of what a point has not."""
    if name == FINISHED:
        return labels.get("reason", "")
    if name == FAILURES:
        return labels.get("event", "")
    if name == _BY_SOURCE:
        return labels.get("source", "")
    if name == HTTP_REQUESTS:
        is_counted = labels.get("handler") in INFERENCE_HANDLERS and labels.get("code", "")[:1].isdigit()
        return f"{labels['code'][0]}xx" if is_counted else None
    return ""


def _states(row: _Row) -> Iterable[EngineState]:
    for labels, value in row[ENGINE_STATE]:
        state = labels.get("state", "")
        if value == 1 and state in STATES:
            yield cast("EngineState", state)


def _counters(totals: Mapping[str, float]) -> dict[str, float]:
    """Return what a point has of all counters; prompt tokens that were computed have the name of a scrape's."""
    found = {name: value for name, value in totals.items() if not name.startswith((*_NOT_COUNTED, _BY_SOURCE))}
    return {**found, COMPUTED: totals[_COMPUTED]} if _COMPUTED in totals else found


def _gauges(row: _Row) -> dict[str, float]:
    return {name: together(name, [value for _, value in row[name]]) for name in GAUGES if row.get(name)}


def _positions(row: _Row) -> tuple[float | None, ...]:
    by_position: dict[int, list[float]] = defaultdict(list)
    for labels, value in row[POSITION]:
        if labels.get("position", "").isdecimal():
            by_position[int(labels["position"])].append(value)
    length = min(max(by_position, default=-1) + 1, _MAX_POSITIONS)
    return tuple(
        sum(by_position[index]) / len(by_position[index]) if index in by_position else None for index in range(length)
    )
