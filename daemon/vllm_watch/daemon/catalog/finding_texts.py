# SPDX-License-Identifier: Apache-2.0
"""The sentences of what is wrong with a server or should be known, beside its states and its sources' reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vllm_watch.daemon.catalog.reasons import SourceName


NO_START = (
    "no start of the server in the log: its version is unknown until one is written to this file, and so are the "
    "capacity and the limits that no other source tells."
)

UNKNOWN_WITHOUT: Mapping[SourceName, str] = {
    "log": "Capacity, limits, failures and restarts come from it.",
    "metrics": "Latencies, exact counters and finished requests come from it.",
}
"""The sources that a server should have, and what is unknown without each of them."""

NOTHING_READ = "no source can be read, so nothing is known"


def missing_metrics_text(names: Collection[str]) -> str:
    """Return a sentence on metrics that a server does not export."""
    return (
        f"missing in /metrics: {', '.join(names)}. Older releases lack some, and a server with the Rust front end "
        "shows them after its first request."
    )


def changed_flags_text(changes: str) -> str:
    """Return a sentence on the last start with other flags."""
    return f"changed by the last start with other flags: {changes}"


def disagreement_text(quantities: Collection[str]) -> str:
    """Return a sentence on quantities about which the log and /metrics differ."""
    what = ", ".join(quantity.replace("_", " ") for quantity in quantities)
    return f"the log and /metrics have disagreed for minutes: {what}. Check that both belong to this server."


def alert_subject(name: str, server: str | None, engine: str | None, instance: str | None) -> str:
    """
    Return an alert's name, and what it is about.

    Args:
        name: The rule's name.
        server: The server that it is about; `None` if that is said already, or if it is about a vllm-watch.
        engine: The engine of that server, if it is about one.
        instance: The vllm-watch that it is about; `None` if it is about a server.
    """
    of = server or (f"vllm-watch {instance}" if instance else "")
    return f"{name}{f' of {of}' if of else ''}{f', engine {engine}' if engine is not None else ''}"


def alert_text(severity: str, state: str, subject: str, summary: str) -> str:
    """Return a sentence on an alert of a Prometheus; `subject` is its name, and what it is about."""
    return f"{severity}, {state}: {subject}. {summary}".rstrip()
