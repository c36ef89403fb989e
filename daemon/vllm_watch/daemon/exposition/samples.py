# SPDX-License-Identifier: Apache-2.0
"""Snapshots as samples of the series in the catalogue: what /metrics, OTLP and backfilled files are written from."""

from __future__ import annotations

import math

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import EngineCapacity
from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GPU_STATES
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.catalog.states import ENGINE_STATES
from vllm_watch.daemon.reading.log_reader import TailCounts
from vllm_watch.daemon.state.gpu_report import ACTION, ServerGpu, recommended_action
from vllm_watch.daemon.state.latencies import attainments
from vllm_watch.daemon.state.snapshot import EngineSnapshot, EngineTotals, Reading, ServerSnapshot
from vllm_watch.daemon.state.xid_events import KernelLogStatus
from vllm_watch_parsers.kernel_messages import BY_CODE, GPU_XID
from vllm_watch_parsers.readings import Histogram


SERVERS_SERIES = frozenset(name for name, series in SERIES.items() if series.labels[:1] == ("server",))
"""The series of servers: all of them have that label first, and the labels that are configured for a server."""

_OTHER_NAMES = {"size": "bytes", "lag": "lag_bytes"}


def _series_of_count(field: str) -> str:
    """Return the series of a count of the log's reading: a counter, or else a gauge."""
    name = f"log_{_OTHER_NAMES.get(field, field)}"
    return name if name in SERIES else f"{name}_total"


_TAIL_SERIES = {field: _series_of_count(field) for field in TailCounts._fields if field != "watch_mode"}


_CAUSE_SERIES = {"stalled": "engine_stall_info", "down": "engine_down_info"}
"""The states whose cause is a series."""

_CAPACITY_SERIES = (
    "capacity_estimate_tokens_per_second",
    "capacity_estimate_lower_tokens_per_second",
    "capacity_estimate_upper_tokens_per_second",
    "capacity_estimate_prompt_tokens_per_second",
)
"""In the order of the fields of `CapacityRange`."""

SHOWN_QUANTITIES = (
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "prefix_cache_hit_ratio",
    "spec_decode_mean_acceptance_length",
)
"""The quantities whose readings by both sources are shown beside each other."""


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


def bound_text(bound: float) -> str:
    """Return a bucket's bound as Prometheus writes it."""
    return "+Inf" if math.isinf(bound) else repr(bound)


def for_each_server(
    servers: Iterable[ServerSnapshot],
    add: Callable[[ServerSnapshot, Container[str]], None],
    failed: Callable[[str, Exception], None],
) -> None:
    """
    Add the samples of servers one by one: one that cannot be exported hides no other.

    Args:
        servers: The servers.
        add: Adds the samples of a server, but for those of the given GPUs: another server that uses them has them.
        failed: Is called with the name of a server that cannot be exported, and the error.
    """
    gpus: set[str] = set()
    for server in servers:
        try:
            add(server, gpus)
        except Exception as error:  # noqa: BLE001 - `failed` logs it.
            failed(server.name, error)
        else:
            gpus.update([used.gpu for used in server.gpus if used.reading is not None])


def server_samples(server: ServerSnapshot, other_gpus: Container[str] = frozenset()) -> Iterator[AnySample]:
    """Yield all samples of a snapshot, with those of its GPUs but for `other_gpus`."""
    yield from present_samples(server)
    yield from total_samples(server)
    yield from gpu_samples(server, other_gpus)


def total_samples(server: ServerSnapshot) -> Iterator[AnySample]:
    """Yield what the server counts: these counters and histograms begin again with it."""
    for totals in (*(engine.totals for engine in server.engines), *server.former):
        yield from _engine_totals(server, totals)


def present_samples(server: ServerSnapshot) -> Iterator[AnySample]:
    """Yield all samples of a server but for its totals and its GPUs; what counts among them the daemon counts."""
    for engine in server.engines:
        labels = (server.name, engine.key.model_name, engine.key.engine)
        yield from _gauge_samples(engine, labels)
        yield from _latency_samples(engine, labels)
        yield from _step_samples(engine, (*labels, *_decides_speed(server)))
        yield from _state_samples(server, engine, labels)
    yield from _whole_server_samples(server)
    yield from _configuration_samples(server)
    yield from _request_samples(server)
    yield from _of_server_samples(server)
    yield from _source_samples(server)
    yield from _comparison_samples(server)
    yield from _attempt_samples(server)
    yield from _log_samples(server)
    yield from _tail_samples(server)
    if server.gpu_xids is not None and (server.gpus or server.gpu_xids):
        yield PlainSample("log_events_total", (server.name, GPU_XID), server.gpu_xids, server.at)
    yield from _gpu_use_samples(server)


