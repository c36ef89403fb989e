# SPDX-License-Identifier: Apache-2.0
"""
Every series that vllm-watch exports: its name, type, labels, unit, help and where its value comes from.

The table is `series.json`. Its names are without the prefix; those of counters end in ``_total``. `daemon/METRICS.md`,
the labels that a configuration may not use and what `vllm-watch check` reports about missing series derive from it; a
test checks that nothing else is ever exported.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

import msgspec

from vllm_watch.daemon.catalog.codes import (
    CAPACITY_BASES,
    CAPACITY_UNKNOWN,
    CONFIG_LABELS,
    MAX_HANGING_PROCESSES,
    OTLP_OUTCOMES,
    PARTS,
    POD_STATES,
)
from vllm_watch.daemon.catalog.gpu_texts import (
    GPU_ACTIONS,
    GPU_LINK_ERRORS,
    GPU_PCIE_ERRORS,
    GPU_STATES,
    GPU_THROTTLING,
)
from vllm_watch.daemon.catalog.reasons import STALL_REASONS
from vllm_watch.daemon.catalog.states import DOWN, ENGINE_STATES
from vllm_watch_parsers.kernel_messages import XID_CLASSES
from vllm_watch_parsers.lora import LORA_UNKNOWN


PREFIX = "vllm_watch_"

SeriesType = Literal["gauge", "counter", "histogram"]

Origin = Literal["metrics", "log", "probe", "gpu", "kernel log", "command line", "configuration", "daemon"]
"""Where a value comes from: a source, under its name in the label `source`, or the daemon and what it was given."""

Combination = Literal["first", "latest", "each", "all"]
"""
How the sources of a series make its value.

first: the first that has it. latest: the newest of them. each: whichever there are, each by itself or in one judgement.
all: only where all of them are there.
"""

Feature = Literal[
    "slo",
    "speculative decoding",
    "kv connector",
    "links",
    "gpu",
    "cost",
    "kubernetes",
    "otlp",
    "peak_flops",
    "lora",
    "nan",
]
"""What must be configured or used for a series to be there."""


class Source(NamedTuple):
    """One source of a series, and what is read there; `what` is empty if it needs no explanation."""

    origin: Origin
    what: str = ""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One family. `help` is one sentence in the terms of Prometheus; `sources` are in the order of preference."""

    name: str
    type: SeriesType
    labels: tuple[str, ...]
    unit: str
    help: str
    sources: tuple[Source, ...] = (Source("daemon"),)
    combine: Combination = "first"
    feature: Feature | None = None

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name

    @property
    def family(self) -> str:
        """The family's name without the prefix: OpenMetrics has a counter's without its ``_total``."""
        return self.name.removesuffix("_total")

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where its value comes from, in the order of preference."""
        return tuple(source.origin for source in self.sources)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Series that belong together."""

    title: str
    series: tuple[Series, ...]


_LISTS = {
    "capacity_bases": "; ".join(f"{basis}, {meaning}" for basis, meaning in CAPACITY_BASES.items()),
    "capacity_unknown": ", ".join(CAPACITY_UNKNOWN),
    "causes_of_down": ", ".join(DOWN),
    "config_labels": '", "'.join(CONFIG_LABELS),
    "engine_states": ", ".join(ENGINE_STATES),
    "gpu_actions": ", ".join(GPU_ACTIONS),
    "gpu_link_errors": ", ".join(GPU_LINK_ERRORS),
    "gpu_pcie_errors": ", ".join(GPU_PCIE_ERRORS),
    "gpu_states": ", ".join(GPU_STATES),
    "gpu_throttling": ", ".join(GPU_THROTTLING),
    "lora_unknown": ", ".join(LORA_UNKNOWN),
    "max_hanging_processes": MAX_HANGING_PROCESSES,
    "otlp_failures": ", ".join(outcome for outcome in OTLP_OUTCOMES if outcome != "ok"),
    "parts": ", ".join(PARTS),
    "pod_states": ", ".join(POD_STATES),
    "stall_reasons": ", ".join(STALL_REASONS),
    "xid_classes": ", ".join(XID_CLASSES),
}
"""What ``$`` and a name stand for in `series.json`: lists that the code has."""


def _read_table() -> dict[str, Group]:
    text = Path(__file__).with_name("series.json").read_text(encoding="utf-8")
    return msgspec.json.decode(Template(text).substitute(_LISTS), type=dict[str, Group])


_TABLE = _read_table()
NOW, DONE, LATENCY, FACTS, GPUS, STATE, DAEMON = (
    _TABLE[name] for name in ("now", "done", "latency", "facts", "gpus", "state", "daemon")
)
GROUPS: tuple[Group, ...] = tuple(_TABLE.values())

SERIES: dict[str, Series] = {series.name: series for group in GROUPS for series in group.series}
"""All series, by name without the prefix."""
