# SPDX-License-Identifier: Apache-2.0
"""
The periodic statistics lines of the V0 and V1 engines and of the Rust front end.

Fields are found by their names, in any order; the strings of each release are listed with
the tests' corpus. A line counts only from `metrics.py` (V0), `loggers.py` (V1) or
`log_stats.rs` (Rust), which the caller checks.
"""

from __future__ import annotations

import re

from math import isnan

from vllm_watch_parsers.events import AGGREGATED, EngineStats, Event, Notice
from vllm_watch_parsers.numbers import MAX_REQUESTS, MAX_TOKENS_PER_SECOND, percent


MAX_ENGINE = 65_535

_ENGINE = re.compile(r"Engine (-?\d{1,5}): |(\d{1,5}) Engines Aggregated: ")
_KV_FETCH = re.compile(r"KV fetch: (\d{1,9}) waiting to start, (\d{1,9}) in progress, (\d{1,9}) completed waiting")
# 0.7.1 and 0.7.2 forgot the comma after "Waiting: 3 reqs"; V0 ends its line with a full stop.
_FIELD = re.compile(
    r"([A-Z][A-Za-z0-9_+ -]{0,60}): (-?[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?|-?nan|-?inf)"
    r"(%| tokens/s| toks/s| reqs)?(?:, | (?=[A-Z])|\.? ?$|(?=,))"
)
_V0_HIT_RATES = re.compile(r"Prefix cache hit rate: GPU: (-?[\d.]+|nan)%, CPU: (-?[\d.]+|nan)%$")
_UNKNOWN_NAME = re.compile(r"([A-Z][A-Za-z0-9_+ -]{0,60}): ")
_KV_CACHE = re.compile(r"[A-Z][A-Za-z0-9_+ ]{0,40} KV cache (?:usage|used)$")

# What a field is, by its name and unit: the event's field and the most it can be.
_FIELDS: dict[tuple[str, str], tuple[str, float]] = {
    ("Avg prompt throughput", " tokens/s"): ("prompt_tokens_per_second", MAX_TOKENS_PER_SECOND),
    ("Avg prompt tput", " toks/s"): ("prompt_tokens_per_second", MAX_TOKENS_PER_SECOND),
    ("Avg generation throughput", " tokens/s"): ("generation_tokens_per_second", MAX_TOKENS_PER_SECOND),
    ("Avg generation tput", " toks/s"): ("generation_tokens_per_second", MAX_TOKENS_PER_SECOND),
    ("Running", " reqs"): ("requests_running", MAX_REQUESTS),
    ("Reqs Running", ""): ("requests_running", MAX_REQUESTS),
    ("Waiting", " reqs"): ("requests_waiting", MAX_REQUESTS),
    ("Waiting", ""): ("requests_waiting", MAX_REQUESTS),
    ("Pending", " reqs"): ("requests_waiting", MAX_REQUESTS),
    ("Deferred", " reqs"): ("requests_deferred", MAX_REQUESTS),
    ("Swapped", " reqs"): ("requests_swapped", MAX_REQUESTS),
    ("Preemptions", ""): ("preemptions", MAX_REQUESTS),
    ("Prefix cache hit rate", "%"): ("prefix_cache_hit_ratio", 1),
    ("External prefix cache hit rate", "%"): ("external_prefix_cache_hit_ratio", 1),
    ("MM cache hit rate", "%"): ("mm_cache_hit_ratio", 1),
}
# `Corrupted` is printed as 0 whatever happened (0.11.1 to 0.33.0), so it says nothing.
_SILENT = ("Corrupted", " reqs")

Fields = dict[str, float | int | tuple[int, int, int] | None]


class _RefusedError(Exception):
    """A field is out of range; its argument is the field's name."""


def parse_stats(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by one of the statistics call sites.

    Returns:
        The statistics, or a `Notice` if the message looks like statistics and is not
        understood or holds an impossible value, or nothing if it is something else.
    """
    found = _ENGINE.match(message)
    body = message[found.end() :] if found else message
    if not body.startswith(("Avg prompt ", "Running: ")):
        return _parse_v0_hit_rates(message)
    try:
        engine = _engine(found)
        stats = _parse_fields(engine, body)
    except _RefusedError as refused:
        return (Notice("value_refused", str(refused)), Notice("stats_unparsed"))
    return (stats,) if stats else (Notice("stats_unparsed"),)


def _engine(found: re.Match[str] | None) -> str | None:
    if found is None:
        return None
    if found[2]:
        return AGGREGATED
    index = int(found[1])
    if not 0 <= index <= MAX_ENGINE:
        raise _RefusedError("engine")
    return str(index)


def _parse_fields(engine: str | None, body: str) -> EngineStats | None:
    kv_fetch = _KV_FETCH.search(body) if "KV fetch: " in body else None
    if kv_fetch:
        body = body[: kv_fetch.start()] + body[kv_fetch.end() + 2 :]
    values: Fields = {}
    caches: dict[str, float | None] = {}
    unknown = []
    fields = _FIELD.findall(body)
    for name, text, unit in fields:
        if (name, unit) in _FIELDS:
            field, most = _FIELDS[name, unit]
            if field in values:
                return None
            values[field] = _value(field, text, unit, most)
        elif unit == "%" and _KV_CACHE.match(name):
            caches[name] = _value("kv_cache_usage_ratio", text, unit, 1)
        elif (name, unit) != _SILENT:
            unknown.append(name)
    if len(fields) != body.count(": "):
        unknown += _names_left(body)
    if "requests_running" not in values or "requests_waiting" not in values:
        return None
    _read_caches(caches, values)
    if kv_fetch:
        values["kv_fetch"] = (int(kv_fetch[1]), int(kv_fetch[2]), int(kv_fetch[3]))
    return EngineStats(engine, unknown_fields=tuple(unknown), **values)  # type: ignore[arg-type]  # By the table.


def _value(field: str, text: str, unit: str, most: float) -> float | int | None:
    """Return a field's value in base units, whole for counts; `None` for a ratio of nothing."""
    try:
        value = float(text)
    except ValueError:
        raise _RefusedError(field) from None
    if unit == "%":
        value = round(value / 100, 6)
    if 0 <= value <= most:
        if most != MAX_REQUESTS:
            return value
        if value.is_integer():
            return int(value)
    elif unit == "%" and isnan(value):
        return None
    raise _RefusedError(field)


def _names_left(body: str) -> list[str]:
    """Return the names of what no pattern recognises, as far as they look like names."""
    rest = _FIELD.sub("", body)
    return [found[1] for found in _UNKNOWN_NAME.finditer(rest)] or ["unnamed"]


def _read_caches(caches: dict[str, float | None], values: Fields) -> None:
    """Tell V0's pair of GPU and CPU caches from the one cache of whatever device V1 runs on."""
    if len(caches) == 2 and "CPU KV cache usage" in caches:
        values["cpu_kv_cache_usage_ratio"] = caches.pop("CPU KV cache usage")
    if caches:
        values["kv_cache_usage_ratio"] = next(iter(caches.values()))


def _parse_v0_hit_rates(message: str) -> tuple[Event, ...]:
    found = _V0_HIT_RATES.match(message)
    if found is None:
        return ()
    gpu, cpu = percent(found[1]), percent(found[2])
    # -1 means that prefix caching is off for that device.
    ratios = [value if value is not None and 0 <= value <= 1 else None for value in (gpu, cpu)]
    return (EngineStats(prefix_cache_hit_ratio=ratios[0], cpu_prefix_cache_hit_ratio=ratios[1]),)
