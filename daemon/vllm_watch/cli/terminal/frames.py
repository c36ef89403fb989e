# SPDX-License-Identifier: Apache-2.0
"""A document of a vllm-watch as a frame: the servers by how bad their states are, with sums over their engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from vllm_watch.cli.terminal.findings import common_findings, server_findings
from vllm_watch.cli.terminal.model import (
    STAGE_NAMES,
    CapacityView,
    EngineView,
    Event,
    Frame,
    Latency,
    Point,
    ServerView,
    Since,
    SourceView,
    Stage,
)
from vllm_watch.daemon.catalog.causes import common, first_steps, meaning, severity
from vllm_watch.daemon.catalog.event_texts import EventKind
from vllm_watch.daemon.catalog.reasons import BY_SOURCE, SourceName, standing
from vllm_watch.daemon.catalog.states import STATES, EngineState, worst
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.exposition.document import (
    CapacityDocument,
    Document,
    EngineDocument,
    EventDocument,
    ReadingDocument,
    ServerDocument,
    SourceDocument,
)
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch.daemon.state.window import is_wide
from vllm_watch.daemon.support.errors import DaemonError, WrongDaemonError


_OBJECTIVES: Mapping[Stage, str] = {
    "time_to_first_token": "slo_time_to_first_token_seconds",
    "time_per_output_token": "slo_time_per_output_token_seconds",
}
"""The objective of a stage in `slo`."""

_SUMS = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_running",
    "requests_waiting",
)
_KV_CACHE = "kv_cache_usage_ratio"

_GAUGES = (
    *_SUMS,
    "requests_deferred",
    _KV_CACHE,
    "prefix_cache_hit_ratio",
    "external_prefix_cache_hit_ratio",
    "mm_cache_hit_ratio",
    "spec_decode_mean_acceptance_length",
)
_FACTS = (
    "max_running_requests",
    "kv_cache_capacity_tokens",
    "num_speculative_tokens",
)


def frame_of(document: Document, received: float, only: str | None = None) -> Frame:
    """
    Return what a document says.

    Args:
        document: What a vllm-watch answers.
        received: When it came, by the reader's clock.
        only: The only server to show.

    Raises:
        DaemonError: It is not among them; a `WrongDaemonError` if there are others.
    """
    servers = [_server(each, document) for each in document.servers if only is None or each.name == only]
    if only is not None and not servers:
        others = ", ".join(sorted(quote(each.name) for each in document.servers))
        error = WrongDaemonError if others else DaemonError  # One that has none yet may still find it.
        raise error(f"there is no server {quote(only)}; there are: {others or 'none'}")
    servers.sort(key=lambda server: (-severity(server.state, server.cause), server.name))
    return Frame(document.at, received, tuple(servers), common_findings(document), document.replay is not None)


def _server(server: ServerDocument, document: Document) -> ServerView:
    engines = tuple(_engine(each, server.slo) for each in server.engines)
    state = worst(engine.state for engine in engines)
    cause = common(engine.cause for engine in engines if engine.state == state)
    return ServerView(
        name=server.name,
        state=state,
        meaning=meaning(state, cause),
        model_name=server.model_name or None,
        version=server.version,
        now=_now(engines, document.at),
        latencies=_worst_latencies(engines),
        max_running_requests=_sum([engine.max_running_requests for engine in engines]),
        kv_cache_capacity_tokens=_sum([engine.kv_cache_capacity_tokens for engine in engines]),
        engines=engines,
        sources=tuple(
            _source(each, is_stopped=server.is_stopped) for each in server.sources if each.source in BY_SOURCE
        ),
        findings=server_findings(server, [engine.state for engine in engines], document.alerts),
        events=None if server.events is None else tuple(_event(each) for each in reversed(server.events)),
        hour=tuple(Point(at, *values) for at, values in server.hour(Point._fields[1:])),
        start_time=server.start_time,
        starts=server.starts,
        gpus=tuple(server.gpus),
        since=_since(state, server.engines),
        cause=cause,
        first_steps=first_steps().get(state),
    )


def _since(state: EngineState, engines: Iterable[EngineDocument]) -> Since | None:
    """Return since when the first of the engines in this state is in it, as far as that is known."""
    known = [engine.state_since for engine in engines if engine.state_since is not None and engine.state == state]
    first = min(known, key=lambda since: since.at, default=None)
    return None if first is None else Since(first.at, first.is_exact)


def _engine(engine: EngineDocument, slo: Mapping[str, float | None]) -> EngineView:
    values: dict[str, Any] = {name: _reading(engine.gauges.get(name)) for name in _GAUGES}
    values.update((name, engine.facts.get(name)) for name in _FACTS)
    return EngineView(
        engine=engine.engine,
        state=_state(engine.state),
        cause=engine.cause.reason if engine.cause is not None else None,
        prompt_excludes_cached=engine.prompt_excludes_cached,
        latencies=tuple(_latency(stage, engine, slo) for stage in STAGE_NAMES),
        position_acceptance=tuple(engine.position_acceptance),
        capacity=_capacity(engine.capacity),
        **values,
    )


def _state(name: str) -> EngineState:
    """Return a state; one of a newer daemon is not known here."""
    return cast("EngineState", name) if name in STATES else "unknown"


def _reading(reading: ReadingDocument | None) -> Reading | None:
    """Return a value with its source; one from a source of a newer daemon is not known here."""
    if reading is None or reading.value is None or reading.source not in BY_SOURCE:
        return None
    return Reading(reading.value, reading.at, cast("SourceName", reading.source))


_LEVELS = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}
"""The names of the quantiles, by the keys of the document."""


def _latency(stage: Stage, engine: EngineDocument, slo: Mapping[str, float | None]) -> Latency:
    mean, bounds = engine.means.get(stage), engine.quantile_bounds.get(stage, {})
    # Of one in a wide bucket only the bounds are known: an estimate would be a number that nobody had.
    wide = {level: each[0] for level, each in bounds.items() if is_wide(each)}
    quantiles = {**engine.quantiles.get(stage, {}), **wide}
    return Latency(
        stage,
        mean,
        quantiles.get("0.5"),
        quantiles.get("0.95"),
        quantiles.get("0.99"),
        at_least=frozenset(name for level, name in _LEVELS.items() if level in wide),
        roughly=frozenset(name for level, name in _LEVELS.items() if level in bounds and level not in wide),
        below=None if mean is None else engine.first_bounds.get(stage),
        objective=slo.get(_OBJECTIVES.get(stage, "")),
    )


def _capacity(by_basis: Mapping[str, CapacityDocument]) -> CapacityView:
    """Return the capacity on the best basis, or why there is none."""
    best = next(iter(by_basis.values()), None)
    if best is None:
        return CapacityView()
    return CapacityView(best.tokens_per_second, best.low, best.high, best.meaning)


def _source(source: SourceDocument, *, is_stopped: bool) -> SourceView:
    name = cast("SourceName", source.source)
    known = BY_SOURCE[name].get(source.reason)
    return SourceView(
        name,
        source.up,
        known.short if known else source.explanation,
        source.last_reading,
        standing(name, source.reason, is_up=source.up, is_stopped=is_stopped),
    )


def _event(event: EventDocument) -> Event:
    state = None if event.state is None else _state(event.state)
    return Event(event.at, cast("EventKind", event.kind), event.text, event.count, event.engine, state)


def _now(engines: Sequence[EngineView], at: float) -> Point:
    sums = {name: _sum([_value(getattr(engine, name)) for engine in engines]) for name in _SUMS}
    usage = [engine.kv_cache_usage_ratio.value for engine in engines if engine.kv_cache_usage_ratio is not None]
    first = _worst_latency("time_to_first_token", engines)
    return Point(at, **sums, kv_cache_usage_ratio=max(usage, default=None), ttft_p95=first.p95)


def _value(reading: Reading | None) -> float | None:
    return None if reading is None else reading.value


def _sum(values: Sequence[float | None]) -> float | None:
    """Return a sum, if there is nothing in it that is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _worst_latencies(engines: Sequence[EngineView]) -> tuple[Latency, ...]:
    return tuple(_worst_latency(stage, engines) for stage in STAGE_NAMES)


def _worst_latency(stage: Stage, engines: Sequence[EngineView]) -> Latency:
    """Return the highest of each number of a stage."""
    found = [latency for engine in engines for latency in engine.latencies if latency.stage == stage]
    highest = {
        name: max([value for each in found if (value := getattr(each, name)) is not None], default=None)
        for name in ("mean", *_LEVELS.values(), "below", "objective")
    }
    marked = {
        mark: {name for each in found for name in getattr(each, mark) if getattr(each, name) == highest[name]}
        for mark in ("at_least", "roughly")
    }
    return Latency(stage, **highest, at_least=frozenset(marked["at_least"]), roughly=frozenset(marked["roughly"]))
