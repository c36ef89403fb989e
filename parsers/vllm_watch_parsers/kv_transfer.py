# SPDX-License-Identifier: Apache-2.0
"""
What each of vLLM's KV connectors shows of the KV blocks that it moves, in one shape for all of them; a page of it.

A connector has names of its own. Here each of them has its row: the series that it is, and that series' labels, which
are all from closed lists. `in` is towards the GPU. Of what can fail, ``transfer`` is any of a pair of servers,
``receive`` what a Mooncake reader gave up, a promotion from a tier behind the CPU's memory to it, a cascade the way
back. With tensor parallelism every worker reports its own transfers: bytes add up rightly, the numbers of transfers are
those of workers, and their times overlap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch_parsers.exposition import EngineKey, Labels, SeriesByName
from vllm_watch_parsers.fields import MAX_COUNT, MAX_REQUESTS


KV_TIERS = ("cpu", "disk", "fs", "obj", "p2p", "kvcr", "example", "remote", "hot_buffer", "lmcache", "other")
"""
Where KV blocks are kept.

``cpu`` is the host's memory, ``hot_buffer`` what HiSparse keeps on the GPU, ``lmcache`` all of LMCache's tiers, and
``other`` a tier of a plug-in.
"""

KV_FETCH_STAGES = ("waiting_to_start", "in_progress", "completed_waiting")

BYTES = "kv_transfer_bytes_total"
SECONDS = "kv_transfer_seconds_total"
TRANSFERS = "kv_transfers_total"
FAILURES = "kv_transfer_failures_total"
EXPIRED = "kv_expired_requests_total"
LATE = "kv_notifications_after_expiry_total"
SKIPPED = "kv_transfers_skipped_total"
LOOKUPS = "kv_lookups_total"
LOOKUP_SECONDS = "kv_lookup_seconds_total"
TIER_BYTES = "kv_tier_bytes_total"
TIER_SECONDS = "kv_tier_seconds_total"
TIER_QUERIES = "kv_tier_queries_total"
TIER_HITS = "kv_tier_hits_total"
USAGE = "kv_offload_usage_ratio"
USED_BYTES = "kv_offload_used_bytes"
PENDING = "kv_transfers_pending"
FETCHING = "kv_fetch_requests"

KV_GAUGES: Mapping[str, float] = MappingProxyType(
    {USAGE: 1.0, USED_BYTES: MAX_COUNT, PENDING: MAX_REQUESTS, FETCHING: MAX_REQUESTS}
)
"""The series that are about the present, and the most that each can be; the others are counters."""


class KvKey(NamedTuple):
    """A series of an engine, without its prefix, and the values of the labels that it has beside the engine's."""

    series: str
    labels: tuple[str, ...]


class KvReading(NamedTuple):
    """What one engine's connectors show at one moment."""

    counters: Mapping[KvKey, float] = MappingProxyType({})
    gauges: Mapping[KvKey, float] = MappingProxyType({})


NO_KV = KvReading()


class Row(NamedTuple):
    """
    What a name of /metrics is.

    Args:
        key: The series and its labels; the label `TIER` stands for the tier that the name's own label has.
        where: The values of labels that a series of this name must have one of.
        adds_up: Whether the values of a gauge add up; else the greatest counts: several processes have one each.
    """

    key: KvKey
    where: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    adds_up: bool = False


TIER = "{tier}"


def _key(series: str, *labels: str) -> KvKey:
    return KvKey(series, labels)


def _row(series: str, *labels: str, **where: str) -> Row:
    """Return a row; a label may have several values, with a blank between them."""
    return Row(_key(series, *labels), {name: tuple(values.split()) for name, values in where.items()})


def _histogram(name: str, seconds: KvKey, number: KvKey) -> dict[str, tuple[Row, ...]]:
    """Return the rows of a histogram of times: its sum and its count are counters."""
    return {f"{name}_sum": (Row(seconds),), f"{name}_count": (Row(number),)}


def _pair(connector: str, direction: str) -> dict[str, tuple[Row, ...]]:
    """Return what the connectors of a prefill and a decode server have in common."""
    name, moved = f"vllm:{connector}", (connector, direction)
    return {
        f"{name}_bytes_transferred_sum": (_row(BYTES, *moved),),
        **_histogram(f"{name}_xfer_time_seconds", _key(SECONDS, *moved), _key(TRANSFERS, *moved)),
        f"{name}_num_failed_transfers_total": (_row(FAILURES, connector, "transfer"),),
        f"{name}_num_kv_expired_reqs_total": (_row(EXPIRED, connector),),
    }


