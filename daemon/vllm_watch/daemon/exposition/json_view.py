# SPDX-License-Identifier: Apache-2.0
"""Snapshots as the documents that are written as JSON."""

from __future__ import annotations

import math

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vllm_watch.daemon.capacity.load import EngineCapacity
from vllm_watch.daemon.catalog.codes import CAPACITY_BASES, CAPACITY_UNKNOWN
from vllm_watch.daemon.catalog.event_texts import FAILURES, FILE_CHANGES, STARTED, flags_text, state_text
from vllm_watch.daemon.catalog.gpu_texts import gpu_text, xid_text
from vllm_watch.daemon.catalog.reasons import explain, standing
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.catalog.states import meaning
from vllm_watch.daemon.exposition.document import (
    CapacityDocument,
    CauseDocument,
    ChangeDocument,
    ConfigurationDocument,
    EngineDocument,
    EventDocument,
    GpuDocument,
    GpuErrorDocument,
    ReadingDocument,
    RequestsDocument,
    ServerDocument,
    SinceDocument,
    SourceDocument,
    UnknownCapacityDocument,
)
from vllm_watch.daemon.state.gpu_report import ACTION, ServerGpu, recommended_action
from vllm_watch.daemon.state.http_source import HttpRequestKey
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.snapshot import (
    Configuration,
    EngineSnapshot,
    Reading,
    ServerEvent,
    ServerSnapshot,
    SourceSnapshot,
)
from vllm_watch_parsers.kernel_messages import BY_CODE
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS


_LABELS_OF_ENGINE = 3
"""How many labels say which engine a series is of."""

_EVENT_TEXTS: Mapping[str, str] = dict([*FAILURES.items(), *FILE_CHANGES.items()])


def server_view(server: ServerSnapshot) -> dict[str, Any]:
    """Return one server as dictionaries, lists, texts and numbers; what is not known is not there."""
    view: dict[str, Any] = msgspec.to_builtins(as_document(server))
    return view


def as_document(server: ServerSnapshot) -> ServerDocument:
    """Return one server without its last hour."""
    log, tail, probe, start = server.log, server.tail, server.probe, server.start_time
    return ServerDocument(
        server.name,
        model_name=server.model_name,
        version=server.version,
        engine_generation=server.engine_generation,
        role=server.role or None,
        start_time=None if start is None else start.value,
        starts=server.starts,
        slo=dict(server.slo),
        configuration=_configuration(server.configuration),
        labels=dict(server.labels),
        links=dict(server.links),
        cost_per_hour=server.cost_per_hour,
        sources=[_source(source, is_stopped=server.is_stopped) for source in server.sources],
        engines=[_engine(engine) for engine in server.engines],
        http_requests=[RequestsDocument(*key, count) for key, count in server.http_requests.items()],
        failed_requests=_failed_requests(server.http_requests),
        admission_rejections={reason: reading.value for (_, reason), reading in server.admission_rejections.items()},
        missing_metrics=[name for name, is_missing in server.missing_metrics.items() if is_missing],
        gpus=list(map(gpu_document, server.gpus)),
        gpu_xids=server.gpu_xids if server.gpus else None,
        gpu_errors=_gpu_errors(server.events) if server.gpus else None,
        probe=None if probe is None else _probe(probe),
        log_events=None if log is None else dict(log.events),
        unparsed_stats_lines=None if log is None else log.unparsed_stats_lines,
        unknown_fields=None if log is None else dict(log.unknown_fields),
        log_tail=None if tail is None else tail._asdict(),
    )


def _probe(probe: ProbeResult) -> dict[str, Any]:
    return {"is_success": probe.is_success, "first_token_seconds": probe.first_token_seconds}


def event_documents(events: Iterable[ServerEvent]) -> list[EventDocument]:
    """Return events with their texts, in the same order."""
    return [
        EventDocument(
            event.at,
            event.kind,
            _event_text(event),
            event.times,
            event.engine,
            event.gpu,
            event.what if event.kind == "state" else None,
            event.path,
        )
        for event in events
    ]


def _event_text(event: ServerEvent) -> str:
    """Return what happened in words, without when, how often and to which engine."""
    if event.kind == "start":
        return STARTED
    if event.kind == "state" and event.before is not None:
        return state_text(event.before, event.what)
    if event.kind == "gpu":
        return gpu_text(event.what, event.gpu or "")
    if event.kind == "xid":
        return xid_text(event.what, event.gpu or "")
    if event.kind == "flags":
        return flags_text(event.what)
    return _EVENT_TEXTS[event.what] + (f": {event.path}" if event.path else "")


