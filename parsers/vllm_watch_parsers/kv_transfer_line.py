# SPDX-License-Identifier: Apache-2.0
"""
The periodic line on KV transfers: ``KV Transfer metrics: k=v, k=v``.

Each connector prints keys of its own, and vLLM 0.24 and later the names of /metrics for some; a server with several
connectors prints a Python dict for each of them. Which connector a line is of only its keys show.
"""

from __future__ import annotations

import math
import re

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_watch_parsers.events import Event, KvTransfers, Notice
from vllm_watch_parsers.fields import MAX_COUNT, UNNAMED
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
from vllm_watch_parsers.python_repr import top_level_items


KV_START = "KV Transfer metrics: "

_MEBIBYTE = 2**20
_MAX_ITEMS = 256
"""No connector prints so many; what comes after them is not read."""

_NUMBER = r"(?:np\.\w{1,16}\()?(-?\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,3})?|nan|inf)\)?"
_ITEM = re.compile(rf"([^=]{{1,120}})={_NUMBER}(?:, |\Z)", re.ASCII)
_DICT_ITEM = re.compile(rf"""(?:'([^']{{1,120}})'|"([^"]{{1,120}})"): {_NUMBER}(?:, |\Z)""", re.ASCII)
_OF_PAGE = re.compile(r"(vllm:[a-z0-9_]{1,80})(?::\(([^()]{0,80})\))?(_count|_sum)?\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+ ()/%-]{0,60}\Z", re.ASCII)
_LABEL = re.compile(r"'([^']{0,40})'", re.ASCII)

Items = Mapping[str, float]


class _Moved(NamedTuple):
    """What a line has of a pair of servers: the connector, and which way its blocks go."""

    connector: str
    direction: str


_NIXL = _Moved("nixl", "in")
_MOONCAKE = _Moved("mooncake", "out")
_ONLY_NIXL = "Avg post time (ms)"
_PAIR_TRANSFERS = "Num successful transfers"
_FIRST_TRANSFERS = "num_successful_transfers"
_PAIR_TIME, _PAIR_SIZE = "Avg xfer time (ms)", "Avg MB per transfer"

_PAIR_COUNTS = {
    "Num failed transfers": (FAILURES, "transfer"),
    "Num failed recvs": (FAILURES, "receive"),
    "Num KV expired reqs": (EXPIRED,),
    "Num notifs after expiry": (LATE,),
}
_PAIR_REST = frozenset(
    {
        _PAIR_TIME,
        _PAIR_SIZE,
        _ONLY_NIXL,
        "P90 xfer time (ms)",
        "P90 post time (ms)",
        "Throughput (MB/s)",
        "Avg number of descriptors",
    }
)

_HOT_BUFFER = ("hisparse", "hot_buffer")
_HISPARSE = {
    "HiSparse hot-buffer hits": (KvKey(TIER_HITS, _HOT_BUFFER), KvKey(TIER_QUERIES, _HOT_BUFFER)),
    "HiSparse hot-buffer misses": (KvKey(TIER_QUERIES, _HOT_BUFFER),),
    "HiSparse host-to-device bytes": (KvKey(BYTES, ("hisparse", "in")),),
}
_HISPARSE_USAGE = "HiSparse host KV cache usage %"

_HF3FS_WAYS = {"load": "in", "save": "out"}
_FIRST_OFFLOAD = {
    f"{moved}_total_{what}": KvKey(series, ("kv_offload", direction))
    for moved, direction in (("CPU_to_GPU", "in"), ("GPU_to_CPU", "out"))
    for what, series in (("bytes", BYTES), ("time", SECONDS))
}
_STORE_OPERATIONS = {"load_get": ("in", "load"), "save_put": ("out", "store")}
_STORE_LOOKUPS = ("lookup_exists", "save_exists")


class _Gathered:
    """The values of a line by their series, and which of its keys are known."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.values: dict[KvKey, float] = {}
        self.known: set[str] = set()

    def take(self, key: str, *series: KvKey) -> None:
        """Take in the value of a key, if the line has it."""
        if key in self.items:
            self.known.add(key)
            for each in series:
                self.add(each, self.items[key])

    def add(self, key: KvKey, value: float) -> None:
        """Add a value to a series; a mean of nothing is `nan`."""
        if math.isfinite(value):
            self.values[key] = self.values.get(key, 0.0) + value

    def get(self, key: str) -> float:
        """Return a key's value, 0 if the line has none."""
        value = self.items.get(key, 0.0)
        return value if math.isfinite(value) else 0.0


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
        gathered = _gathered(items)
        unknown += [_unknown_name(name) for name in items if name not in gathered.known]
        for key, value in gathered.values.items():
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


def _gathered(items: Items) -> _Gathered:
    gathered = _Gathered(items)
    for read in _READERS:
        read(gathered)
    return gathered


