# SPDX-License-Identifier: Apache-2.0
"""The KV connectors' part of a page, as `kv_transfer` names it, by engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_watch_parsers.exposition import EngineKey, SeriesByName
from vllm_watch_parsers.fields import MAX_COUNT
from vllm_watch_parsers.kv_transfer import (
    DEPRECATED,
    KV_GAUGES,
    KV_TIERS,
    LMCACHE,
    NIXL_LATE,
    NIXL_NOTIFICATIONS,
    ROWS,
    SIMPLE_INFO,
    SIMPLE_USED,
    USAGE,
    KvKey,
    KvReading,
    Row,
    placed,
)


_MOST_DIGITS = 15


class KvPage(NamedTuple):
    """What a page has of KV connectors, by engine; `out_of_range` counts values out of range, by series."""

    engines: Mapping[EngineKey, KvReading]
    out_of_range: Mapping[str, int]


class KvSums:
    """
    Adds up the values of one engine's names.

    A series of which a part is out of range is left out, since the sum of the others is another number, and is counted.
    """

    def __init__(self) -> None:
        self.values: dict[KvKey, float] = {}
        self.out_of_range: Counter[str] = Counter()
        self._unsound: set[KvKey] = set()
        self._begun: set[KvKey] = set()
        """The gauges that have something to subtract from."""

    def add(self, rows: Iterable[Row], labels: Mapping[str, str], value: float) -> None:
        """Take in one value."""
        for row in rows:
            if all(labels.get(name) in allowed for name, allowed in row.where.items()):
                self.put(placed(row.key, labels.get("tier", "")), value, row.weight)

    def put(self, key: KvKey, value: float, weight: float = 0.0) -> None:
        """Take in a value of a series; of a gauge the greatest counts, unless it has a weight."""
        is_gauge = key.series in KV_GAUGES
        if not 0 <= value <= (KV_GAUGES[key.series] if is_gauge and not weight else MAX_COUNT):
            self.out_of_range[key.series] += 1
            self._unsound.add(key)
        elif is_gauge and not weight:
            # Several processes behind one /metrics have a `pid` each.
            self.values[key] = max(value, self.values.get(key, value))
        else:
            self.values[key] = self.values.get(key, 0.0) + (weight or 1.0) * value
        if weight >= 0:
            self._begun.add(key)

    def reading(self) -> KvReading:
        """Return all values; a gauge that counters make is never below 0, though these are read one by one."""
        sound = {key: value for key, value in self.values.items() if key in self._begun and key not in self._unsound}
        sums = {key: max(value, 0.0) for key, value in sound.items() if key.series in KV_GAUGES}
        gauges = {key: value for key, value in sums.items() if value <= KV_GAUGES[key.series]}
        self.out_of_range.update(key.series for key in sums.keys() - gauges.keys())
        return KvReading({key: value for key, value in sound.items() if key not in sums}, gauges)


def read_kv_page(series: SeriesByName, engines: Collection[EngineKey]) -> KvPage:
    """
    Return what KV connectors show of the engines of a page.

    Args:
        series: The values of the page, by name and labels.
        engines: The engines that the rest of the page names. What is of no engine is only read if there is one.
    """
    sums: dict[EngineKey, KvSums] = defaultdict(KvSums)
    for name, rows in _rows_of(series).items():
        for labels, value in series[name].items():
            sums[labels.engine].add(rows, dict(labels), value)
    for key, usage, share in _simple_usage(series):
        sums[key].put(usage, share)
    counted = {key: frozenset(of_engine.values) for key, of_engine in sums.items()}
    for name, rows in DEPRECATED.items():
        for labels, value in series.get(name, {}).items():
            key = labels.engine
            uncounted = (row for row in rows if row.key not in counted.get(key, ()))
            sums[key].add(uncounted, dict(labels), value)
    if len(engines) == 1:
        (lone,) = engines
        for name, rows in LMCACHE.items():
            for labels, value in series.get(name, {}).items():
                sums[lone].add(rows, dict(labels), value)
    readings = {key: sums[key].reading() for key in engines if key in sums}
    return KvPage(readings, sum((each.out_of_range for each in sums.values()), Counter[str]()))


def _rows_of(series: SeriesByName) -> dict[str, tuple[Row, ...]]:
    """
    Return the rows of the names that a page has, in the order of the table.

    Since 0.31 NIXL's failed transfers have the failed notifications among them. A page of 0.32 or later shows it by the
    count of late notifications; on one of 0.31 they are counted twice.
    """
    counted_elsewhere = NIXL_NOTIFICATIONS if NIXL_LATE in series else ""
    return {name: rows for name, rows in ROWS.items() if name in series and name != counted_elsewhere}


def _simple_usage(series: SeriesByName) -> Iterator[tuple[EngineKey, KvKey, float]]:
    """Yield the share of the blocks of `SimpleCPUOffloadConnector` that are in use, by engine."""
    used: dict[EngineKey, float] = {}
    for labels, value in series.get(SIMPLE_USED, {}).items():
        used[labels.engine] = max(value, used.get(labels.engine, value))
    for labels in series.get(SIMPLE_INFO, {}):
        named, key = dict(labels), labels.engine
        tier, capacity = named.get("backend", ""), named.get("capacity_blocks", "")
        is_size = capacity.isascii() and capacity.isdigit() and len(capacity) <= _MOST_DIGITS and int(capacity) > 0
        if key in used and is_size:
            yield (
                key,
                KvKey(USAGE, ("simple_kv_offload", tier if tier in KV_TIERS else "other")),
                used[key] / int(capacity),
            )
