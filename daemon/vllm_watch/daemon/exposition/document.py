# SPDX-License-Identifier: Apache-2.0
"""
The document at ``/api/v1/snapshot`` as typed values.

Every key but the names may be missing: an older daemon has fewer, and a newer one has some that are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from msgspec import Struct

from vllm_watch.daemon.catalog.causes import common
from vllm_watch.daemon.support.errors import WrongDaemonError


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


class ServerDocument(Struct):
    """One server; `history` and `events` are there only if the last hour was asked for."""

    name: str
    model_name: str | None = None
    version: str | None = None
    start_time: float | None = None
    starts: int | None = None
    slo: dict[str, float | None] = {}
    sources: list[SourceDocument] = []
    engines: list[EngineDocument] = []
    missing_metrics: list[str] = []
    configuration: ConfigurationDocument | None = None
    history: dict[str, list[float | None]] = {}
    events: list[EventDocument] | None = None
    gpus: list[GpuDocument] = []
    gpu_errors: list[GpuErrorDocument] = []

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


class AlertDocument(Struct):
    """One alert of the configured Prometheus, about a server or about vllm-watch."""

    alertname: str
    severity: str = ""
    state: str = ""
    server: str | None = None
    engine: str | None = None
    instance: str | None = None
    summary: str = ""


class SourceDocument(Struct):
    """One source of a server."""

    source: str
    up: bool = False
    reason: str = ""
    explanation: str = ""
    last_reading: float | None = None


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


class CapacityDocument(Struct):
    """What an engine sustains by one basis, or why that is not known."""

    meaning: str = ""
    tokens_per_second: float | None = None
    low: float | None = None
    high: float | None = None


class EngineDocument(Struct):
    """One engine. `capacity` is by basis, the best first; quantiles are by stage and by the quantile as a text."""

    engine: str = "0"
    state: str = "unknown"
    state_since: SinceDocument | None = None
    cause: CauseDocument | None = None
    gauges: dict[str, ReadingDocument] = {}
    prompt_excludes_cached: bool | None = None
    position_acceptance: list[float | None] = []
    quantiles: dict[str, dict[str, float | None]] = {}
    quantile_bounds: dict[str, dict[str, tuple[float, float | None]]] = {}
    means: dict[str, float | None] = {}
    first_bounds: dict[str, float | None] = {}
    facts: dict[str, float | None] = {}
    capacity: dict[str, CapacityDocument] = {}
    disagreements: list[str] = []


class GpuDocument(Struct, frozen=True):
    """
    One GPU of a server.

    All but the first is missing where the driver does not show it. `throttled` is the part of the last seconds in which
    its clocks were lowered, by reason.
    """

    gpu: str
    memory: float | None = None
    other_memory: float | None = None
    is_shared: bool = False
    index: int | None = None
    name: str = ""
    pci_bus_id: str = ""
    mig: bool = False
    state: str | None = None
    recovery_action: str | None = None
    throttled: dict[str, float] | None = None
    values: dict[str, float | None] = {}
    values_by_label: dict[str, dict[str, float | None]] = {}


class GpuErrorDocument(Struct):
    """An error of a GPU that the kernel has reported in the last hour, by its code and the GPU's place."""

    xid: str
    pci_bus_id: str = ""


class ChangeDocument(Struct):
    """What the last start with other flags has changed."""

    text: str = ""


class ConfigurationDocument(Struct):
    """What is known of a server's flags."""

    change: ChangeDocument | None = None


class EventDocument(Struct):
    """Something that happened."""

    at: float
    kind: str
    text: str
    count: int = 1
    engine: str | None = None
    state: str | None = None


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