def _read_pair(gathered: _Gathered) -> None:
    """Read NIXL's form, or Mooncake's, which has no post time; before 0.11.1 it was a number alone."""
    items = gathered.items
    moved = _NIXL if _ONLY_NIXL in items or _FIRST_TRANSFERS in items else _MOONCAKE
    gathered.take(_FIRST_TRANSFERS, KvKey(TRANSFERS, moved))
    if _PAIR_TRANSFERS not in items:
        return
    gathered.take(_PAIR_TRANSFERS, KvKey(TRANSFERS, moved))
    number = gathered.get(_PAIR_TRANSFERS)
    gathered.add(KvKey(SECONDS, moved), gathered.get(_PAIR_TIME) * number / 1000)
    gathered.add(KvKey(BYTES, moved), float(round(gathered.get(_PAIR_SIZE) * number * _MEBIBYTE)))
    for name, (series, *kind) in _PAIR_COUNTS.items():
        gathered.take(name, KvKey(series, (moved.connector, *kind)))
    gathered.known |= _PAIR_REST


def _read_first_offload(gathered: _Gathered) -> None:
    """Read the form of the offloading connector from 0.16 to 0.23."""
    for name, key in _FIRST_OFFLOAD.items():
        gathered.take(name, key)


def _read_names_of_page(gathered: _Gathered) -> None:
    """Read the form of 0.24 and later: names of /metrics, some with the values of their labels as a Python tuple."""
    for item, value in gathered.items.items():
        found = _OF_PAGE.match(item)
        if found is None:
            continue
        gathered.known.add(item)
        name, label = found[1], _LABEL.search(found[2] or "")
        for row in _rows(name, found[3]):
            # A tuple has no names: each of these families has one label of its own.
            if label is None or not row.where or any(label[1] in allowed for allowed in row.where.values()):
                gathered.add(placed(row.key, label[1] if label else ""), value)


def _rows(name: str, part: str | None) -> tuple[Row, ...]:
    names = [f"{name}{part}"] if part else [name, f"{name}_total"]
    return next((ROWS[each] for each in names if each in ROWS), ())


def _read_store(gathered: _Gathered) -> None:
    """Read the Mooncake store's form: numbers of each operation; which of the failed ones were in part is not said."""
    items = gathered.items
    for name, (direction, kind) in _STORE_OPERATIONS.items():
        moved = ("mooncake_store", direction)
        if f"{name}_count" in items:
            number, failed = gathered.get(f"{name}_count"), gathered.get(f"{name}_error_count")
            gathered.add(KvKey(TRANSFERS, moved), max(number - failed, 0.0))
            gathered.add(KvKey(SECONDS, moved), gathered.get(f"{name}_avg_ms") * number / 1000)
            gathered.add(KvKey(FAILURES, ("mooncake_store", kind)), failed)
        gathered.take(f"{name}_total_bytes", KvKey(BYTES, moved))
    for name in _STORE_LOOKUPS:
        if f"{name}_count" in items:
            gathered.take(f"{name}_error_count", KvKey(FAILURES, ("mooncake_store", "lookup")))
    if "lookup_exists_count" in items:
        number = gathered.get("lookup_exists_count")
        gathered.add(KvKey(LOOKUPS, ("mooncake_store", "sync")), number)
        seconds = gathered.get("lookup_exists_avg_ms") * number / 1000
        gathered.add(KvKey(LOOKUP_SECONDS, ("mooncake_store", "sync")), seconds)
    gathered.known |= {
        f"{name}_{what}"
        for name in (*_STORE_OPERATIONS, *_STORE_LOOKUPS)
        for what in ("count", "avg_ms", "p90_ms", "total_keys", "total_bytes", "failed_keys", "error_count")
    }


def _read_hf3fs(gathered: _Gathered) -> None:
    if "Num transfers task" not in gathered.items:
        return
    for name, direction in _HF3FS_WAYS.items():
        done, kind = f"Num {name} task success", "load" if name == "load" else "store"
        gathered.take(done, KvKey(TRANSFERS, ("hf3fs", direction)))
        gathered.take(f"Num {name} task failed", KvKey(FAILURES, ("hf3fs", kind)))
        seconds = gathered.get(f"Avg {name} duration (ms)") * gathered.get(done) / 1000
        gathered.add(KvKey(SECONDS, ("hf3fs", direction)), seconds)
        gathered.known |= {f"{what} {name} duration (ms)" for what in ("Avg", "P90")}
    gathered.known.add("Num transfers task")


def _read_umbp(gathered: _Gathered) -> None:
    for direction, name in UMBP_OPERATIONS.items():
        if f"{name}_submitted" in gathered.items:
            gathered.take(f"{name}_completed", KvKey(TRANSFERS, ("umbp", direction)))
            gathered.take(f"{name}_failed", KvKey(FAILURES, ("umbp", name)))
            gathered.take(f"{name}_num_bytes", KvKey(BYTES, ("umbp", direction)))
            gathered.known.add(f"{name}_submitted")


def _read_hisparse(gathered: _Gathered) -> None:
    for name, keys in _HISPARSE.items():
        gathered.take(name, *keys)
    if _HISPARSE_USAGE in gathered.items:
        gathered.known.add(_HISPARSE_USAGE)
        gathered.add(KvKey(USAGE, ("hisparse", "cpu")), gathered.get(_HISPARSE_USAGE) / 100)


_READERS: tuple[Callable[[_Gathered], None], ...] = (
    _read_pair,
    _read_first_offload,
    _read_names_of_page,
    _read_store,
    _read_hf3fs,
    _read_umbp,
    _read_hisparse,
)


def _unknown_name(name: str) -> str:
    """Return the name of a key that no table has, if it looks like a name: it becomes a label."""
    return name if _NAME.match(name) else UNNAMED