def gpu_document(used: ServerGpu) -> GpuDocument:
    """Return a GPU; one that cannot be read has no fields of the driver's."""
    use = (used.gpu, used.how, used.is_shared, used.memory, used.other_memory, used.throttled)
    reading = used.reading
    if reading is None:
        return GpuDocument(*use)
    by_label: dict[str, dict[str, float | None]] = {}
    for (name, *labels), value in reading.values.items():
        if labels and name != ACTION:
            by_label.setdefault(name, {})["_".join(labels)] = value
    return GpuDocument(
        *use,
        index=reading.number,
        name=reading.name,
        pci_bus_id=reading.pci_bus_id,
        driver_version=reading.driver_version,
        vendor=reading.vendor,
        mig=reading.mig == "1",
        state=reading.state,
        recovery_action=recommended_action(reading),
        values={name: value for (name, *labels), value in reading.values.items() if not labels},
        values_by_label=by_label,
    )


def _gpu_errors(events: Iterable[ServerEvent]) -> list[GpuErrorDocument]:
    """Return the errors of GPUs among the events of the last hour, the oldest first."""
    return [
        GpuErrorDocument(event.at, event.what, BY_CODE[event.what].group, event.gpu or "")
        for event in events
        if event.kind == "xid"
    ]


def _source(source: SourceSnapshot, *, is_stopped: bool) -> SourceDocument:
    return SourceDocument(
        source.source,
        source.is_up,
        source.reason,
        explain(source.source, source.reason, is_stopped=is_stopped),
        standing(source.source, source.reason, is_up=source.is_up, is_stopped=is_stopped),
        source.last_reading,
        source.engine_kind,
    )


def _configuration(configuration: Configuration) -> ConfigurationDocument:
    flags = {flag: value._asdict() for flag, value in configuration.flags.items()}
    change = configuration.change
    if change is None:
        return ConfigurationDocument(flags, configuration.digest)
    changes = [{"flag": flag, "from": old, "to": new} for flag, old, new in change.changes]
    return ConfigurationDocument(flags, configuration.digest, ChangeDocument(change.at, change.text, changes))


def _failed_requests(requests: Mapping[HttpRequestKey, float]) -> dict[str, float]:
    """Return how many requests for tokens were answered with an error, by its code or class of codes."""
    failed: Counter[str] = Counter()
    for key, count in requests.items():
        if key.handler in INFERENCE_HANDLERS and key.code[0] in "45" and count:
            failed[key.code] += int(count)
    return dict(failed)


def _engine(engine: EngineSnapshot) -> EngineDocument:
    quantiles: dict[str, dict[str, float | None]] = {}
    for (stage, quantile), reading in engine.latencies.quantiles.items():
        quantiles.setdefault(stage, {})[str(quantile)] = reading.value
    cause, since = engine.cause, engine.state_since
    return EngineDocument(
        engine=engine.key.engine,
        model_name=engine.key.model_name,
        state=engine.state,
        state_since=None if since is None else SinceDocument(since.at, since.is_exact),
        cause=None if cause is None else CauseDocument(cause, meaning(engine.state, cause)),
        gauges=_readings(engine.gauges),
        prompt_excludes_cached=engine.prompt_excludes_cached,
        counters=_readings(engine.counters),
        requests_finished={reason: reading.value for reason, reading in engine.requests_finished.items()},
        position_acceptance=[None if reading is None else reading.value for reading in engine.position_acceptance],
        kv=_kv(engine),
        quantiles=quantiles,
        means={stage: reading.value for stage, reading in engine.latencies.means.items()},
        quantile_bounds=_bounds(engine),
        first_bounds={stage: reading.value for stage, reading in engine.latencies.first_bounds.items()},
        facts=dict(engine.facts),
        startup_seconds=dict(engine.startup_seconds),
        capacity=_capacity(engine.capacity),
        disagreements=[name for name, is_differing in engine.disagreements.items() if is_differing],
    )


def _kv(engine: EngineSnapshot) -> list[dict[str, Any]]:
    return [
        {
            "series": key.series,
            **dict(zip(SERIES[key.series].labels[_LABELS_OF_ENGINE:], key.labels, strict=True)),
            **reading._asdict(),
        }
        for key, reading in (*engine.totals.kv.items(), *engine.kv.items())
    ]


def _bounds(engine: EngineSnapshot) -> dict[str, dict[str, tuple[float, float | None]]]:
    """Return the bounds of coarse buckets, an infinite one as none, by stage and quantile."""
    bounds: dict[str, dict[str, tuple[float, float | None]]] = {}
    for (stage, quantile), (low, high) in engine.latencies.quantile_bounds.items():
        bounds.setdefault(stage, {})[str(quantile)] = (low, high if math.isfinite(high) else None)
    return bounds


def _capacity(capacity: EngineCapacity) -> dict[str, Any]:
    """Return the capacity on each basis, the best first, or why none is known."""
    view: dict[str, UnknownCapacityDocument] = {
        basis: CapacityDocument(None, CAPACITY_BASES[basis], *known) for basis, known in capacity.ranges.items()
    }
    if capacity.unknown is not None:
        view["unknown"] = UnknownCapacityDocument(capacity.unknown, CAPACITY_UNKNOWN[capacity.unknown])
    return view


def _readings(readings: Mapping[str, Reading]) -> dict[str, ReadingDocument]:
    return {name: ReadingDocument(*reading) for name, reading in readings.items()}
