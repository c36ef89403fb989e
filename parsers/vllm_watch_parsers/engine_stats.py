# SPDX-License-Identifier: Apache-2.0
"""
The periodic statistics lines of the V0 and V1 engines and of the Rust front end.

Fields are found by name, in any order; the corpus of the tests has the texts of each release. The form in which V1
prints nearly all of its lines is matched at once, which takes a third of the time: every number that matches there is
in its range. A line counts only from `metrics.py` (V0), `loggers.py` (V1) or `log_stats.rs` (Rust): the caller checks.
"""

from __future__ import annotations

import re

from collections.abc import Callable

from vllm_watch_parsers.events import AGGREGATED, AchievedWork, EngineStats, Event, Notice
from vllm_watch_parsers.fields import (
    MAX_REQUESTS,
    MAX_TOKENS_PER_SECOND,
    USUAL_PERCENT,
    USUAL_RATE,
    Kind,
    MalformedError,
    OutOfRangeError,
    named_fields,
    percent,
    read_field,
    unknown_name,
    usual_ratio,
)


MAX_ENGINE = 65_535

_ENGINE = re.compile(r"Engine (-?\d{1,5}): |(\d{1,5}) Engines Aggregated: ", re.ASCII)
_KV_FETCH = re.compile(r"(\d{1,9}) waiting to start, (\d{1,9}) in progress, (\d{1,9}) completed waiting\Z", re.ASCII)
_KV_CACHE_ENDS = (" KV cache usage", " KV cache used")