_OF_STORE = {"in": "load_get", "out": "save_put"}
_OPERATIONS = {"load": "load_get", "store": "save_put", "lookup": "lookup_exists save_exists"}
_STORE = "vllm:mooncake_store_operation"
_MOONCAKE_STORE: dict[str, tuple[Row, ...]] = {
    f"{_STORE}_bytes_total": tuple(
        _row(BYTES, "mooncake_store", direction, operation=operation, status="ok partial_failure")
        for direction, operation in _OF_STORE.items()
    ),
    f"{_STORE}_time_seconds_sum": (
        *(_row(SECONDS, "mooncake_store", towards, operation=name) for towards, name in _OF_STORE.items()),
        _row(LOOKUP_SECONDS, "mooncake_store", "sync", operation="lookup_exists"),
    ),
    f"{_STORE}_total": (
        *(
            _row(TRANSFERS, "mooncake_store", towards, operation=name, status="ok")
            for towards, name in _OF_STORE.items()
        ),
        *(
            _row(FAILURES, "mooncake_store", kind, operation=names, status="error partial_failure")
            for kind, names in _OPERATIONS.items()
        ),
        _row(LOOKUPS, "mooncake_store", "sync", operation="lookup_exists"),
    ),
}

_OFFLOAD = "vllm:kv_offload"
_KV_OFFLOAD: dict[str, tuple[Row, ...]] = {
    **{
        f"{_OFFLOAD}_{name}_{part}": (_row(series, "kv_offload", direction),)
        for name, direction in (("load", "in"), ("store", "out"))
        for part, series in (("bytes_total", BYTES), ("time_total", SECONDS), ("size_count", TRANSFERS))
    },
    f"{_OFFLOAD}_allocation_failure_total": (_row(SKIPPED, "kv_offload", "no_space"),),
    f"{_OFFLOAD}_stores_skipped_total": (_row(SKIPPED, "kv_offload", "not_reused"),),
    f"{_OFFLOAD}_cpu_cache_usage_perc": (_row(USAGE, "kv_offload", "cpu"),),
    **{
        line: rows
        for kind in ("sync", "async")
        for line, rows in _histogram(
            f"{_OFFLOAD}_lookup_{kind}_delay_seconds",
            _key(LOOKUP_SECONDS, "kv_offload", kind),
            _key(LOOKUPS, "kv_offload", kind),
        ).items()
    },
}

_TIERING = f"{_OFFLOAD}_tiering"
_OF_TIERS: dict[str, tuple[Row, ...]] = {
    f"{_TIERING}_read_bytes_total": (_row(TIER_BYTES, "kv_offload", TIER, "in"),),
    f"{_TIERING}_write_bytes_total": (_row(TIER_BYTES, "kv_offload", TIER, "out"),),
    f"{_TIERING}_read_time_total": (_row(TIER_SECONDS, "kv_offload", TIER, "in"),),
    f"{_TIERING}_write_time_total": (_row(TIER_SECONDS, "kv_offload", TIER, "out"),),
    f"{_TIERING}_chunk_queries_total": (_row(TIER_QUERIES, "kv_offload", TIER),),
    f"{_TIERING}_chunk_hits_total": (_row(TIER_HITS, "kv_offload", TIER),),
    f"{_TIERING}_promotion_job_failures_total": (_row(FAILURES, "kv_offload", "promotion"),),
    f"{_TIERING}_cascade_job_failures_total": (_row(FAILURES, "kv_offload", "cascade"),),
    f"{_TIERING}_promotion_allocation_failures_total": (_row(SKIPPED, "kv_offload", "no_space_to_promote"),),
    f"{_TIERING}_backpressure_stores_dropped_total": (_row(SKIPPED, "kv_offload", "backpressure"),),
    f"{_TIERING}_active_promotion_jobs": (Row(_key(PENDING, "kv_offload", "in"), adds_up=True),),
    f"{_TIERING}_active_cascade_jobs": (Row(_key(PENDING, "kv_offload", "out"), adds_up=True),),
}

