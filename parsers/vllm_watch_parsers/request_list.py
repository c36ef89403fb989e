# SPDX-License-Identifier: Apache-2.0
"""
A list of requests that any client wrote, as lines of JSON, a list of JSON, or CSV with a head.

Each request has some of these columns; a time has its unit in its name, ``_s`` or ``_ms``:

* ``start``: when it was sent, in seconds of any clock, or a time of RFC 3339. Also ``start_time``, ``timestamp``.
* ``prompt_tokens``, ``output_tokens``. Also ``input_tokens``, ``completion_tokens``.
* ``ttft_s``, ``tpot_s``, ``e2el_s``. Also ``time_to_first_token_s``, ``time_per_output_token_s``, ``latency_s``.
* ``success``, ``error``: without either all were successful; with an error alone those without one.

Other columns are ignored. A column counts if all successful requests have it; E2EL follows from TTFT and TPOT.
"""

from __future__ import annotations

import csv
import re

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from vllm_watch_parsers.benchmark_result import MAX_SECONDS, BenchmarkError, Requests, ServeResult, Settings, counted
from vllm_watch_parsers.fields import MAX_REQUESTS, MAX_TOKENS, number
from vllm_watch_parsers.json_fields import decode_objects


CLIENT = "a list of requests"

_NAMES: Mapping[str, str] = {
    "start": "start",
    "start_time": "start",
    "timestamp": "start",
    "prompt_tokens": "prompt_tokens",
    "input_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "completion_tokens": "output_tokens",
    "success": "success",
    "error": "error",
}
_TIMES: Mapping[str, str] = {
    "ttft": "ttft",
    "time_to_first_token": "ttft",
    "tpot": "tpot",
    "time_per_output_token": "tpot",
    "e2el": "e2el",
    "latency": "e2el",
}
_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 0.001}
_TIME = re.compile(r"(\w+?)(?:_(s|ms))?", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "1", "yes", "ok"}), frozenset({"false", "0", "no"})
_CLOCK = 1e15
_EPOCH = 1e9
"""Seconds from here on are since 1970: no clock of a machine that has none counts so far."""


class Request(NamedTuple):
    """One request: times in seconds, `start` of any clock; `error` is what its client wrote of one that failed."""

    start: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None
    error: str | None = None


class _Column(NamedTuple):
    name: str
    scale: float


def is_request_list(keys: Sequence[str] | set[str]) -> bool:
    """Return whether a list whose first request has these keys, or a table with this head, is a list of requests."""
    known = [column for key in keys if (column := _column(key)) is not None]
    named = {column.name for column in known}
    return len(named) >= 2 and bool(named & {"ttft", "tpot", "e2el"})


def csv_head(text: str) -> list[str] | None:
    """Return the names of the columns if a text is such a table."""
    line = text.lstrip("\ufeff").partition("\n")[0][:4096]
    names = [name.strip().strip('"') for name in re.split(r"[,;\t]", line)]
    return names if len(names) > 1 and is_request_list(names) else None


def read_request_list(text: str) -> ServeResult:
    """
    Read lines of JSON, or a list of JSON.

    Raises:
        BenchmarkError: A line is no request, a time has no unit, or a value is not what it has to be.
    """
    rows = []
    for line, value in decode_objects(text, MAX_REQUESTS):
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, dict):
                raise BenchmarkError(line, "a request must be a JSON object")
            rows.append(_request(entry, line))
    return result_of(rows, CLIENT)


def read_csv(text: str) -> ServeResult:
    """
    Read a table with a head, separated by commas, semicolons or tabs.

    Raises:
        BenchmarkError: A time has no unit, or a value is not what it has to be.
    """
    head = text.lstrip("\ufeff").partition("\n")[0]
    separator = max(",;\t", key=head.count)
    table = csv.DictReader(text.lstrip("\ufeff").splitlines(keepends=True), delimiter=separator)
    try:
        rows = [_request({key.strip(): value for key, value in row.items() if key}, table.line_num) for row in table]
    except csv.Error as error:
        raise BenchmarkError(table.line_num, f"no CSV: {error}") from None
    return result_of(rows, CLIENT)


