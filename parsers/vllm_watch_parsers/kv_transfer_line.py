# SPDX-License-Identifier: Apache-2.0
"""
The periodic line on KV transfers: ``KV Transfer metrics: k=v, k=v``.

Each connector prints keys of its own, and vLLM 0.24 and later the names of /metrics for some; a server with several
connectors prints a Python dict for each of them. Which connector a line is of only its keys show.
"""

from __future__ import annotations

import math
import re

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from vllm_watch_parsers.events import Event, KvTransfers, Notice
from vllm_watch_parsers.fields import MAX_COUNT, unknown_name
from vllm_watch_parsers.flags import top_level_items
from vllm_watch_parsers.kv_transfer import (
    BYTES,
    EXPIRED,
    FAILURES,
    KV_GAUGES,
    LATE,
    LOOKUP_SECONDS,
    LOOKUPS,
    ROWS,
    SECONDS,
    TIER_HITS,
    TIER_QUERIES,
    TRANSFERS,
    UMBP_OPERATIONS,
    USAGE,
    KvKey,
    Row,
    placed,
)


KV_START = "KV Transfer metrics: "

_MEBIBYTE = 2**20
_MAX_ITEMS = 256
"""No connector prints so many; what comes after them is not read."""

_NUMBER = r"(?:np\.\w{1,16}\()?(-?\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,3})?|nan|inf)\)?"
_ITEM = re.compile(rf"([^=]{{1,120}})={_NUMBER}(?:, |\Z)", re.ASCII)
_DICT_ITEM = re.compile(rf"""(?:'([^']{{1,120}})'|"([^"]{{1,120}})"): {_NUMBER}(?:, |\Z)""", re.ASCII)
_OF_PAGE = re.compile(r"(vllm:[a-z0-9_]{1,80})(?::\(([^()]{0,80})\))?(_count|_sum)?\Z", re.ASCII)
_LABEL = re.compile(r"'([^']{0,40})'", re.ASCII)

Items = Mapping[str, float]


_NIXL, _MOONCAKE = ("nixl", "in"), ("mooncake", "out")
_ONLY_NIXL = frozenset({"Avg post time (ms)", "num_successful_transfers"})
_STORE_IN, _STORE_OUT, _STORE_SYNC = (("mooncake_store", way) for way in ("in", "out", "sync"))
_HOT_BUFFER = ("hisparse", "hot_buffer")


def _pair(*moved: str) -> dict[str, tuple[KvKey, ...]]:
    """Return the counts of a pair of servers; before 0.11.1 NIXL's line was the number of transfers alone."""
    return {
        "Num successful transfers": (KvKey(TRANSFERS, moved),),
        "num_successful_transfers": (KvKey(TRANSFERS, moved),),
        "Num failed transfers": (KvKey(FAILURES, (moved[0], "transfer")),),
        "Num failed recvs": (KvKey(FAILURES, (moved[0], "receive")),),
        "Num KV expired reqs": (KvKey(EXPIRED, moved[:1]),),
        "Num notifs after expiry": (KvKey(LATE, moved[:1]),),
    }


_COUNTS: dict[str, tuple[KvKey, ...]] = {
    # The offloading connector from 0.16 to 0.23.
    **{
        f"{moved}_total_{what}": (KvKey(series, ("kv_offload", direction)),)
        for moved, direction in (("CPU_to_GPU", "in"), ("GPU_to_CPU", "out"))
        for what, series in (("bytes", BYTES), ("time", SECONDS))
    },
    # The Mooncake store; which of its failed operations were in part is not said.
    "load_get_error_count": (KvKey(FAILURES, ("mooncake_store", "load")),),
    "save_put_error_count": (KvKey(FAILURES, ("mooncake_store", "store")),),
    "lookup_exists_error_count": (KvKey(FAILURES, ("mooncake_store", "lookup")),),
    "save_exists_error_count": (KvKey(FAILURES, ("mooncake_store", "lookup")),),
    "load_get_total_bytes": (KvKey(BYTES, _STORE_IN),),
    "save_put_total_bytes": (KvKey(BYTES, _STORE_OUT),),
    "load_get_count": (KvKey(TRANSFERS, _STORE_IN),),
    "save_put_count": (KvKey(TRANSFERS, _STORE_OUT),),
    "lookup_exists_count": (KvKey(LOOKUPS, _STORE_SYNC),),
    "Num load task success": (KvKey(TRANSFERS, ("hf3fs", "in")),),
    "Num save task success": (KvKey(TRANSFERS, ("hf3fs", "out")),),
    "Num load task failed": (KvKey(FAILURES, ("hf3fs", "load")),),
    "Num save task failed": (KvKey(FAILURES, ("hf3fs", "store")),),
    **{
        f"{name}_{what}": (KvKey(series, ("umbp", label)),)
        for direction, name in UMBP_OPERATIONS.items()
        for what, series, label in (
            ("completed", TRANSFERS, direction),
            ("failed", FAILURES, name),
            ("num_bytes", BYTES, direction),
        )
    },
    "HiSparse hot-buffer hits": (KvKey(TIER_HITS, _HOT_BUFFER), KvKey(TIER_QUERIES, _HOT_BUFFER)),
    "HiSparse hot-buffer misses": (KvKey(TIER_QUERIES, _HOT_BUFFER),),
    "HiSparse host-to-device bytes": (KvKey(BYTES, ("hisparse", "in")),),
}
"""What is counted under a key."""

_FAILED = {"load_get_count": "load_get_error_count", "save_put_count": "save_put_error_count"}
"""Counts that have the failed ones among them, and what counts these."""

