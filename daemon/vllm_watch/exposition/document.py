# SPDX-License-Identifier: Apache-2.0
"""`daemon/METRICS.md`, made from the table of series."""

from __future__ import annotations

import sys

from vllm_watch.exposition.series import GROUPS, PREFIX, Series


_INTRODUCTION = f"""\
# Series

Made from the code (`make docs`); a test holds that they agree. All names begin with `{PREFIX}`. Ratios go from 0 to
1, times are seconds, what is not known is absent: missing is not zero, and stale is not current. Histograms have
vLLM's own buckets. "Scrape" is vLLM's /metrics, "log" its log, "probe" a completion of one token that is asked for now
and then, where that is configured. Where log and scrape both say something the scrape decides; a value
older than three of its source's intervals is gone, but for the last line of an idle engine, and for facts, which hold
until the next start. What a server has counted (counters, histograms and objectives) outlives it: it stays at its last
value until the server has started again, so that nothing counted just before a crash is lost, however seldom somebody
asks. Only the daemon's own restart loses it, if the server is gone by then. Labels configured for a server (`labels:`)
stand beside those named here.
"""


def document() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts += [_entry(series) for series in group.series]
    return "\n".join(parts)


def _entry(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels) or "none"
    return (
        f"### `{series.full_name}`\n\n"
        f"{series.help}\n\n"
        f"* Type: {series.type} · unit: {series.unit} · labels: {labels}\n"
        f"* From: {series.origin}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(document())
