# SPDX-License-Identifier: Apache-2.0
"""
The periodic lines of the V0 and V1 engines and of the Rust front end: load, speculative decoding, diffusion, work.

Fields are found by name, in any order; the corpus of the tests has the texts of each release. A line counts only from
the files in `prefix.STATS_SITES`: the caller checks. Lines on decoding name no engine: they belong to the statistics
line before them.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping
from math import isnan
from typing import NamedTuple

from vllm_watch_parsers.events import (
    AGGREGATED,
    AchievedWork,
    DiffusionDecoding,
    EngineStats,
    Event,
    Notice,
    SpecDecoding,
)
from vllm_watch_parsers.fields import (
    MAX_DRAFT_TOKENS,
    MAX_REQUESTS,
    MAX_TOKENS,
    MAX_TOKENS_PER_SECOND,
    number,
    unknown_name,
)


class OutOfRangeError(Exception):
    """A field is out of range; the argument is the event's field."""


class MalformedError(Exception):
    """A value is not a number, or has another unit."""


def named_fields(body: str) -> list[tuple[str, str]]:
    """
    Split a line into names and values, as texts.

    A value may be a list with commas: a part without a name belongs to the field before it.
    """
    fields: list[tuple[str, str]] = []
    for part in body.split(", "):
        name, separator, value = part.partition(": ")
        if separator or not fields:
            fields.append((name, value))
        else:
            name, value = fields[-1]
            fields[-1] = (name, f"{value}, {part}")
    return fields


def is_plain(text: str) -> bool:
    """Return whether a number is written as vLLM does; Python also reads ``1_0``, and digits of any script."""
    return text.isascii() and "_" not in text


class Kind(NamedTuple):
    """
    What a name means.

    Args:
        field: The field of the event.
        unit: The unit as printed.
        most: The greatest possible value, in base units.
        whole: Whether it is a count.
    """

    field: str
    unit: str
    most: float
    whole: bool = False


def read_field(kind: Kind, text: str) -> float | int | None:
    """
    Return a field's value in base units; `None` for a share of nothing, printed as `nan`.

    Raises:
        MalformedError: It is not a number with this unit.
        OutOfRangeError: It is out of range.
    """
    field, unit, most, whole = kind
    digits = text.removesuffix(unit)
    if not is_plain(digits):
        raise MalformedError
    if unit == "%":
        # As a decimal exponent 12.3 % is 0.123; a division makes it 0.12300000000000001.
        digits = f"{digits}e-2" if digits != text else ""
    try:
        value = float(digits)
    except ValueError:
        if digits == "nane-2":
            return None
        raise MalformedError from None
    if not 0 <= value <= most:
        if isnan(value) and not whole:
            return None
        raise OutOfRangeError(field)
    if whole:
        if not value.is_integer():
            raise OutOfRangeError(field)
        return int(value)
    return value


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

Value = float | int | tuple[float | None, ...] | None


