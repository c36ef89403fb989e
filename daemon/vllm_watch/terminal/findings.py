# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server of a document or should be known, the alerts of a Prometheus included."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast

from vllm_watch.catalog.finding_texts import alert_text
from vllm_watch.catalog.findings import Finding, Known, findings
from vllm_watch.catalog.reasons import SOURCE_NAMES, SourceName
from vllm_watch.catalog.states import EngineState
from vllm_watch.terminal.document import Document, ServerDocument


def document_findings(
    server: ServerDocument, states: Collection[EngineState], document: Document
) -> tuple[Finding, ...]:
    """
    Return what is wrong with a server or should be known: first the wrong, and of it the alerts.

    Args:
        server: The server.
        states: Those of its engines, as far as they are known here.
        document: What it is of.
    """
    found = [*_alerts(server.name, document), *_failures(server), *_found(server, states)]
    return tuple(sorted(found, key=lambda finding: finding.weight == "note"))


def _alerts(server: str, document: Document) -> Iterator[Finding]:
    """Yield the alerts of a server, the worst first, as the document has them; or why they are not known."""
    if document.prometheus is not None and not document.prometheus.up:
        yield Finding("note", f"prometheus: {document.prometheus.explanation}")
    for alert in document.alerts:
        if alert.server == server:
            is_wrong = (alert.severity, alert.state) == ("critical", "firing")
            subject = alert.alertname if alert.engine is None else f"{alert.alertname}, engine {alert.engine}"
            text = alert_text(alert.severity, alert.state, subject, alert.summary)
            yield Finding("wrong" if is_wrong else "note", text)


def _failures(server: ServerDocument) -> Iterator[Finding]:
    for source in server.sources:
        if not source.up:
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
    )
    return findings(known)