def _gauge_samples(engine: EngineSnapshot, labels: tuple[str, str, str]) -> Iterator[PlainSample]:
    for name, reading in engine.gauges.items():
        yield _sample(name, labels, reading)
    for position, ratio in enumerate(engine.position_acceptance):
        if ratio is not None:
            yield _sample("spec_decode_position_acceptance_ratio", (*labels, str(position)), ratio)
    for key, reading in engine.kv.items():
        yield _sample(key.series, (*labels, *key.labels), reading)


def _state_samples(
    server: ServerSnapshot, engine: EngineSnapshot, labels: tuple[str, str, str]
) -> Iterator[PlainSample]:
    for name, value in engine.facts.items():
        yield PlainSample(name, labels, value, server.at)
    for phase, seconds in engine.startup_seconds.items():
        yield PlainSample("startup_seconds", (*labels, phase), seconds, server.at)
    for quantity, is_differing in engine.disagreements.items():
        yield PlainSample("source_disagreement", (*labels, quantity), float(is_differing), server.at)
    for state in ENGINE_STATES:
        yield PlainSample("engine_state", (*labels, state), float(state == engine.state), server.at)
    yield PlainSample("stalls_total", labels, engine.stalls.stalls, server.at)
    yield PlainSample("stalled_seconds_total", labels, engine.stalls.seconds, server.at)
    if engine.cause is not None and engine.state in _CAUSE_SERIES:
        yield PlainSample(_CAUSE_SERIES[engine.state], (*labels, engine.cause), 1, server.at)
    yield from _capacity_samples(engine.capacity, labels, server.at)


def _capacity_samples(capacity: EngineCapacity, labels: tuple[str, str, str], at: float) -> Iterator[PlainSample]:
    for basis, known in capacity.ranges.items():
        for name, value in zip(_CAPACITY_SERIES, known, strict=True):
            if value is not None:
                yield PlainSample(name, (*labels, basis), value, at)
    if capacity.unknown is not None:
        yield PlainSample("capacity_unknown_info", (*labels, capacity.unknown), 1, at)


def _latency_samples(engine: EngineSnapshot, labels: tuple[str, str, str]) -> Iterator[PlainSample]:
    for (stage, quantile), reading in engine.latencies.quantiles.items():
        yield _sample("latency_quantile_seconds", (*labels, stage, str(quantile)), reading)
    for stage, reading in engine.latencies.means.items():
        yield _sample("latency_mean_seconds", (*labels, stage), reading)
    for stage, reading in engine.latencies.first_bounds.items():
        yield _sample("latency_first_bound_seconds", (*labels, stage), reading)


def _step_samples(engine: EngineSnapshot, labels: tuple[str, ...]) -> Iterator[PlainSample]:
    for of_class, time in engine.step_times.items():
        yield PlainSample("decode_step_seconds", (*labels, *of_class), time.seconds, time.at)
        yield PlainSample("decode_step_measurements", (*labels, *of_class), time.measured, time.at)


def _decides_speed(server: ServerSnapshot) -> tuple[str, str]:
    """
    Return the configuration and the version of a server, on which the time of a step depends.

    /metrics has few of the flags: where nothing else has any, each start counts as a configuration.
    """
    configuration = server.configuration
    config = configuration.digest or ""
    if not any(flag.source != "metrics" for flag in configuration.flags.values()):
        config = f"started {server.start_time.value:.0f}" if server.start_time is not None else ""
    return config, server.version or ""


def _engine_totals(server: ServerSnapshot, totals: EngineTotals) -> Iterator[AnySample]:
    labels = (server.name, totals.key.model_name, totals.key.engine)
    for name, reading in totals.counters.items():
        yield _sample(name, labels, reading)
    for reason, reading in totals.requests_finished.items():
        yield _sample("requests_finished_total", (*labels, reason), reading)
    for source, reading in totals.prompt_tokens.items():
        yield _sample("prompt_tokens_by_source_total", (*labels, source), reading)
    for (name, value), reading in totals.by_label.items():
        yield _sample(name, (*labels, value), reading)
    for key, reading in totals.kv.items():
        yield _sample(key.series, (*labels, *key.labels), reading)
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
    info = (name, server.model_name, server.version or "", server.engine_generation or "", server.role)
    if server.version or server.model_name:
        yield PlainSample("server_info", info, 1, at)
    yield PlainSample("server_starts_total", (name,), server.starts, at)
    if server.start_time is not None:
        yield PlainSample("server_start_timestamp_seconds", (name,), server.start_time.value, at)
    if server.links:
        yield PlainSample("server_links_info", (name, server.links.get("logs", ""), server.links.get("gpu", "")), 1, at)
    if server.cost_per_hour is not None:
        yield PlainSample("server_cost_per_hour", (name,), server.cost_per_hour, at)
    for objective, seconds in server.slo.items():
        yield PlainSample(objective, (name,), seconds, at)


