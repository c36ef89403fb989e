# SPDX-License-Identifier: Apache-2.0
"""What happened to a server as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_watch.daemon.catalog.event_texts import (
    FAILURES,
    FILE_CHANGES,
    STARTED,
    flags_text,
    gpu_text,
    state_text,
    xid_text,
)
from vllm_watch.daemon.state.snapshot import ServerEvent


_TEXTS: Mapping[str, str] = dict([*FAILURES.items(), *FILE_CHANGES.items()])


def event_views(events: Iterable[ServerEvent]) -> list[dict[str, Any]]:
    """Return events as dictionaries with their texts, in the same order; what is not known is not there."""
    return [_view(event) for event in events]


def _view(event: ServerEvent) -> dict[str, Any]:
    view = {
        "at": event.at,
        "kind": event.kind,
        "text": _text(event),
        "count": event.times,
        "engine": event.engine,
        "gpu": event.gpu,
        "state": event.what if event.kind == "state" else None,
    }
    return {name: value for name, value in view.items() if value is not None}


def _text(event: ServerEvent) -> str:
    """Return what happened in words, without when, how often and to which engine."""
    if event.kind == "start":
        return STARTED
    if event.kind == "state" and event.before is not None:
        return state_text(event.before, event.what)
    if event.kind == "gpu":
        return gpu_text(event.what, event.gpu or "")
    if event.kind == "xid":
        return xid_text(event.what, event.gpu or "")
    return flags_text(event.what) if event.kind == "flags" else _TEXTS[event.what]
