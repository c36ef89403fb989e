# SPDX-License-Identifier: Apache-2.0
"""Adds up what the lines of a log report of KV transfers, by engine."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch_parsers.events import KvTransfers
from vllm_watch_parsers.kv_transfer import KvKey


class KvTotals:
    """Each line has the counts of its own interval."""

    def __init__(self) -> None:
        self._engines: dict[str, dict[KvKey, float]] = {}

    def add(self, engine: str, transfers: KvTransfers) -> None:
        """Take in a line; engines over the limit are left out."""
        if engine not in self._engines and len(self._engines) >= MAX_ENGINES:
            return
        counted = self._engines.setdefault(engine, {})
        for key, value in transfers.counts:
            counted[key] = counted.get(key, 0.0) + value

    def of_engine(self, engine: str) -> Mapping[KvKey, float]:
        """Return what an engine's lines add up to."""
        return self._engines.get(engine, {})
