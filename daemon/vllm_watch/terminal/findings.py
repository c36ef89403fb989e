# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server, and what else its operator should know, as `check` says it."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_watch.catalog.finding_texts import (
    NO_START,
    NOT_CONFIGURED,
    NOTHING_READ,
    alert_text,
    changed_flags_text,
    disagreement_text,
    missing_metrics_text,
)
from vllm_watch.terminal.document import Document, ServerDocument
from vllm_watch.terminal.model import Finding


def findings(server: ServerDocument, document: Document) -> tuple[Finding, ...]:
    """Return what `check` would report of a server of a document beside its numbers and its state: first the wrong."""
    found = [*_alerts(server.name, document), *_found(server)]
    return tuple(sorted(found, key=lambda finding: finding.severity == "note"))


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


def _found(server: ServerDocument) -> Iterator[Finding]:
    for source in server.sources:
        if not source.up:
            yield Finding("wrong", f"{source.source}: {source.explanation or source.reason}")
    if server.sources and not any(source.up for source in server.sources):
        yield Finding("wrong", NOTHING_READ)
    yield from _disagreements(server)
    up = {source.source for source in server.sources if source.up}
    if "metrics" in up and server.missing_metrics:
        yield Finding("note", missing_metrics_text(server.missing_metrics))
    if "log" in up and server.version is None:
        yield Finding("note", NO_START)
    configured = {source.source for source in server.sources}
    for name, text in NOT_CONFIGURED.items():
        if name not in configured:
            yield Finding("note", f"{name}: {text}")
    change = server.configuration.change if server.configuration is not None else None
    if change is not None and change.text:
        yield Finding("note", changed_flags_text(change.text))


def _disagreements(server: ServerDocument) -> Iterator[Finding]:
    quantities = list(dict.fromkeys(each for engine in server.engines for each in engine.disagreements))
    if quantities:
        yield Finding("wrong", disagreement_text(quantities))
