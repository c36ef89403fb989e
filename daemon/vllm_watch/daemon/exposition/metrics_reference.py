# SPDX-License-Identifier: Apache-2.0
"""`daemon/METRICS.md`, made from the table of series."""

from __future__ import annotations

import sys

from collections.abc import Iterable
from pathlib import Path
from string import Template

from vllm_watch.daemon.catalog.reasons import STALLED
from vllm_watch.daemon.catalog.series import GROUPS, PREFIX, STATE, Origin, Series, Source
from vllm_watch.daemon.catalog.states import DOWN, SLEEPING
from vllm_watch.daemon.state.engine_state import DOUBT_SECONDS, UNSEEN_SECONDS
from vllm_watch.daemon.state.server_life import FIRST_TOKEN_SECONDS
from vllm_watch.daemon.state.stall import FIRST_STEP_FACTOR, LOG_ONLY_FACTOR, REMOTE_FACTOR


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
    """Return the whole document: the text is `metrics_reference.txt`, around what the table has."""
    texts = ["\n".join([f"## {group.title}\n", *map(_entry, group.series)]) for group in GROUPS]
    until = GROUPS.index(STATE) + 1
    return Template(Path(__file__).with_name("metrics_reference.txt").read_text(encoding="utf-8")).substitute(
        prefix=PREFIX,
        sleeping=SLEEPING,
        stall_reasons=_rows(STALLED.items()),
        down_reasons=_rows(DOWN.items()),
        first_step_factor=f"{FIRST_STEP_FACTOR:g}",
        log_only_factor=f"{LOG_ONLY_FACTOR:g}",
        remote_factor=f"{REMOTE_FACTOR:g}",
        first_token_minutes=f"{FIRST_TOKEN_SECONDS / 60:g}",
        doubt_seconds=f"{DOUBT_SECONDS:g}",
        unseen_seconds=f"{UNSEEN_SECONDS:g}",
        until_state="\n".join(texts[:until]),
        after_state="\n".join(texts[until:]),
    )


def _rows(reasons: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"| `{reason}` | {meaning} |" for reason, meaning in reasons)


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