def parse_stats(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by one of the statistics call sites.

    Returns:
        The statistics, or a `Notice` if the message looks like statistics and is malformed or has a value out of
        range, or nothing if it is something else.
    """
    found = _ENGINE.match(message)
    body = message[found.end() :] if found else message
    if not body.startswith(_STARTS):
        return _parse_v0_hit_rates(message)
    return _reported(lambda: _parse_fields(_engine(found), body))


def _reported(read: Callable[[], Event | None]) -> tuple[Event, ...]:
    """Return what `read` finds in a line of statistics, or a `Notice` on one out of range or not understood."""
    try:
        event = read()
    except OutOfRangeError as error:
        return (Notice("value_out_of_range", str(error)), Notice("stats_unparsed"))
    except MalformedError:
        event = None
    return (Notice("stats_unparsed") if event is None else event,)


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
    ratios = [number(text) for text in found.groups()]
    # -1 means that prefix caching is off for that device.
    gpu, cpu = (None if ratio is None or not 0 <= ratio <= 100 else round(ratio / 100, 6) for ratio in ratios)
    return (EngineStats(prefix_cache_hit_ratio=gpu, cpu_prefix_cache_hit_ratio=cpu),)


V1_START = "SpecDecoding metrics: "
V0_START = "Speculative metrics: "
DIFFUSION_START = "DiffusionDecoding metrics: "
SPEC_STARTS = (V1_START, V0_START, DIFFUSION_START)

_V1_FIELDS: dict[str, Kind] = {
    "Mean acceptance length": Kind("mean_acceptance_length", "", MAX_DRAFT_TOKENS + 1),
    "Accepted throughput": Kind("accepted_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Drafted throughput": Kind("drafted_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Accepted": Kind("accepted_tokens", " tokens", MAX_TOKENS, whole=True),
    "Drafted": Kind("drafted_tokens", " tokens", MAX_TOKENS, whole=True),
    "Draft acceptance rate": Kind("acceptance_ratio", "%", 1),
    "Avg Draft acceptance rate": Kind("acceptance_ratio", "%", 1),
}
_V0_FIELDS: dict[str, Kind] = {
    "Draft acceptance rate": Kind("acceptance_ratio", "", 1),
    "System efficiency": Kind("system_efficiency", "", 1),
    "Number of speculative tokens": Kind("num_speculative_tokens", "", MAX_DRAFT_TOKENS, whole=True),
    "Number of accepted tokens": Kind("accepted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of draft tokens": Kind("drafted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of draft tokens tokens": Kind("drafted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of emitted tokens": Kind("emitted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of emitted tokens tokens": Kind("emitted_tokens_cumulative", "", MAX_TOKENS, whole=True),
}
_DIFFUSION_FIELDS: dict[str, Kind] = {
    "Committed token throughput": Kind("committed_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Mean tokens committed per denoising step": Kind("tokens_per_denoising_step", "", MAX_TOKENS),
    "Committed": Kind("committed_tokens", " tokens", MAX_TOKENS, whole=True),
    "Denoising steps": Kind("denoising_steps", "", MAX_TOKENS, whole=True),
    "Canvas positions evaluated": Kind("canvas_positions", "", MAX_TOKENS, whole=True),
}
_RATIO_OF_COUNTS = "Mean denoising steps per canvas"
"""Printed as the positions by the tokens, which are there."""
_AMBIGUOUS = "Draft acceptance rate: "
_POSITIONS = "Per-position acceptance rate"


def parse_spec_decoding(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by `metrics.py` or `log_stats.rs`.

    Returns:
        The event without its engine (the line names none: it belongs to the statistics
        line before it), a `Notice` for a line out of range or not understood, or nothing.
    """
    if message.startswith(V1_START):
        return _reported(lambda: _drafts(message[len(V1_START) :], _V1_FIELDS))
    if message.startswith(V0_START):
        return _reported(lambda: _drafts(message[len(V0_START) :], _V0_FIELDS))
    if message.startswith(DIFFUSION_START):
        return _reported(lambda: _diffusion(message[len(DIFFUSION_START) :]))
    return ()


def _drafts(body: str, table: Mapping[str, Kind]) -> SpecDecoding | None:
    """Return what a line says; without an acceptance ratio it is malformed."""
    values, unknown = _fields(body.rstrip("."), table)
    if "acceptance_ratio" not in values:
        return None
    event = SpecDecoding(unknown_fields=unknown, **values)  # type: ignore[arg-type]  # By the tables.
    # Only the form of 0.8.5 to 0.10.1 is ambiguous; later ones start with the length, which has the bonus token.
    return _with_bonus_token(event) if body.startswith(_AMBIGUOUS) else event


def _diffusion(body: str) -> DiffusionDecoding | None:
    """Return what a line of a diffusion language model says; without its counts it is malformed."""
    values, unknown = _fields(body, _DIFFUSION_FIELDS)
    if "committed_tokens" not in values or "denoising_steps" not in values:
        return None
    return DiffusionDecoding(unknown_fields=unknown, **values)  # type: ignore[arg-type]  # By the table.


def _fields(body: str, table: Mapping[str, Kind]) -> tuple[dict[str, Value], tuple[str, ...]]:
    values: dict[str, Value] = {}
    unknown = []
    for name, text in named_fields(body):
        kind = table.get(name)
        if kind is not None:
            values[kind.field] = read_field(kind, text)
        elif name == _POSITIONS and table is not _DIFFUSION_FIELDS:
            values["position_acceptance_ratio"] = _read_positions(text)
        elif name != _RATIO_OF_COUNTS or table is not _DIFFUSION_FIELDS:
            unknown.append(unknown_name(name))
    return values, tuple(unknown)


def _read_positions(text: str) -> tuple[float | None, ...]:
    """Read ``0.863, 0.679, nan``, the rates of the positions in a draft."""
    if not is_plain(text):
        raise MalformedError
    try:
        rates = [float(rate) for rate in text.split(", ")]
    except ValueError:
        raise MalformedError from None
    if len(rates) > MAX_DRAFT_TOKENS or not all(0 <= rate <= 1 or isnan(rate) for rate in rates):
        raise OutOfRangeError("position_acceptance_ratio")
    return tuple([None if isnan(rate) else rate for rate in rates])


def _with_bonus_token(event: SpecDecoding) -> SpecDecoding:
    """
    Count the bonus token in the mean acceptance length of 0.8.5, which alone leaves it out.

    The same text means both. The rates by position decide: they add up to the mean number
    of accepted draft tokens, which is one less than the length with the bonus token.
    """
    length, rates = event.mean_acceptance_length, event.position_acceptance_ratio
    if length is None or not rates:
        return event
    drafts = sum(rate for rate in rates if rate is not None)
    if abs(length - drafts) < abs(length - 1 - drafts):
        return event._replace(mean_acceptance_length=round(length + 1, 2))
    return event


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
