# SPDX-License-Identifier: Apache-2.0
"""A snapshot as plain data, for JSON."""

from __future__ import annotations

import math

from collections import Counter
from collections.abc import Mapping
from typing import Any

from vllm_watch.daemon.capacity.ranges import EngineCapacity
from vllm_watch.daemon.catalog.capacity_reasons import CAPACITY_BASES, CAPACITY_UNKNOWN
from vllm_watch.daemon.catalog.causes import meaning
from vllm_watch.daemon.catalog.reasons import explain, standing
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition.gpu_view import gpu_error_views, gpu_views
from vllm_watch.daemon.state.snapshot import (
    Configuration,
    EngineSnapshot,
    HttpRequestKey,
    Reading,
    ServerSnapshot,
    SourceSnapshot,
)
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS


_OF_ENGINE = 3
"""So many labels say which engine a series is of."""


def server_view(server: ServerSnapshot) -> dict[str, Any]:
    """Return one server as dictionaries, lists, texts and numbers; what is not known is not there."""
    view: dict[str, Any] = {
        "name": server.name,
        "model_name": server.model_name,
        "version": server.version,
        "engine_generation": server.engine_generation,
        "role": server.role or None,
        "start_time": server.start_time.value if server.start_time is not None else None,
        "starts": server.starts,
        "slo": dict(server.slo),
        "configuration": _configuration_view(server.configuration),
        "labels": dict(server.labels),
        "links": dict(server.links),
        "cost_per_hour": server.cost_per_hour,
        "sources": [_source_view(source, is_stopped=server.is_stopped) for source in server.sources],
        "engines": [_engine_view(engine) for engine in server.engines],
        "http_requests": [
            {"method": key.method, "handler": key.handler, "code": key.code, "count": count}
            for key, count in server.http_requests.items()
        ],
        "failed_requests": _failed_requests(server.http_requests),
        "admission_rejections": {reason: reading.value for (_, reason), reading in server.admission_rejections.items()},
        "missing_metrics": [name for name, is_missing in server.missing_metrics.items() if is_missing],
    }
    if server.gpus:
        view["gpus"] = gpu_views(server.gpus)
        view["gpu_xids"] = server.gpu_xids
        view["gpu_errors"] = gpu_error_views(server.events)
    if server.probe is not None:
        view["probe"] = server.probe._asdict()
    if server.log is not None:
        view["log_events"] = dict(server.log.events)
        view["unparsed_stats_lines"] = server.log.unparsed_stats_lines
        view["unknown_fields"] = dict(server.log.unknown_fields)
    if server.tail is not None:
        view["log_tail"] = server.tail._asdict()
    return {name: value for name, value in view.items() if value is not None}


def _source_view(source: SourceSnapshot, *, is_stopped: bool) -> dict[str, Any]:
    view = {
        "source": source.source,
        "up": source.is_up,
        "reason": source.reason,
        "explanation": explain(source.source, source.reason, is_stopped=is_stopped),
        "standing": standing(source.source, source.reason, is_up=source.is_up, is_stopped=is_stopped),
        "last_reading": source.last_reading,
    }
    return view if source.engine_kind is None else {**view, "engine_kind": source.engine_kind}


def _configuration_view(configuration: Configuration) -> dict[str, Any]:
    view: dict[str, Any] = {"flags": {flag: known._asdict() for flag, known in configuration.flags.items()}}
    if configuration.digest is not None:
        view["config"] = configuration.digest
    change = configuration.change
    if change is not None:
        changes = [{"flag": flag, "from": old, "to": new} for flag, old, new in change.changes]
        view["change"] = {"at": change.at, "text": change.text, "changes": changes}
    return view


def _failed_requests(requests: Mapping[HttpRequestKey, float]) -> dict[str, float]:
    """Return how many requests for tokens were answered with an error, by its code or class of codes."""
    failed: Counter[str] = Counter()
    for key, count in requests.items():
        if key.handler in INFERENCE_HANDLERS and key.code[0] in "45" and count:
            failed[key.code] += int(count)
    return dict(failed)


def _engine_view(engine: EngineSnapshot) -> dict[str, Any]:
    quantiles: dict[str, dict[str, float]] = {}
    for (stage, quantile), reading in engine.quantiles.items():
        quantiles.setdefault(stage, {})[str(quantile)] = reading.value
    why, since = engine.cause, engine.state_since
    return {
        "engine": engine.key.engine,
        "model_name": engine.key.model_name,
        "state": engine.state,
        **({} if since is None else {"state_since": {"at": since.at, "is_exact": since.is_exact}}),
        **({} if why is None else {"cause": {"reason": why, "meaning": meaning(engine.state, why)}}),
        "gauges": _readings(engine.gauges),
        "prompt_excludes_cached": engine.prompt_excludes_cached,
        "counters": _readings(engine.counters),
        "requests_finished": {reason: reading.value for reason, reading in engine.requests_finished.items()},
        "position_acceptance": [None if reading is None else reading.value for reading in engine.position_acceptance],
        "kv": _kv_view(engine),
        "quantiles": quantiles,
        "means": {stage: reading.value for stage, reading in engine.means.items()},
        "quantile_bounds": _bounds(engine),
        "first_bounds": {stage: reading.value for stage, reading in engine.first_bounds.items()},
        "facts": dict(engine.facts),
        "startup_seconds": dict(engine.startup_seconds),
        "capacity": _capacity_view(engine.capacity),
        "disagreements": [name for name, is_differing in engine.disagreements.items() if is_differing],
    }


def _kv_view(engine: EngineSnapshot) -> list[dict[str, Any]]:
    """Return what its KV connectors have moved and do now, each value with the labels of its series."""
    return [
        {
            "series": key.series,
            **dict(zip(SERIES[key.series].labels[_OF_ENGINE:], key.labels, strict=True)),
            **reading._asdict(),
        }
        for key, reading in (*engine.totals.kv.items(), *engine.kv.items())
    ]


def _bounds(engine: EngineSnapshot) -> dict[str, dict[str, tuple[float, float | None]]]:
    """Return the bounds of coarse buckets, an infinite one as none, by stage and quantile."""
    bounds: dict[str, dict[str, tuple[float, float | None]]] = {}
    for (stage, quantile), (low, high) in engine.quantile_bounds.items():
        bounds.setdefault(stage, {})[str(quantile)] = (low, high if math.isfinite(high) else None)
    return bounds


def _capacity_view(capacity: EngineCapacity) -> dict[str, Any]:
    """Return the capacity on each basis, the best first, or why none is known."""
    view: dict[str, Any] = {
        basis: {"meaning": CAPACITY_BASES[basis], **known._asdict()} for basis, known in capacity.ranges.items()
    }
    if capacity.unknown is not None:
        view["unknown"] = {"reason": capacity.unknown, "meaning": CAPACITY_UNKNOWN[capacity.unknown]}
    return view


def _readings(readings: Mapping[str, Reading]) -> dict[str, dict[str, Any]]:
    return {name: reading._asdict() for name, reading in readings.items()}
