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
from math import inf
from statistics import median
from typing import NamedTuple, cast

from vllm_watch.analysis.loadtest.history_builder import (
    LOG_ALONE_AFTER,
    HistoryBuilder,
    mean_positions,
    summed,
    together,
    worst_state,
)
from vllm_watch.analysis.loadtest.server_history import (
    COMPUTED,
    FINISHED,
    GENERATED,
    GPU_MEMORY,
    HTTP_REQUESTS,
    EnergyReading,
    Point,
    ServerHistory,
    labelled,
)
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.series import DONE, FACTS, LATENCY, NOW, PREFIX, SERIES, Series
from vllm_watch.daemon.catalog.states import STATES, EngineState
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch.daemon.state.configuration import are_all_known, flags_of_labels
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import EngineKey, Histogram


ENGINE_LABELS = ("server", "model_name", "engine")
POSITION = "spec_decode_position_acceptance_ratio"
FAILURES = "log_events_total"
STARTS = "server_starts_total"
INFO = "server_info"
CONFIG = "server_config_info"
ENGINE_STATE = "engine_state"
LAST_READING = "source_last_reading_timestamp_seconds"
PRESENCE = "source_up"
"""What every server has at every scrape, whatever its sources report."""

GPU_INFO = "gpu_info"
SERVER_GPU = "server_gpu_info"
PRICE = "server_cost_per_hour"

_LEFT_OUT = {"last_token_timestamp_seconds"}


def _of_engines(series: tuple[Series, ...]) -> tuple[str, ...]:
    return tuple(row.name for row in series if row.labels == ENGINE_LABELS and row.name not in _LEFT_OUT)


GAUGES = _of_engines(NOW.series)
FACT_GAUGES = _of_engines(FACTS.series)
COUNTERS = tuple(row.name for row in DONE.series)
HISTOGRAMS = tuple(row.name for row in LATENCY.series)
PLAIN = (*GAUGES, *FACT_GAUGES, ENGINE_STATE, POSITION, INFO, CONFIG, LAST_READING)
"""What is neither a counter nor a histogram."""

_OWN_LABELS = frozenset({"__name__", "le", *(label for series in SERIES.values() for label in series.labels)})
"""Labels of vllm-watch's series. All others are Prometheus' own (``job``, ``instance``): where the values come from."""

_FEW_FLAGS = N_("Series have few of the server's flags: they do not show every difference of configuration.")

_ROUNDING = 0.001
_NOT_COUNTED = (FAILURES, STARTS)
_BY_SOURCE = "prompt_tokens_by_source_total"
_COMPUTED = labelled(_BY_SOURCE, "local_compute")
_MAX_POSITIONS = 64

Origin = frozenset[tuple[str, str]]
"""The labels that a Prometheus adds: one set for each vllm-watch that it scrapes."""


class Answers(NamedTuple):
    """What the queries for a part of the time answered, all at the same moments."""

    sampled: tuple[PromSeries, ...]
    series: tuple[PromSeries, ...]
    energy: tuple[PromSeries, ...] = ()
    energy_read: tuple[PromSeries, ...] = ()
    divided: tuple[PromSeries, ...] = ()
    memory: tuple[PromSeries, ...] = ()


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
    gaps = [later - earlier for values in by_origin for earlier, later in pairwise(values)]
    return Sampling(median(gaps) if gaps else 1.0, moments[0], moments[-1])