def result_of(rows: Sequence[Request], client: str) -> ServeResult:
    """Return the result of requests; what not all successful ones have is not in it."""
    if not rows:
        raise BenchmarkError(1, f"{client} without a request")
    good = sorted((_whole(row) for row in rows if row.error is None), key=lambda row: row.start or 0.0)
    requests = lists_of(good)
    span = _span(rows)
    duration = None if span is None else span[1] - span[0]
    prompt, output = sum(requests.input_lens), sum(requests.output_lens)
    is_known = bool(good and duration)
    return ServeResult(
        line=1,
        settings=Settings(num_prompts=len(rows)),
        duration=duration,
        completed=len(good),
        failed=len(rows) - len(good),
        total_input_tokens=prompt if requests.input_lens else None,
        total_output_tokens=output if requests.output_lens else None,
        request_throughput=len(good) / duration if is_known and duration else None,
        output_throughput=output / duration if is_known and duration and requests.output_lens else None,
        total_token_throughput=(
            (prompt + output) / duration if duration and requests.output_lens and requests.input_lens else None
        ),
        requests=requests if good else None,
        errors=counted(row.error for row in rows if row.error is not None),
        end=span[1] if span is not None and span[0] >= _EPOCH else None,
        client=client,
    )


def lists_of(good: Sequence[Request]) -> Requests:
    """Return successful requests as lists, each empty if one of them lacks its value."""

    def column(name: str) -> tuple[Any, ...]:
        values = tuple(getattr(row, name) for row in good)
        return () if None in values else values

    # The only token of an answer has no time per token.
    tpots = tuple(row.tpot for row in good)
    has_tpots = any(tpots) and all(row.tpot is not None or row.output_tokens == 1 for row in good)
    return Requests(
        input_lens=column("prompt_tokens"),
        output_lens=column("output_tokens"),
        ttfts=column("ttft"),
        tpots=tpots if has_tpots else (),
        latencies=column("e2el"),
        start_times=column("start"),
    )


def _whole(row: Request) -> Request:
    """Return a request with the time of its whole answer, if that follows from the rest."""
    if row.e2el is not None or row.ttft is None or row.output_tokens is None:
        return row
    if row.output_tokens <= 1:
        return row._replace(e2el=row.ttft)
    return row if row.tpot is None else row._replace(e2el=row.ttft + row.tpot * (row.output_tokens - 1))


def _span(rows: Sequence[Request]) -> tuple[float, float] | None:
    """Return when the first request was sent and the last answer ended."""
    whole = [_whole(row) for row in rows]
    starts = [row.start for row in whole if row.start is not None]
    if len(starts) < len(rows) or any(row.e2el is None for row in whole if row.error is None):
        return None
    return min(starts), max((row.start or 0.0) + (row.e2el or 0.0) for row in whole)


def _column(key: str) -> _Column | None:
    """Return what a key names; a time without a unit has the scale 0."""
    name = key.strip().lower()
    if name in _NAMES:
        return _Column(_NAMES[name], 1.0)
    parts = _TIME.fullmatch(name)
    if parts is None or parts[1] not in _TIMES:
        return None
    return _Column(_TIMES[parts[1]], _UNITS[parts[2]] if parts[2] else 0.0)


def _request(entry: Mapping[str, Any], line: int) -> Request:
    found: dict[str, Any] = {}
    success: bool | None = None
    error: str | None = None
    for key, value in entry.items():
        column = _column(key)
        if column is None or value is None or value == "":
            continue
        if column.name == "success":
            success = _truth(value, key, line)
        elif column.name == "error":
            error = None if value is False else str(value)
        elif column.name == "start":
            found["start"] = _moment(value, key, line)
        elif column.name in ("prompt_tokens", "output_tokens"):
            found[column.name] = int(_number(value, key, line, 0.0, MAX_TOKENS))
        elif not column.scale:
            raise BenchmarkError(line, f"{key[:40]}: has no unit: name the column {key[:40]}_s or {key[:40]}_ms")
        else:
            found[column.name] = _number(value, key, line, 0.0, MAX_SECONDS / column.scale) * column.scale
    if success is None:
        success = error is None
    return Request(**found, error=None if success else error or "")


def _truth(value: object, key: str, line: int) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise BenchmarkError(line, f"{key[:40]}: must be true or false, not {text[:40]!r}")
    return text in _TRUE


def _number(value: object, key: str, line: int, least: float, most: float) -> float:
    real = number(value.strip()) if isinstance(value, str) else value
    if isinstance(real, bool) or not isinstance(real, (int, float)) or not least <= real <= most:
        raise BenchmarkError(line, f"{key[:40]}: must be a number from {least:g} to {most:g}, not {str(value)[:40]!r}")
    return float(real)


def _moment(value: object, key: str, line: int) -> float:
    if isinstance(value, str) and number(value.strip()) is None:
        try:
            return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            raise BenchmarkError(line, f"{key[:40]}: must be seconds or a time, not {value[:40]!r}") from None
    return _number(value, key, line, -_CLOCK, _CLOCK)
