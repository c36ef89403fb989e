# SPDX-License-Identifier: Apache-2.0
"""`daemon/METRICS.md`, made from the table of series."""

from __future__ import annotations

import sys

from vllm_watch.daemon.catalog.series import GROUPS, STATE, Origin, Series, Source
from vllm_watch.daemon.exposition.reference_texts import INTRODUCTION, WHEN_DOWN, WHEN_SLEEPING, WHEN_STALLED


_ORIGINS: dict[Origin, str] = {
    "metrics": "scrape",
    "log": "log",
    "probe": "probe",
    "gpu": "the GPU's driver",
    "kernel log": "the kernel's log",
    "command line": "the command line",
    "configuration": "configuration",
    "daemon": "the daemon",
}


def document() -> str:
    """Return the whole document."""
    parts = [INTRODUCTION]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts += [_entry(series) for series in group.series]
        if group is STATE:
            parts += [WHEN_STALLED, WHEN_SLEEPING, WHEN_DOWN]
    return "\n".join(parts)


def _entry(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels) or "none"
    return (
        f"### `{series.full_name}`\n\n"
        f"{series.help}\n\n"
        f"* Type: {series.type} · unit: {series.unit} · labels: {labels}\n"
        f"* From: {_sources_text(series)}\n"
    )


def _sources_text(series: Series) -> str:
    """Return where a series comes from, in the order of preference."""
    texts = [_source_text(source) for source in series.sources]
    if series.combine == "latest":
        return f"the later of {' and '.join(texts)}"
    return {"first": "; else ", "each": " and ", "all": " together with "}[series.combine].join(texts)


def _source_text(source: Source) -> str:
    name = _ORIGINS[source.origin]
    if not source.what:
        return name
    return f"{name} {source.what}" if source.origin == "command line" else f"{name}: {source.what}"


if __name__ == "__main__":
    sys.stdout.write(document())
