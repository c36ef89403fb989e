# SPDX-License-Identifier: Apache-2.0
"""A snapshot as samples, to be written in whatever format."""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_watch.catalog.series import SERIES, Series
from vllm_watch.catalog.states import ENGINE_STATES
from vllm_watch.state.objectives import attainments
from vllm_watch.state.snapshot import EngineSnapshot, EngineTotals, Reading, ServerSnapshot, TailCounts
from vllm_watch_parsers.scrape import EngineKey, Histogram


_OTHER_NAMES = {"size": "bytes", "lag": "lag_bytes"}


def _series_of_count(field: str) -> str:
    """Return the series of a count of the log's reading: a counter, or else a gauge."""
    name = f"log_{_OTHER_NAMES.get(field, field)}"
    return name if name in SERIES else f"{name}_total"


_TAIL_SERIES = {field: _series_of_count(field) for field in TailCounts._fields if field != "watch_mode"}


class PlainSample(NamedTuple):
    """
    One sample of a gauge or counter.

    Args:
        name: The series' name without prefix.
        labels: Label values, in the order of the series' labels.
        value: The value.
        at: When it was so, in seconds since the epoch.
    """

    name: str
    labels: tuple[str, ...]
    value: float
    at: float


class HistogramSample(NamedTuple):
    """One histogram."""

    name: str
    labels: tuple[str, ...]
    histogram: Histogram
    at: float


AnySample = PlainSample | HistogramSample


def by_series(samples: Iterable[AnySample]) -> Iterator[tuple[Series, list[AnySample]]]:
    """Yield the series that have samples, in the table's order, each with its samples."""
    by_name: dict[str, list[AnySample]] = defaultdict(list)
    for sample in samples:
        by_name[sample.name].append(sample)
    yield from ((series, by_name[name]) for name, series in SERIES.items() if name in by_name)


def bound_text(bound: float) -> str:
    """Return a bucket's bound as Prometheus writes it."""
    return "+Inf" if math.isinf(bound) else repr(bound)


class LastingSamples(NamedTuple):
    """
    Samples of one engine that are the same until the server's next scrape.

    Args:
        place: Distinguishes them from the others of their server.
        made_of: Where they come from: the same objects as long as they are the same samples.
        samples: The samples.
    """

    place: tuple[str, EngineKey]
    made_of: tuple[object, ...]
    samples: Iterator[AnySample]


def server_samples(server: ServerSnapshot) -> Iterator[AnySample]:
    """Yield all samples of a snapshot."""
    yield from passing_samples(server)
    for lasting in lasting_samples(server):
        yield from lasting.samples


def lasting_samples(server: ServerSnapshot) -> Iterator[LastingSamples]:
    """Yield the samples of a snapshot that were worked out of the last scrape: latencies, counters, histograms."""
    for engine in server.engines:
        made_of: tuple[object, ...] = (engine.quantiles, engine.means, engine.first_bounds)
        yield LastingSamples(("latencies", engine.key), made_of, _latency_samples(server, engine))
    for totals in (*(engine.totals for engine in server.engines), *server.former):
        made_of = (totals.counters, totals.requests_finished, totals.histograms, server.slo)
        yield LastingSamples(("totals", totals.key), made_of, _total_samples(server, totals))


def passing_samples(server: ServerSnapshot) -> Iterator[AnySample]:
    """Yield all other samples of a snapshot."""
    for engine in server.engines:
        yield from _engine_samples(server, engine)
    yield from _whole_server_samples(server)
    yield from _source_samples(server)
    if server.log is not None:
        yield from _log_samples(server)
    if server.tail is not None:
        yield from _tail_samples(server)


def _engine_samples(server: ServerSnapshot, engine: EngineSnapshot) -> Iterator[AnySample]:
    labels = (server.name, engine.key.model_name, engine.key.engine)
    for name, reading in engine.gauges.items():
        yield _sample(name, labels, reading)
    for position, ratio in enumerate(engine.position_acceptance):
        if ratio is not None:
            yield _sample("spec_decode_position_acceptance_ratio", (*labels, str(position)), ratio)
    for name, value in engine.facts.items():
        yield PlainSample(name, labels, value, server.at)
    for quantity, is_differing in engine.disagreements.items():
        yield PlainSample("source_disagreement", (*labels, quantity), float(is_differing), server.at)
    yield from _state_samples(server, engine, labels)


def _state_samples(
    server: ServerSnapshot, engine: EngineSnapshot, labels: tuple[str, str, str]
) -> Iterator[PlainSample]:
    for state in ENGINE_STATES:
        yield PlainSample("engine_state", (*labels, state), float(state == engine.state), server.at)
    if engine.stall_reason is not None:
        yield PlainSample("engine_stall_info", (*labels, engine.stall_reason), 1, server.at)


