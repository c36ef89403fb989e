# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a server as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from vllm_watch.daemon.exposition.document import GpuDocument
from vllm_watch.daemon.state.gpu_report import ACTION, GpuReading, ServerGpu, recommended_action
from vllm_watch.daemon.state.snapshot import ServerEvent
from vllm_watch_parsers.kernel_messages import BY_CODE


def gpu_views(gpus: Iterable[ServerGpu]) -> list[dict[str, Any]]:
    """Return GPUs as dictionaries, in the same order; what is not known is not there."""
    return [_view(each) for each in gpus]


def gpu_documents(gpus: Iterable[ServerGpu]) -> list[GpuDocument]:
    """Return GPUs as those have them who read the JSON."""
    return msgspec.convert(gpu_views(gpus), list[GpuDocument])


def gpu_error_views(events: Iterable[ServerEvent]) -> list[dict[str, Any]]:
    """Return the errors of GPUs among the events of the last hour as dictionaries, the oldest first."""
    return [
        {"at": event.at, "xid": event.what, "class": BY_CODE[event.what].group, "pci_bus_id": event.gpu or ""}
        for event in events
        if event.kind == "xid"
    ]


def _view(used: ServerGpu) -> dict[str, Any]:
    view = {
        "gpu": used.gpu,
        "how": used.how,
        "is_shared": used.is_shared,
        "memory": used.memory,
        "other_memory": used.other_memory,
        "throttled": used.throttled,
        **({} if used.reading is None else _reading_view(used.reading)),
    }
    return {name: value for name, value in view.items() if value is not None}


def _reading_view(reading: GpuReading) -> dict[str, Any]:
    """Return what the driver said; values with labels of their own are by those, joined by ``_``."""
    by_label: dict[str, dict[str, float]] = {}
    for (name, *labels), value in reading.values.items():
        if labels and name != ACTION:
            by_label.setdefault(name, {})["_".join(labels)] = value
    return {
        "index": reading.number,
        "name": reading.name,
        "pci_bus_id": reading.pci_bus_id,
        "driver_version": reading.driver_version,
        "vendor": reading.vendor,
        "mig": reading.mig == "1",
        "state": reading.state,
        "recovery_action": recommended_action(reading),
        "values": {name: value for (name, *labels), value in reading.values.items() if not labels},
        "values_by_label": by_label,
    }
