# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server of a document or should be known, the alerts of a Prometheus included."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from vllm_watch.daemon.catalog.findings import Finding, Known, KnownGpu, alert_subject, alert_text, findings
from vllm_watch.daemon.catalog.gpu_texts import gpu_name
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, SourceName, needs_attention
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.exposition.document import AlertDocument, Document, GpuDocument, ServerDocument


_UNKNOWN = "alerts are not known"


def server_findings(
    server: ServerDocument, states: Collection[EngineState], alerts: Sequence[AlertDocument]
) -> tuple[Finding, ...]:
    """
    Return what is wrong with a server or should be known: first the wrong, and of it the alerts.

    Args:
        server: The server.
        states: Those of its engines, as far as they are known here.
        alerts: Those of all servers, the worst first.
    """
    own = (_alert(alert, None) for alert in alerts if alert.server == server.name)
    return _sorted([*own, *_failures(server), *_found(server, states)])


def common_findings(document: Document) -> tuple[Finding, ...]:
    """Return what is wrong or should be known about no server: alerts about vllm-watch, or why there are none."""
    prometheus = document.prometheus
    unknown = [] if prometheus is None or prometheus.up else [Finding("note", f"{_UNKNOWN}: {prometheus.explanation}")]
    return _sorted([*unknown, *(_alert(alert, alert.instance) for alert in document.alerts if alert.server is None)])


def _sorted(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: finding.weight == "note"))


def _alert(alert: AlertDocument, instance: str | None) -> Finding:
    is_wrong = (alert.severity, alert.state) == ("critical", "firing")
    subject = alert_subject(alert.alertname, None, alert.engine, instance)
    return Finding("wrong" if is_wrong else "note", alert_text(alert.severity, alert.state, subject, alert.summary))


def _failures(server: ServerDocument) -> Iterator[Finding]:
    for source in server.sources:
        if needs_attention(source.source, source.reason, is_up=source.up, is_stopped=server.is_stopped):
            name = cast("SourceName", source.source)  # One of a newer daemon is called by its code.
            yield Finding("wrong", f"{SOURCE_NAMES.get(name, name)}: {source.explanation or source.reason}")


def _found(server: ServerDocument, states: Collection[EngineState]) -> Iterator[Finding]:
    change = server.configuration.change if server.configuration is not None else None
    known = Known(
        {cast("SourceName", source.source): source.up for source in server.sources},
        states,
        version=server.version,
        missing_metrics=server.missing_metrics,
        changed_flags="" if change is None else change.text,
        disagreements=[each for engine in server.engines for each in engine.disagreements],
        gpus=list(map(_gpu, server.gpus)),
        xids=[(error.xid, error.pci_bus_id) for error in server.gpu_errors or ()],
    )
    return findings(known)


def _gpu(gpu: GpuDocument) -> KnownGpu:
    return KnownGpu(
        gpu_name(gpu.index, gpu.pci_bus_id, gpu.gpu),
        gpu.state,
        gpu.recovery_action,
        remap_failed=bool(gpu.values.get("gpu_row_remap_failed")),
        remap_pending=bool(gpu.values.get("gpu_row_remap_pending")),
    )