_MEANS: dict[str, tuple[str, str]] = {
    "Avg xfer time (ms)": ("Num successful transfers", SECONDS),
    "Avg MB per transfer": ("Num successful transfers", BYTES),
    "load_get_avg_ms": ("load_get_count", SECONDS),
    "save_put_avg_ms": ("save_put_count", SECONDS),
    "lookup_exists_avg_ms": ("lookup_exists_count", LOOKUP_SECONDS),
    "Avg load duration (ms)": ("Num load task success", SECONDS),
    "Avg save duration (ms)": ("Num save task success", SECONDS),
}
"""Means in milliseconds or mebibytes: of which number, and what they are when they are multiplied with it."""

_PERCENT = {"HiSparse host KV cache usage %": KvKey(USAGE, ("hisparse", "cpu"))}
_UNREAD = frozenset(
    {
        *("P90 xfer time (ms)", "Avg post time (ms)", "P90 post time (ms)", "Throughput (MB/s)"),
        *("Avg number of descriptors", "Num transfers task", "P90 load duration (ms)", "P90 save duration (ms)"),
        *(f"{name}_submitted" for name in UMBP_OPERATIONS.values()),
        *(
            f"{name}_{what}"
            for name in ("load_get", "save_put", "lookup_exists", "save_exists")
            for what in ("count", "avg_ms", "p90_ms", "total_keys", "total_bytes", "failed_keys")
        ),
    }
)
"""Keys that are known, and say nothing that the others do not."""


def parse_kv_transfers(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by `metrics.py`.

    Returns:
        The event without its engine (the line names none: it belongs to the statistics line before it), or a `Notice`
        for a line out of range or not understood.
    """
    values: dict[KvKey, float] = {}
    unknown: list[str] = []
    lines = tuple(_connectors(message[len(KV_START) :]))
    if not any(lines):
        return (Notice("stats_unparsed"),)
    for items in lines:
        gathered, names = _gathered(items)
        unknown += names
        for key, value in gathered.items():
            # Two connectors of a server can be of one shape.
            values[key] = max(value, values.get(key, value)) if key.series == USAGE else values.get(key, 0.0) + value
    wrong = next((key.series for key, value in values.items() if not 0 <= value <= _most(key)), None)
    if wrong is not None:
        return (Notice("value_out_of_range", wrong), Notice("stats_unparsed"))
    counts = tuple((key, value) for key, value in values.items() if key.series not in KV_GAUGES)
    gauges = tuple((key, value) for key, value in values.items() if key.series in KV_GAUGES)
    return (KvTransfers(None, counts, gauges, tuple(unknown)),)


def _most(key: KvKey) -> float:
    return KV_GAUGES.get(key.series, MAX_COUNT)


def _connectors(body: str) -> Iterator[Items]:
    """Yield what each connector prints; `MultiConnector` prints ``NixlConnector={'Num failed transfers': 3, …}``."""
    dicts = [text for _, text in top_level_items(body) if text.startswith("{")] if "={" in body else []
    if dicts:
        for text in dicts:
            yield _items((found[1] or found[2], found[3]) for found in _DICT_ITEM.finditer(text.strip("{}")))
    else:
        yield _items((found[1], found[2]) for found in _ITEM.finditer(body))


def _items(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in pairs:
        if len(found) >= _MAX_ITEMS:
            break
        found[name] = float(text)
    return found


def _gathered(items: Items) -> tuple[dict[KvKey, float], list[str]]:
    """Return the values of one connector's items by their series, and the names of items that are not known."""
    found: dict[KvKey, float] = defaultdict(float)
    unknown = []
    counts = _COUNTS | _pair(*(_MOONCAKE if _ONLY_NIXL.isdisjoint(items) else _NIXL))
    for name, value in items.items():
        if not (known := _read(name, value, items, counts)) and name not in _UNREAD and not _OF_PAGE.match(name):
            unknown.append(unknown_name(name))
        for key, amount in known:
            if math.isfinite(amount):  # A mean of nothing is not.
                found[key] += amount
    return found, unknown


def _read(name: str, value: float, items: Items, counts: Mapping[str, tuple[KvKey, ...]]) -> list[tuple[KvKey, float]]:
    """Return what an item says."""
    if name in _MEANS:
        of_what, series = _MEANS[name]
        ((_, labels),) = counts[of_what]
        total = value * items.get(of_what, 0.0)
        return [(KvKey(series, labels), _whole(total * _MEBIBYTE) if series == BYTES else total / 1000)]
    if name in _PERCENT:
        return [(_PERCENT[name], value / 100)]
    if name in counts:
        value = max(value - items.get(_FAILED[name], 0.0), 0.0) if name in _FAILED else value
        return [(key, value) for key in counts[name]]
    return _read_name_of_page(name, value)


def _whole(amount: float) -> float:
    return float(round(amount)) if math.isfinite(amount) else amount


def _read_name_of_page(item: str, value: float) -> list[tuple[KvKey, float]]:
    """Read an item of 0.24 and later: a name of /metrics, perhaps with the values of its labels as a Python tuple."""
    found = _OF_PAGE.match(item)
    if found is None:
        return []
    label = _LABEL.search(found[2] or "")
    # A tuple has no names: each of these families has one label of its own.
    return [
        (placed(row.key, label[1] if label else ""), value)
        for row in _rows(found[1], found[3])
        if label is None or not row.where or any(label[1] in allowed for allowed in row.where.values())
    ]


def _rows(name: str, part: str | None) -> tuple[Row, ...]:
    names = [f"{name}{part}"] if part else [name, f"{name}_total"]
    return next((ROWS[each] for each in names if each in ROWS), ())