def _latency_samples(server: ServerSnapshot, engine: EngineSnapshot) -> Iterator[PlainSample]:
    labels = (server.name, engine.key.model_name, engine.key.engine)
    for (stage, quantile), reading in engine.quantiles.items():
        yield _sample("latency_quantile_seconds", (*labels, stage, str(quantile)), reading)
    for stage, reading in engine.means.items():
        yield _sample("latency_mean_seconds", (*labels, stage), reading)
    for stage, reading in engine.first_bounds.items():
        yield _sample("latency_first_bound_seconds", (*labels, stage), reading)


def _total_samples(server: ServerSnapshot, totals: EngineTotals) -> Iterator[AnySample]:
    labels = (server.name, totals.key.model_name, totals.key.engine)
    for name, reading in totals.counters.items():
        yield _sample(name, labels, reading)
    for reason, reading in totals.requests_finished.items():
        yield _sample("requests_finished_total", (*labels, reason), reading)
    for name, histogram in totals.histograms.items():
        yield HistogramSample(name, labels, histogram.histogram, histogram.at)
    for kept in attainments(server.slo, totals.histograms):
        objective = (*labels, kept.objective)
        bound = bound_text(kept.bound)
        yield PlainSample("slo_requests_total", (*objective, bound), kept.requests, kept.at)
        yield PlainSample("slo_good_requests_total", (*objective, bound), kept.good, kept.at)
        yield PlainSample("slo_bound_seconds", objective, kept.bound, kept.at)


def _sample(name: str, labels: tuple[str, ...], reading: Reading) -> PlainSample:
    return PlainSample(name, labels, reading.value, reading.at)


def _whole_server_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    info = (name, server.model_name, server.version or "", server.engine_generation or "")
    if server.version or server.model_name:
        yield PlainSample("server_info", info, 1, at)
    yield PlainSample("server_starts_total", (name,), server.starts, at)
    if server.start_time is not None:
        yield PlainSample("server_start_timestamp_seconds", (name,), server.start_time.value, at)
    for objective, seconds in server.slo.items():
        yield PlainSample(objective, (name,), seconds, at)
    for key, count in server.http_requests.items():
        yield PlainSample("http_requests_total", (name, *key), count, at)
    for (model, reason), reading in server.admission_rejections.items():
        yield _sample("admission_rejections_total", (name, model, reason), reading)


def _source_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    for source in server.sources:
        yield PlainSample("source_up", (name, source.source), float(source.is_up), at)
        yield PlainSample("source_info", (name, source.source, source.reason), 1, at)
        if source.last_reading is not None:
            yield PlainSample("source_last_reading_timestamp_seconds", (name, source.source), source.last_reading, at)
    for item in server.comparisons:
        labels = (name, item.key.model_name, item.key.engine, item.source, item.quantity)
        yield _sample("source_value", labels, item.reading)
    for metric, is_missing in server.missing_metrics.items():
        yield PlainSample("required_metric_missing", (name, metric), float(is_missing), at)
    for (origin, quantity), count in server.values_out_of_range.items():
        yield PlainSample("refused_values_total", (name, origin, quantity), count, at)
    for dropper, count in server.label_values_dropped.items():
        yield PlainSample("label_values_dropped_total", (name, dropper), count, at)
    yield from _attempt_samples(server)


def _attempt_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    if server.scrape_long_lines is not None:
        yield PlainSample("scrape_long_lines_total", (name,), server.scrape_long_lines, at)
    if server.scrape_duration is not None:
        yield PlainSample("scrape_duration_seconds", (name,), server.scrape_duration, at)
    if server.probe is not None:
        yield PlainSample("probe_success", (name,), float(server.probe.is_success), at)
        if server.probe.first_token_seconds is not None:
            yield PlainSample("probe_time_to_first_token_seconds", (name,), server.probe.first_token_seconds, at)


def _log_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    log = server.log
    if log is None:
        return
    for event, count in log.events.items():
        yield PlainSample("log_events_total", (server.name, event), count, server.at)
    for field, count in log.unknown_fields.items():
        yield PlainSample("unknown_field_total", (server.name, field), count, server.at)
    yield PlainSample("unparsed_stats_lines_total", (server.name,), log.unparsed_stats_lines, server.at)
    yield PlainSample("continuation_lines_total", (server.name,), log.continuation_lines, server.at)
    yield PlainSample("log_lines_rejected_total", (server.name,), log.rejected_lines, server.at)


def _tail_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    tail = server.tail
    if tail is None:
        return
    for field, name in _TAIL_SERIES.items():
        count = getattr(tail, field)
        if count is not None:
            yield PlainSample(name, (server.name,), count, server.at)
    if tail.watch_mode is not None:
        yield PlainSample("log_watch_info", (server.name, tail.watch_mode), 1, server.at)
