# SPDX-License-Identifier: Apache-2.0
"""
Which series each alert of the package needs.

`alert_needs.json` is made from the rules (``make generate``): the sets of series, each of which lets an alert fire.
"""

from __future__ import annotations

import math

from collections.abc import Container
from functools import cache
from pathlib import Path

import msgspec

from vllm_watch.daemon.catalog.codes import FLAGS_OF_FACTS
from vllm_watch.daemon.catalog.reasons import SourceName


class Need(msgspec.Struct, frozen=True):
    """One series; with `source` only what is of that source counts."""

    series: str
    source: SourceName | None = None


class AlertNeeds(msgspec.Struct, frozen=True):
    """One alert: `ways` are sets of series, each set is enough. Some alerts compare several engines."""

    severity: str
    summary: str
    ways: tuple[tuple[Need, ...], ...]
    several_engines: bool = False

    def missing(self, shown: Container[Need]) -> list[Need]:
        """Return what the alert lacks, of the way that lacks least."""
        return min(([need for need in way if need not in shown] for way in self.ways), key=len)

    def unknown_flags(self, shown: Container[Need]) -> list[str]:
        """
        Return the flags of the server without which the alert cannot fire, or not whenever it should.

        A way that is there and takes fewer series than the flag's own stands in for it.
        """
        lacks = {way: [need.series for need in way if need not in shown] for way in self.ways}
        least = min((len(way) for way, names in lacks.items() if not names), default=math.inf)
        facts = {
            name
            for way, names in lacks.items()
            if FLAGS_OF_FACTS.keys() >= set(names)
            for name in names
            if len(way) <= least
        }
        return sorted(FLAGS_OF_FACTS[name] for name in facts)


@cache
def alert_needs() -> dict[str, AlertNeeds]:
    """Return what each alert of the package needs."""
    text = Path(__file__).with_name("alert_needs.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, AlertNeeds])