DEPRECATED: dict[str, tuple[Row, ...]] = {
    f"{_OFFLOAD}_{name}": tuple(
        _row(series, "kv_offload", direction, transfer_type=moved)
        for direction, moved in (("in", "CPU_to_GPU"), ("out", "GPU_to_CPU"))
    )
    for name, series in (("total_bytes_total", BYTES), ("total_time_total", SECONDS), ("size_count", TRANSFERS))
}
"""The names of 0.16 to 0.23. Later releases have them beside the new ones: what a new one has is not counted twice."""

UMBP_OPERATIONS = {"in": "load", "out": "store"}
"""The names that UMBP has for both directions."""

_OTHERS: dict[str, tuple[Row, ...]] = {
    "vllm:simple_kv_offload_save_outcomes_total": (
        _row(TRANSFERS, "simple_kv_offload", "out", outcome="stored"),
        _row(SKIPPED, "simple_kv_offload", "no_space", outcome="dropped_cpu_full"),
    ),
    "vllm:simple_kv_offload_load_blocks_total": (_row(TRANSFERS, "simple_kv_offload", "in"),),
    "vllm:simple_kv_offload_pending_store_blocks": (_row(PENDING, "simple_kv_offload", "out"),),
    **_histogram("vllm:hf3fs_load_duration_seconds", _key(SECONDS, "hf3fs", "in"), _key(TRANSFERS, "hf3fs", "in")),
    **_histogram("vllm:hf3fs_save_duration_seconds", _key(SECONDS, "hf3fs", "out"), _key(TRANSFERS, "hf3fs", "out")),
    "vllm:hf3fs_num_failed_load_total": (_row(FAILURES, "hf3fs", "load"),),
    "vllm:hf3fs_num_failed_save_total": (_row(FAILURES, "hf3fs", "store"),),
    "vllm:umbp_transfer_bytes_total": tuple(
        _row(BYTES, "umbp", direction, operation=operation) for direction, operation in UMBP_OPERATIONS.items()
    ),
    "vllm:umbp_transfer_completed_total": tuple(
        _row(TRANSFERS, "umbp", towards, operation=name) for towards, name in UMBP_OPERATIONS.items()
    ),
    "vllm:umbp_transfer_failed_total": tuple(
        _row(FAILURES, "umbp", name, operation=name) for name in UMBP_OPERATIONS.values()
    ),
    "vllm:hisparse_cache_hits_total": (
        _row(TIER_HITS, "hisparse", "hot_buffer"),
        _row(TIER_QUERIES, "hisparse", "hot_buffer"),
    ),
    "vllm:hisparse_cache_misses_total": (_row(TIER_QUERIES, "hisparse", "hot_buffer"),),
    "vllm:hisparse_host_to_device_bytes_total": (_row(BYTES, "hisparse", "in"),),
    "vllm:hisparse_host_cache_usage_perc": (_row(USAGE, "hisparse", "cpu"),),
}

LMCACHE: dict[str, tuple[Row, ...]] = {
    **_histogram("lmcache:time_to_retrieve", _key(SECONDS, "lmcache", "in"), _key(TRANSFERS, "lmcache", "in")),
    **_histogram("lmcache:time_to_store", _key(SECONDS, "lmcache", "out"), _key(TRANSFERS, "lmcache", "out")),
    "lmcache:num_lookup_tokens_total": (_row(TIER_QUERIES, "lmcache", "lmcache"),),
    "lmcache:num_lookup_hits_total": (_row(TIER_HITS, "lmcache", "lmcache"),),
    "lmcache:num_remote_read_bytes_total": (_row(TIER_BYTES, "lmcache", "remote", "in"),),
    "lmcache:num_remote_write_bytes_total": (_row(TIER_BYTES, "lmcache", "remote", "out"),),
    "lmcache:local_cache_usage": (_row(USED_BYTES, "lmcache", "cpu"),),
    "lmcache:local_storage_usage": (_row(USED_BYTES, "lmcache", "disk"),),
    "lmcache:remote_cache_usage": (_row(USED_BYTES, "lmcache", "remote"),),
}
"""LMCache's names on vLLM's own page: they have the model's name as LMCache knows it, and no engine."""

NIXL_NOTIFICATIONS = "vllm:nixl_num_failed_notifications_total"
NIXL_LATE = "vllm:nixl_num_notifications_after_expiry_total"
_FETCH_BY_STAGE = "vllm:num_requests_kv_fetch_by_stage"

