# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server or should be known: the rules, once, for `check`, `once` and `top`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from vllm_watch.catalog.finding_texts import (
    NO_START,
    NOTHING_READ,
    UNKNOWN_WITHOUT,
    changed_flags_text,
    disagreement_text,
    missing_metrics_text,
)
from vllm_watch.catalog.reasons import SOURCE_NAMES, SourceName
from vllm_watch.catalog.states import EngineState


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
    """

    sources: Mapping[SourceName, bool]
    states: Collection[EngineState]
    version: str | None
    missing_metrics: Collection[str]
    changed_flags: str
    disagreements: Collection[str]


def findings(known: Known) -> Iterator[Finding]:
    """Yield what is wrong, then what should be known; the reasons of sources that fail are left to the caller."""
    if known.sources and not any(known.sources.values()) and set(known.states) <= {"unknown"}:
        yield Finding("wrong", NOTHING_READ)
    quantities = list(dict.fromkeys(known.disagreements))
    if quantities:
        yield Finding("wrong", disagreement_text(quantities))
    if known.sources.get("metrics") and known.missing_metrics:
        yield Finding("note", missing_metrics_text(known.missing_metrics), "metrics")
    if known.sources.get("log") and known.version is None:
        yield Finding("note", NO_START, "log")
    for name, text in UNKNOWN_WITHOUT.items():
        if name not in known.sources:
            yield Finding("note", f"{SOURCE_NAMES[name]}: not configured. {text}", name)
    if known.changed_flags:
        yield Finding("note", changed_flags_text(known.changed_flags))
