# SPDX-License-Identifier: Apache-2.0
"""What a snapshot of a server shows to be wrong, or what should be known."""

from __future__ import annotations

from vllm_watch.catalog.findings import Finding, Known, findings
from vllm_watch.state.snapshot import ServerSnapshot


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
            )
        )
    )