ROWS: dict[str, tuple[Row, ...]] = {
    # Whoever needs the blocks reads them: the decode server.
    **_pair("nixl", "in"),
    NIXL_LATE: (_row(LATE, "nixl"),),
    NIXL_NOTIFICATIONS: (_row(FAILURES, "nixl", "notification"),),
    # Whoever has computed them sends them: the prefill server.
    **_pair("mooncake", "out"),
    "vllm:mooncake_num_failed_recvs_total": (_row(FAILURES, "mooncake", "receive"),),
    **_MOONCAKE_STORE,
    **_KV_OFFLOAD,
    **_OF_TIERS,
    **_OTHERS,
    _FETCH_BY_STAGE: tuple(_row(FETCHING, stage, stage=stage) for stage in KV_FETCH_STAGES),
}
"""By the names of samples."""

SIMPLE_USED = "vllm:simple_kv_offload_used_blocks"
SIMPLE_INFO = "vllm:simple_kv_offload_info"

KV_NAMES: frozenset[str] = frozenset([*ROWS, *DEPRECATED, *LMCACHE, SIMPLE_USED, SIMPLE_INFO])
"""All sample names that are read here."""


def placed(key: KvKey, tier: str) -> KvKey:
    """Return a row's key with the tier that a label such as ``1:fs`` names; two tiers of one kind are one."""
    if TIER not in key.labels:
        return key
    kind = tier.partition(":")[2]
    name = "cpu" if kind == "primary" else kind if kind in KV_TIERS else "other"
    return KvKey(key.series, tuple(name if label == TIER else label for label in key.labels))


_MOST_DIGITS = 15


class _Sums:
    """
    Adds up the values of one engine's names.

    A series of which a part is out of range is left out, since the sum of the others is another number, and is counted.
    """

    def __init__(self) -> None:
        self.values: dict[KvKey, float] = {}
        self.out_of_range: Counter[str] = Counter()
        self._unsound: set[KvKey] = set()

    def add(self, rows: Iterable[Row], labels: Labels, value: float) -> None:
        """Take in one value."""
        named = dict(labels)
        for row in rows:
            if all(named.get(name) in allowed for name, allowed in row.where.items()):
                self.put(placed(row.key, named.get("tier", "")), value, adds_up=row.adds_up)

    def put(self, key: KvKey, value: float, *, adds_up: bool = False) -> None:
        """Take in a value of a series."""
        if not 0 <= value <= KV_GAUGES.get(key.series, MAX_COUNT):
            self.out_of_range[key.series] += 1
            self._unsound.add(key)
        elif key.series in KV_GAUGES and not adds_up:
            self.values[key] = max(value, self.values.get(key, value))
        else:
            self.values[key] = self.values.get(key, 0.0) + value

    def reading(self) -> KvReading:
        """Return all values."""
        sound = {key: value for key, value in self.values.items() if key not in self._unsound}
        gauges = {key: value for key, value in sound.items() if key.series in KV_GAUGES}
        return KvReading({key: value for key, value in sound.items() if key not in gauges}, gauges)


def read_kv_page(
    series: SeriesByName, engines: Collection[EngineKey]
) -> tuple[Mapping[EngineKey, KvReading], Counter[str]]:
    """
    Return what KV connectors show of the engines of a page, and how many values were out of range, by series.

    Args:
        series: The values of the page, by name and labels.
        engines: The engines that the rest of the page names. What is of no engine is only read if there is one.
    """
    sums: dict[EngineKey, _Sums] = defaultdict(_Sums)
    for name, rows in _rows_of(series).items():
        for labels, value in series[name].items():
            sums[labels.engine].add(rows, labels, value)
    for key, usage, share in _simple_usage(series):
        sums[key].put(usage, share)
    counted = {key: frozenset(of_engine.values) for key, of_engine in sums.items()}
    for name, rows in DEPRECATED.items():
        for labels, value in series.get(name, {}).items():
            key = labels.engine
            uncounted = (row for row in rows if row.key not in counted.get(key, ()))
            sums[key].add(uncounted, labels, value)
    if len(engines) == 1:
        (lone,) = engines
        for name, rows in LMCACHE.items():
            for labels, value in series.get(name, {}).items():
                sums[lone].add(rows, labels, value)
    readings = {key: sums[key].reading() for key in engines if key in sums}
    return readings, sum((of_engine.out_of_range for of_engine in sums.values()), Counter[str]())


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