class PrometheusHistory:
    """Takes in answers in order of time; a sample older than an interval between two scrapes is none of its moment."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._builder = HistoryBuilder()
        self._counts = _Counts()
        self._last_sample = 0.0
        self._readings: dict[str, float] = {}
        """When each source was last read."""
        self._cost_per_hour: float | None = None

    def add(self, answers: Answers) -> None:
        """Take in the next part of the time."""
        chosen = self._choose(answers.sampled)
        rows = _rows(chosen, answers.series)
        gpus = _Gpus(answers)
        for at in sorted(chosen):
            sample = chosen[at].at
            if sample > self._last_sample:
                self._last_sample = sample
                self._add_point(at, sample, rows[at], gpus)

    def build(self, source: str, name: str, warnings: Iterable[str] = ()) -> ServerHistory:
        """Return the history."""
        has_metrics = GENERATED in self._counts.totals()
        built = self._builder.build(source, name, has_metrics=has_metrics, warnings=[_(_FEW_FLAGS), *warnings])
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
                chosen.setdefault(at, _Chosen(origin, value))
        return chosen

    def _add_point(self, at: float, sample: float, row: _Row, gpus: _Gpus) -> None:
        self._counts.take(row)
        points = self._builder.points
        last = points[-1].at if points else 0.0
        reading = self._new_reading(at, row)
        state = worst_state(_states(row))
        if reading is None and points and state == points[-1].state and sample - last < LOG_ALONE_AFTER:
            return
        moment = max(last, sample if reading is None else reading)
        totals = self._counts.totals()
        self._note_facts(moment, row, totals)
        point = Point(
            moment,
            state,
            {**_gauges(row), **gpus.memory(at)},
            _counters(totals),
            self._counts.histograms(),
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
            read = readings.get(source, 0.0)
            is_alone = source == "metrics" or read - self._readings.get("metrics", 0.0) > LOG_ALONE_AFTER
            if read > self._readings.get(source, 0.0) and is_alone:
                self._readings[source] = read
                return read
        return None

    def _note_facts(self, at: float, row: _Row, totals: Mapping[str, float]) -> None:
        server = self._builder.started_with
        self._cost_per_hour = next((value for _, value in row[PRICE]), self._cost_per_hour)
        for labels, _value in row[INFO]:
            server.note_names(labels.get("version"), labels.get("model_name"), labels.get("engine_generation"))
        for labels, _value in row[CONFIG]:
            server.note_flags(flags_of_labels(labels))
            server.are_all_flags_known = are_all_known(labels)
        for name in FACT_GAUGES:
            for _labels, value in row[name]:
                server.revision += server.facts.get(name) != value
                server.facts[name] = value
            server.note_engines(name, list({labels.get("engine"): value for labels, value in row[name]}.values()))
        prefix = labelled(FAILURES, "")
        failures = {name.removeprefix(prefix): int(value) for name, value in totals.items() if name.startswith(prefix)}
        self._builder.count(at, int(totals.get(STARTS, 0)), failures or None)


class _Chosen(NamedTuple):
    origin: Origin
    at: float


_Row = defaultdict[str, list[tuple[Mapping[str, str], float]]]
"""The values of one moment by the names of the series without their prefix, each with its labels."""


def _rows(chosen: Mapping[float, _Chosen], every: Iterable[PromSeries]) -> dict[float, _Row]:
    rows: dict[float, _Row] = {at: defaultdict(list) for at in chosen}
    for series in every:
        name, origin = series.labels.get("__name__", "").removeprefix(PREFIX), _origin(series.labels)
        for at, value in series.values:
            if at in chosen and chosen[at].origin == origin:
                rows[at][name].append((series.labels, value))
    return rows


class _Gpus:
    """What the GPUs of a server have used, whichever exporter reads them: at each moment, by GPU."""

    def __init__(self, answers: Answers) -> None:
        self._joules, self._read, self._divided = (
            {(series.labels.get("gpu", ""), at): value for series in many for at, value in series.values}
            for many in (answers.energy, answers.energy_read, answers.divided)
        )
        self._memory = {at: value for series in answers.memory for at, value in series.values}

    def memory(self, at: float) -> dict[str, float]:
        """Return the gauge of the fullest GPU's memory at a moment, if that is known."""
        return {GPU_MEMORY: self._memory[at]} if at in self._memory else {}

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


class _Counts:
    """
    Counters and histograms, kept where they are missing.

    A counter is continued where it starts again; of histograms `Growth` knows.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, EngineKey, str], tuple[float, float]] = {}
        """The last value of each, and what it counted before it started again."""
        self._histograms: dict[tuple[str, EngineKey], Histogram] = {}

    def take(self, row: _Row) -> None:
        counts: dict[tuple[str, EngineKey, str], float] = defaultdict(float)
        buckets: dict[tuple[str, EngineKey], dict[float, float]] = defaultdict(dict)
        sums: dict[tuple[str, EngineKey], float] = {}
        for name, values in row.items():
            for labels, value in values:
                engine = _engine(labels)
                if name.endswith("_total") and (label := _counted_by(name, labels)) is not None:
                    counts[name, engine, label] += value
                elif name.endswith("_bucket") and "le" in labels:
                    buckets[name.removesuffix("_bucket"), engine][float(labels["le"])] = value
                elif name.endswith("_sum"):
                    sums[name.removesuffix("_sum"), engine] = value
        for counter, value in counts.items():
            last, before = self._counters.get(counter, (0.0, 0.0))
            self._counters[counter] = value, before + (last if value < last else 0.0)
        for key, by_bound in buckets.items():
            if key in sums and inf in by_bound:
                bounds = tuple(sorted(by_bound))
                self._histograms[key] = Histogram(bounds, tuple(by_bound[bound] for bound in bounds), sums[key])

    def totals(self) -> dict[str, float]:
        """Return the counters, all engines together."""
        totals: dict[str, float] = defaultdict(float)
        for (name, _engine_key, label), counted in self._counters.items():
            totals[labelled(name, label) if label else name] += sum(counted)
        return dict(totals)

    def histograms(self) -> dict[str, Histogram]:
        """Return the histograms, all engines together."""
        return summed((name, histogram) for (name, _), histogram in self._histograms.items())


def _origin(labels: Mapping[str, str]) -> Origin:
    return frozenset((name, value) for name, value in labels.items() if name not in _OWN_LABELS)


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
    counters = {name: value for name, value in totals.items() if not name.startswith((*_NOT_COUNTED, _BY_SOURCE))}
    return {**counters, COMPUTED: totals[_COMPUTED]} if _COMPUTED in totals else counters


def _gauges(row: _Row) -> dict[str, float]:
    return {name: together(name, [value for _, value in row[name]]) for name in GAUGES if row.get(name)}


def _positions(row: _Row) -> tuple[float | None, ...]:
    positions = [(labels.get("position", ""), value) for labels, value in row[POSITION]]
    return mean_positions(
        (int(position), value)
        for position, value in positions
        if position.isdecimal() and int(position) < _MAX_POSITIONS
    )
