# SPDX-License-Identifier: Apache-2.0
"""
The JSON at ``/api/v1/snapshot`` as typed values: what the daemon writes, and what `top` and load tests read.

`json_view` fills them from snapshots. What is not known is left out. Every key but the names may be missing when a
document is read: an older daemon has fewer, and a newer one has some that are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from msgspec import Struct

from vllm_watch.daemon.catalog.states import common
from vllm_watch.daemon.support.errors import WrongDaemonError


def _written(value: Any) -> Any:  # noqa: ANN401 - The field says of which type it is.
    """Return a default for a document that lacks the field; unlike other defaults it is written."""
    return msgspec.field(default_factory=lambda: value)


class Document(Struct):
    """All servers at one moment; `prometheus` is there only if one is configured, `replay` only of a replay."""

    at: float
    servers: list[ServerDocument]
    prometheus: PrometheusDocument | None = None
    alerts: list[AlertDocument] = []
    replay: ReplayDocument | None = None


class ReplayDocument(Struct):
    """How many seconds of a recording pass in one."""

    speed: float = 1.0


class ServerDocument(Struct, omit_defaults=True):
    """
    One server.

    `gpus` and the two fields after it are there only if it uses GPUs, `probe` only if it is probed, the fields of the
    log only if it is read, `history` and `events` only if the last hour was asked for.
    """

    name: str
    model_name: str | None = None
    version: str | None = None
    engine_generation: str | None = None
    role: str | None = None
    start_time: float | None = None
    starts: int | None = None
    slo: Mapping[str, float | None] = _written({})
    configuration: ConfigurationDocument | None = None
    labels: Mapping[str, str] = _written({})
    links: Mapping[str, str] = _written({})
    cost_per_hour: float | None = None
    sources: Sequence[SourceDocument] = _written([])
    engines: Sequence[EngineDocument] = _written([])
    http_requests: Sequence[RequestsDocument] = _written([])
    failed_requests: Mapping[str, float] = _written({})
    admission_rejections: Mapping[str, float] = _written({})
    missing_metrics: Sequence[str] = _written([])
    gpus: list[GpuDocument] = []
    gpu_xids: int | None = None
    gpu_errors: list[GpuErrorDocument] | None = None
    probe: Mapping[str, Any] | None = None
    log_events: Mapping[str, int] | None = None
    unparsed_stats_lines: int | None = None
    unknown_fields: Mapping[str, int] | None = None
    log_tail: Mapping[str, Any] | None = None
    history: dict[str, list[float | None]] = {}
    events: list[EventDocument] | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped in order, with all its engines."""
        return common(None if engine.cause is None else engine.cause.reason for engine in self.engines) == "stopped"

    def hour(self, names: Sequence[str]) -> list[tuple[float, list[float | None]]]:
        """Return the last hour as far as it is there: each moment with the values of these columns, oldest first."""
        times = self.history.get("t", [])
        unknown: list[float | None] = [None] * len(times)
        columns = [self.history.get(name, unknown) for name in names]
        if any(len(column) != len(times) for column in columns):
            return []
        return [(at, values) for at, *values in zip(times, *columns, strict=True) if at is not None]


class PrometheusDocument(Struct):
    """Whether the alerts of the configured Prometheus are known, and if not, why."""

    up: bool = False
    explanation: str = ""


class AlertDocument(Struct, omit_defaults=True):
    """
    One alert of the configured Prometheus.

    Args:
        alertname: The rule's name.
        severity: One of `SEVERITIES`, unless somebody has changed the rules.
        state: ``firing``, or ``pending`` while its condition has not held for long enough.
        server: Which server it is about; `None` if it is about a vllm-watch.
        engine: Which engine of that server, if it is about one.
        instance: Which vllm-watch the series are from, as Prometheus names it.
        active_since: When its condition began to hold, in seconds since the epoch.
        summary: What is wrong, in one sentence.
        runbook_url, dashboard_url: Where to read on.
    """

    alertname: str
    severity: str = _written("")
    state: str = _written("")
    server: str | None = None
    engine: str | None = None
    instance: str | None = None
    active_since: float | None = None
    summary: str = _written("")
    runbook_url: str | None = None
    dashboard_url: str | None = None


class SourceDocument(Struct, omit_defaults=True):
    """One source of a server; `engine_kind` is whose names /metrics bears."""

    source: str
    up: bool = _written(value=False)
    reason: str = _written("")
    explanation: str = _written("")
    standing: str = _written("")
    last_reading: float | None = _written(None)
    engine_kind: str | None = None