_FIELDS: dict[str, Kind] = {
    "Avg prompt throughput": Kind("prompt_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Avg prompt tput": Kind("prompt_tokens_per_second", " toks/s", MAX_TOKENS_PER_SECOND),
    "Avg generation throughput": Kind("generation_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Avg generation tput": Kind("generation_tokens_per_second", " toks/s", MAX_TOKENS_PER_SECOND),
    "Running": Kind("requests_running", " reqs", MAX_REQUESTS, whole=True),
    "Reqs Running": Kind("requests_running", "", MAX_REQUESTS, whole=True),
    "Waiting": Kind("requests_waiting", " reqs", MAX_REQUESTS, whole=True),
    "Pending": Kind("requests_waiting", " reqs", MAX_REQUESTS, whole=True),
    "Deferred": Kind("requests_deferred", " reqs", MAX_REQUESTS, whole=True),
    "Swapped": Kind("requests_swapped", " reqs", MAX_REQUESTS, whole=True),
    "Preemptions": Kind("preemptions", "", MAX_REQUESTS, whole=True),
    "Prefix cache hit rate": Kind("prefix_cache_hit_ratio", "%", 1),
    "External prefix cache hit rate": Kind("external_prefix_cache_hit_ratio", "%", 1),
    "MM cache hit rate": Kind("mm_cache_hit_ratio", "%", 1),
}
_KV_CACHE = Kind("kv_cache_usage_ratio", "%", 1)
_STARTS = ("Avg prompt ", "Running: ")
_HIT_RATES_START = "Prefix cache hit rate: GPU: "
STATS_STARTS = ("Engine ", *_STARTS, _HIT_RATES_START)
"""How the messages start that are parsed here, but for those that start with a number."""

_V0_HIT_RATES = re.compile(_HIT_RATES_START + r"(-?[\d.]+|nan)%, CPU: (-?[\d.]+|nan)%\Z", re.ASCII)
_RUST_START = "Avg prompt tput: "
_IGNORED = "Corrupted"
"""Always printed as 0 (0.11.1 to 0.33.0)."""

_COUNT = r"(\d{1,6})"
_USUAL = re.compile(
    rf"Engine (\d{{1,4}}): Avg prompt throughput: ({USUAL_RATE}) tokens/s, "
    rf"Avg generation throughput: ({USUAL_RATE}) tokens/s, "
    rf"Running: {_COUNT} reqs, Waiting: {_COUNT} reqs, (?:Deferred: {_COUNT} reqs, )?"
    rf"[A-Z]{{2,8}} KV cache usage: ({USUAL_PERCENT})%, Prefix cache hit rate: ({USUAL_PERCENT})%"
    rf"(?:, External prefix cache hit rate: ({USUAL_PERCENT})%)?(?:, MM cache hit rate: ({USUAL_PERCENT})%)?\Z",
    re.ASCII,
)

Value = float | int | tuple[int, int, int] | None


def parse_stats(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by one of the statistics call sites.

    Returns:
        The statistics, or a `Notice` if the message looks like statistics and is malformed or has a value out of
        range, or nothing if it is something else.
    """
    usual = _USUAL.match(message)
    if usual is not None:
        return (_usual_stats(usual),)
    found = _ENGINE.match(message)
    body = message[found.end() :] if found else message
    if not body.startswith(_STARTS):
        return _parse_v0_hit_rates(message)
    return reported(lambda: _parse_fields(_engine(found), body))


def reported(read: Callable[[], Event | None]) -> tuple[Event, ...]:
    """Return what `read` finds in a line of statistics, or a `Notice` on one out of range or not understood."""
    try:
        event = read()
    except OutOfRangeError as error:
        return (Notice("value_out_of_range", str(error)), Notice("stats_unparsed"))
    except MalformedError:
        event = None
    return (Notice("stats_unparsed") if event is None else event,)


def _usual_stats(found: re.Match[str]) -> EngineStats:
    engine, prompt, generation, running, waiting, deferred, cache, hits, external, media = found.groups()
    return EngineStats(
        str(int(engine)),
        float(prompt),
        float(generation),
        int(running),
        int(waiting),
        None if deferred is None else int(deferred),
        kv_cache_usage_ratio=usual_ratio(cache),
        prefix_cache_hit_ratio=usual_ratio(hits),
        external_prefix_cache_hit_ratio=None if external is None else usual_ratio(external),
        mm_cache_hit_ratio=None if media is None else usual_ratio(media),
    )


def _engine(found: re.Match[str] | None) -> str | None:
    if found is None:
        return None
    if found[2]:
        return AGGREGATED
    index = int(found[1])
    if not 0 <= index <= MAX_ENGINE:
        raise OutOfRangeError("engine")
    return str(index)


def _parse_fields(engine: str | None, body: str) -> EngineStats | None:
    """Return the fields of a line, or `None` if one is there twice or a required one is missing."""
    values: dict[str, Value] = {}
    caches: dict[str, float | None] = {}
    unknown = []
    # 0.7.1 and 0.7.2 forgot the comma after "Waiting: 3 reqs"; V0 ends its line with a full stop.
    for name, text in named_fields(body.replace(" reqs GPU KV", " reqs, GPU KV").rstrip(". ")):
        kind = _FIELDS.get(name)
        if kind is not None:
            if kind.field in values:
                return None
            value = read_field(kind, text)
            if value is None and kind.unit != "%":
                raise OutOfRangeError(kind.field)
            values[kind.field] = value
        elif name.endswith(_KV_CACHE_ENDS):
            caches[name] = read_field(_KV_CACHE, text)
        elif name == "KV fetch" and (stages := _KV_FETCH.match(text)):
            values["kv_fetch"] = (int(stages[1]), int(stages[2]), int(stages[3]))
        elif name != _IGNORED:
            unknown.append(unknown_name(name))
    if "requests_running" not in values or "requests_waiting" not in values:
        return None
    _read_caches(caches, values)
    if body.startswith(_RUST_START):
        values["is_rust"] = True
    return EngineStats(engine, unknown_fields=tuple(unknown), **values)  # type: ignore[arg-type]  # By the tables.


def _read_caches(caches: dict[str, float | None], values: dict[str, Value]) -> None:
    """Distinguish V0's pair of GPU and CPU caches from V1's one cache, whatever its device."""
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


MAX_FLOPS_PER_SECOND = 1e18
"""No device does more in a second, nor moves more bytes."""

WORK_START = "MFU: "
_LINE = re.compile(
    r"(?:Engine (\d{1,5}): )?MFU: (\d{1,15}\.\d) TF/s/(?:GPU|device) (\d{1,15}\.\d) GB/s/(?:GPU|device)\Z", re.ASCII
)


def parse_work(message: str) -> tuple[Event, ...]:
    """Parse the message of a record printed by `perf.py`, or by the Rust front end, which names no engine."""
    found = _LINE.match(message)
    if found is None:
        return ()
    engine = None if found[1] is None else str(int(found[1]))
    work = AchievedWork(engine, float(found[2] + "e12"), float(found[3] + "e9"))
    for name in ("flops_per_second", "memory_bytes_per_second"):
        if getattr(work, name) > MAX_FLOPS_PER_SECOND:
            return (Notice("value_out_of_range", name),)
    return (work,)
