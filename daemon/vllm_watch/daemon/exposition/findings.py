# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server or should be known: the rules, once, for `check`, `once` and `top`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.gpu_texts import (
    ACTION_PROBLEMS,
    GRAVE_XIDS,
    NOT_SHOWN,
    REMAP_FAILED,
    REMAP_PENDING,
    STATE_PROBLEMS,
    gpu_name,
    xid_problem,
)
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, SourceName
from vllm_watch.daemon.exposition.document import GpuDocument, ServerDocument
from vllm_watch_parsers.kernel_messages import BY_CODE


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

Weight = Literal["wrong", "note"]
"""Whether somebody has to change something, or should only know it."""


class Finding(NamedTuple):
    """
    What is wrong with a server or should be known, as one sentence or two.

    Args:
        weight: Which of both.
        text: The sentences.
        source: The source that it is about; `None` if it is about the server.
    """

    weight: Weight
    text: str
    source: SourceName | None = None


def findings(server: ServerDocument) -> Iterator[Finding]:
    """Yield what is wrong, then what should be known; the reasons of sources that fail are left to the caller."""
    sources = {source.source: source.up for source in server.sources}
    yield from _wrong(server, sources)
    yield from _notes(server, sources)


def _wrong(server: ServerDocument, sources: Mapping[str, bool]) -> Iterator[Finding]:
    read = [is_up for name, is_up in sources.items() if name != "gpu"]  # Its driver says nothing of the server.
    if read and not any(read) and {engine.state for engine in server.engines} <= {"unknown"}:
        yield Finding("wrong", NOTHING_READ)
    quantities = list(dict.fromkeys(name for engine in server.engines for name in engine.disagreements))
    if quantities:
        yield Finding("wrong", disagreement_text(quantities))
    for gpu in server.gpus:
        yield from _wrong_gpu(gpu, is_read=sources.get("gpu", False))
    for code, place in dict.fromkeys((error.xid, error.pci_bus_id) for error in server.gpu_errors or ()):
        if code in BY_CODE and BY_CODE[code].group in GRAVE_XIDS:
            yield Finding("wrong", xid_problem(code, place), "gpu")


def _notes(server: ServerDocument, sources: Mapping[str, bool]) -> Iterator[Finding]:
    if sources.get("metrics") and server.missing_metrics:
        yield Finding("note", missing_metrics_text(server.missing_metrics), "metrics")
    if sources.get("log") and server.version is None:
        yield Finding("note", NO_START, "log")
    for gpu in server.gpus:
        if gpu.values.get("gpu_row_remap_pending"):
            yield Finding("note", f"{_name_of(gpu)}: {REMAP_PENDING}", "gpu")
    for name, text in UNKNOWN_WITHOUT.items():
        if name not in sources:
            yield Finding("note", f"{SOURCE_NAMES[name]}: not configured. {text}", name)
    change = server.configuration.change if server.configuration is not None else None
    if change is not None and change.text:
        yield Finding("note", changed_flags_text(change.text))


def _wrong_gpu(gpu: GpuDocument, *, is_read: bool) -> Iterator[Finding]:
    """Yield what is wrong with a GPU; a code of a newer daemon says nothing here."""
    texts = (
        NOT_SHOWN if gpu.state is None and is_read else None,
        STATE_PROBLEMS.get(gpu.state or ""),
        ACTION_PROBLEMS.get(gpu.recovery_action or ""),
        REMAP_FAILED if gpu.values.get("gpu_row_remap_failed") else None,
    )
    yield from (Finding("wrong", f"{_name_of(gpu)}: {text}", "gpu") for text in texts if text is not None)


def _name_of(gpu: GpuDocument) -> str:
    return gpu_name(gpu.index, gpu.pci_bus_id, gpu.gpu)


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