class RequestsDocument(Struct):
    """How many requests a server has answered."""

    method: str = ""
    handler: str = ""
    code: str = ""
    count: float = 0.0


class ReadingDocument(Struct):
    """A value with its time and its source."""

    value: float | None = None
    at: float = 0.0
    source: str = ""


class SinceDocument(Struct):
    """Since when an engine is in its state; if that is not exact, perhaps for longer."""

    at: float
    is_exact: bool = False


class CauseDocument(Struct):
    """Why an engine is in a bad state."""

    reason: str = ""
    meaning: str = ""


class UnknownCapacityDocument(Struct, omit_defaults=True):
    """Why it is not known what an engine sustains."""

    reason: str | None = None
    meaning: str = _written("")


class CapacityDocument(UnknownCapacityDocument, omit_defaults=True):
    """What an engine sustains by one basis, which `meaning` explains."""

    tokens_per_second: float | None = None
    low: float | None = None
    high: float | None = None
    prompt_tokens_per_second: float | None = _written(None)


class EngineDocument(Struct, omit_defaults=True):
    """
    One engine.

    `capacity` is by basis, the best first, or has only ``unknown``; quantiles are by stage and by the quantile as a
    text. `kv` is what its KV connectors have moved and do now, each value with the labels of its series.
    """

    engine: str = _written("0")
    model_name: str | None = None
    state: str = _written("unknown")
    state_since: SinceDocument | None = None
    cause: CauseDocument | None = None
    gauges: Mapping[str, ReadingDocument] = _written({})
    prompt_excludes_cached: bool | None = _written(None)
    counters: Mapping[str, ReadingDocument] = _written({})
    requests_finished: Mapping[str, float] = _written({})
    position_acceptance: Sequence[float | None] = _written([])
    kv: Sequence[Mapping[str, Any]] = _written([])
    quantiles: Mapping[str, Mapping[str, float | None]] = _written({})
    means: Mapping[str, float | None] = _written({})
    quantile_bounds: Mapping[str, Mapping[str, tuple[float, float | None]]] = _written({})
    first_bounds: Mapping[str, float | None] = _written({})
    facts: Mapping[str, float | None] = _written({})
    startup_seconds: Mapping[str, float] = _written({})
    capacity: Mapping[str, CapacityDocument] = _written({})
    disagreements: Sequence[str] = _written([])


class GpuDocument(Struct, frozen=True, omit_defaults=True):
    """
    A GPU that a server uses; what stands below `throttled` is there only if it can be read.

    `throttled` is the part of the last seconds in which its clocks were lowered, by reason. Values with labels are
    keyed by the labels, joined by ``_``.
    """

    gpu: str
    how: str | None = None
    is_shared: bool = _written(value=False)
    memory: float | None = None
    other_memory: float | None = None
    throttled: Mapping[str, float] | None = None
    index: int | None = None
    name: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    vendor: str = ""
    mig: bool | None = None
    state: str | None = None
    recovery_action: str | None = None
    values: dict[str, float | None] = {}
    values_by_label: dict[str, dict[str, float | None]] = {}


class GpuErrorDocument(Struct, rename={"group": "class"}):
    """An error of a GPU that the kernel has reported in the last hour, by its code, its class and the GPU's place."""

    at: float = 0.0
    xid: str = ""
    group: str = ""
    pci_bus_id: str = ""


class ChangeDocument(Struct):
    """What the last start with other flags has changed."""

    at: float | None = None
    text: str = ""
    changes: Sequence[Mapping[str, str | None]] = []


class ConfigurationDocument(Struct, omit_defaults=True):
    """What is known of a server's flags: each with its value and source, and a digest of all."""

    flags: Mapping[str, Mapping[str, str]] = _written({})
    config: str | None = None
    change: ChangeDocument | None = None


class EventDocument(Struct, omit_defaults=True):
    """Something that happened."""

    at: float
    kind: str
    text: str
    count: int = _written(1)
    engine: str | None = None
    gpu: str | None = None
    state: str | None = None
    path: str | None = None


_DECODER = msgspec.json.Decoder(Document)


def decode(body: bytes) -> Document:
    """
    Return a document.

    Raises:
        WrongDaemonError: It is none.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # A wrong shape is a DecodeError, too.
        raise WrongDaemonError("the answer is not what a vllm-watch answers: check the address") from None