def _configuration_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, configuration = server.name, server.configuration
    if configuration.digest is None:
        return
    labels = (name, server.model_name, *configuration.labels.values(), configuration.digest)
    yield PlainSample("server_config_info", labels, 1, server.at)
    change = configuration.change
    if change is not None and change.at is not None:
        for flag, old, new in change.changes:
            yield PlainSample(
                "server_config_change_timestamp_seconds", (name, flag, old or "", new or ""), change.at, server.at
            )


def _request_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name = server.name
    for key, count in server.http_requests.items():
        yield PlainSample("http_requests_total", (name, *key), count, server.at)
    for (model, reason), reading in server.admission_rejections.items():
        yield _sample("admission_rejections_total", (name, model, reason), reading)


def _of_server_samples(server: ServerSnapshot) -> Iterator[AnySample]:
    for series, reading in server.of_server.items():
        labels = (server.name, *series.labels)
        if isinstance(reading, Reading):
            yield _sample(series.name, labels, reading)
        else:
            yield HistogramSample(series.name, labels, reading.histogram, reading.at)


def _source_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    for source in server.sources:
        yield PlainSample("source_up", (name, source.source), float(source.is_up), at)
        yield PlainSample("source_info", (name, source.source, source.reason), 1, at)
        if source.last_reading is not None:
            yield PlainSample("source_last_reading_timestamp_seconds", (name, source.source), source.last_reading, at)
        if source.engine_kind is not None:
            yield PlainSample("metrics_endpoint_info", (name, source.engine_kind), 1, at)


def _comparison_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    for engine in server.engines:
        for source, gauges in engine.by_source.items():
            for quantity in SHOWN_QUANTITIES:
                reading = gauges.get(quantity)
                if reading is not None:
                    labels = (server.name, engine.key.model_name, engine.key.engine, source, quantity)
                    yield _sample("source_value", labels, reading)


def _attempt_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    for metric, is_missing in server.missing_metrics.items():
        yield PlainSample("required_metric_missing", (name, metric), float(is_missing), at)
    for (origin, quantity), count in server.values_out_of_range.items():
        yield PlainSample("refused_values_total", (name, origin, quantity), count, at)
    for dropper, count in server.label_values_dropped.items():
        yield PlainSample("label_values_dropped_total", (name, dropper), count, at)
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
    for change, count in log.adapter_changes.items():
        yield PlainSample("lora_adapter_changes_total", (server.name, change), count, server.at)
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


def _gpu_use_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    """Yield which GPUs a server uses, and what of their memory it has."""
    name, at = server.name, server.at
    for used in server.gpus:
        is_shared = "true" if used.is_shared else "false"
        yield PlainSample("server_gpu_info", (name, used.gpu, used.how, is_shared), 1, at)
        if used.memory is not None:
            yield PlainSample("gpu_process_memory_bytes", (name, used.gpu), used.memory, at)


def gpu_samples(server: ServerSnapshot, other_gpus: Container[str] = frozenset()) -> Iterator[PlainSample]:
    """Yield the samples of the GPUs that a server uses but for `other_gpus`; nobody knows when their counters began."""
    for used in server.gpus:
        if used.gpu not in other_gpus:
            yield from _samples_of_gpu(used, server.at)


def _samples_of_gpu(used: ServerGpu, at: float) -> Iterator[PlainSample]:
    reading = used.reading
    if reading is None:
        return
    gpu = reading.gpu
    about = (reading.name, reading.pci_bus_id, reading.driver_version, reading.vendor, reading.mig)
    yield PlainSample("gpu_info", (gpu, str(reading.number), *about), 1, at)
    for state in GPU_STATES:
        yield PlainSample("gpu_state", (gpu, state), float(state == reading.state), at)
    recommended = recommended_action(reading)
    for action in GPU_ACTIONS if recommended is not None else ():
        yield PlainSample(ACTION, (gpu, action), float(action == recommended), at)
    if used.other_memory is not None:
        yield PlainSample("gpu_other_memory_bytes", (gpu,), used.other_memory, at)
    for (name, *labels), value in reading.values.items():
        if name != ACTION:
            yield PlainSample(name, (gpu, *labels), value, at)


def kernel_log_samples(status: KernelLogStatus, at: float) -> Iterator[PlainSample]:
    """Yield how reading the kernel's log goes, and the errors of GPUs that it has reported."""
    yield PlainSample("kernel_log_up", (), float(status.is_up), at)
    yield PlainSample("kernel_log_info", (status.place, status.reason), 1, at)
    for total in status.totals:
        labels = (total.gpu, total.pci, total.code, BY_CODE[total.code].group)
        yield PlainSample("gpu_xid_events_total", labels, total.events, at)
        yield PlainSample("gpu_xid_last_timestamp_seconds", labels, total.last_at, at)
