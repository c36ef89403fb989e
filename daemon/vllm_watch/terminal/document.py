# SPDX-License-Identifier: Apache-2.0
"""
The document at ``/api/v1/snapshot`` as typed values.

Every key but the names may be missing: an older daemon has fewer, and a newer one has some that are ignored.
"""

from __future__ import annotations

import msgspec

from msgspec import Struct

from vllm_watch.support.errors import DaemonError


class Document(Struct):
    """All servers at one moment; `prometheus` is there only if one is configured."""

    at: float
    servers: list[ServerDocument]
    version: str = ""
    prometheus: PrometheusDocument | None = None
    alerts: list[AlertDocument] = []


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


class StallDocument(Struct):
    """Why an engine is stalled."""

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
    model_name: str = ""
    state: str = "unknown"
    stall: StallDocument | None = None
    gauges: dict[str, ReadingDocument] = {}
    prompt_excludes_cached: bool | None = None
    position_acceptance: list[float | None] = []
    quantiles: dict[str, dict[str, float | None]] = {}
    means: dict[str, float | None] = {}
    first_bounds: dict[str, float | None] = {}
    facts: dict[str, float | None] = {}
    capacity: dict[str, CapacityDocument] = {}
    disagreements: list[str] = []


class ChangeDocument(Struct):
    """What the last start with other flags has changed."""

    text: str = ""
    at: float | None = None


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
        DaemonError: It is none.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # A wrong shape is a DecodeError, too.
        raise DaemonError("the answer is not what a vllm-watch answers: check the address") from None
