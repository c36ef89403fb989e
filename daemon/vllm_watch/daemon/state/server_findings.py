# SPDX-License-Identifier: Apache-2.0
"""What a snapshot of a server shows to be wrong, or what should be known."""

from __future__ import annotations

from vllm_watch.daemon.catalog.findings import Finding, Known, KnownGpu, findings
from vllm_watch.daemon.catalog.gpu_texts import gpu_name
from vllm_watch.daemon.state.gpu_report import ServerGpu, recommended_action
from vllm_watch.daemon.state.snapshot import ServerSnapshot


def server_findings(snapshot: ServerSnapshot) -> list[Finding]:
    """Return what is wrong with a server or should be known, beside its states and the reasons of its sources."""
    change = snapshot.configuration.change
    return list(
        findings(
            Known(
                {source.source: source.is_up for source in snapshot.sources},
                [engine.state for engine in snapshot.engines],
                version=snapshot.version,
                missing_metrics=[name for name, is_missing in snapshot.missing_metrics.items() if is_missing],
                changed_flags="" if change is None else change.text,
                disagreements=[
                    name for engine in snapshot.engines for name, differs in engine.disagreements.items() if differs
                ],
                gpus=list(map(_gpu, snapshot.gpus)),
                xids=[(event.what, event.gpu or "") for event in snapshot.events if event.kind == "xid"],
            )
        )
    )


def _gpu(used: ServerGpu) -> KnownGpu:
    reading = used.reading
    if reading is None:
        return KnownGpu(gpu_name(None, None, used.gpu), None)
    return KnownGpu(
        gpu_name(reading.number, reading.pci_bus_id, used.gpu),
        reading.state,
        recommended_action(reading),
        remap_failed=bool(reading.values.get(("gpu_row_remap_failed",))),
        remap_pending=bool(reading.values.get(("gpu_row_remap_pending",))),
    )
