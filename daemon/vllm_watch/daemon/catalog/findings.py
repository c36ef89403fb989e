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
    xid_problem,
)
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, SourceName
from vllm_watch.daemon.catalog.states import EngineState
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


class KnownGpu(NamedTuple):
    """
    What the rules need to know of a GPU; a code of a newer daemon says nothing here.

    Args:
        name: How it is called.
        state: What the driver says of it as a whole; `None` if the driver does not show it.
        action: What the driver recommends; `None` if that is not known.
        remap_failed: Whether failing memory could not be replaced.
        remap_pending: Whether failing memory waits for a reset to be replaced.
    """

    name: str
    state: str | None
    action: str | None = None
    remap_failed: bool = False
    remap_pending: bool = False


class Known(NamedTuple):
    """
    What the rules need to know of a server.

    Args:
        sources: Whether each configured source can be read.
        states: Those of its engines.
        version: vLLM's.
        missing_metrics: The series that its /metrics should have and has not.
        changed_flags: What the last start has changed, in words; empty if nothing.
        disagreements: The quantities about which the log and /metrics differ.
        gpus: Its GPUs.
        xids: The errors of GPUs that the kernel has reported in the last hour, each with its code and place.
    """

    sources: Mapping[SourceName, bool]
    states: Collection[EngineState]
    version: str | None
    missing_metrics: Collection[str]
    changed_flags: str
    disagreements: Collection[str]
    gpus: Collection[KnownGpu] = ()
    xids: Collection[tuple[str, str]] = ()


def findings(known: Known) -> Iterator[Finding]:
    """Yield what is wrong, then what should be known; the reasons of sources that fail are left to the caller."""
    read = [is_up for name, is_up in known.sources.items() if name != "gpu"]  # Its driver says nothing of the server.
    if read and not any(read) and set(known.states) <= {"unknown"}:
        yield Finding("wrong", NOTHING_READ)
    quantities = list(dict.fromkeys(known.disagreements))
    if quantities:
        yield Finding("wrong", disagreement_text(quantities))
    yield from _wrong_gpus(known)
    if known.sources.get("metrics") and known.missing_metrics:
        yield Finding("note", missing_metrics_text(known.missing_metrics), "metrics")
    if known.sources.get("log") and known.version is None:
        yield Finding("note", NO_START, "log")
    yield from (Finding("note", f"{gpu.name}: {REMAP_PENDING}", "gpu") for gpu in known.gpus if gpu.remap_pending)
    for name, text in UNKNOWN_WITHOUT.items():
        if name not in known.sources:
            yield Finding("note", f"{SOURCE_NAMES[name]}: not configured. {text}", name)
    if known.changed_flags:
        yield Finding("note", changed_flags_text(known.changed_flags))


def _wrong_gpus(known: Known) -> Iterator[Finding]:
    """Yield the GPUs that need somebody, and the errors after which one does."""
    for gpu in known.gpus:
        if gpu.state is None and known.sources.get("gpu"):
            yield Finding("wrong", f"{gpu.name}: {NOT_SHOWN}", "gpu")
        remap = REMAP_FAILED if gpu.remap_failed else None
        for text in (STATE_PROBLEMS.get(gpu.state or ""), ACTION_PROBLEMS.get(gpu.action or ""), remap):
            if text is not None:
                yield Finding("wrong", f"{gpu.name}: {text}", "gpu")
    for code, place in dict.fromkeys(known.xids):
        if code in BY_CODE and BY_CODE[code].group in GRAVE_XIDS:
            yield Finding("wrong", xid_problem(code, place), "gpu")


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
