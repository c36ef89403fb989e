# SPDX-License-Identifier: Apache-2.0
"""
What ``vllm bench throughput`` and ``vllm bench latency`` write and print, and the scripts before them (0.4 to 0.33).

The first runs all prompts through the engine at once, the second one batch again and again; both without a server.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from typing import Any

from vllm_watch_parsers.benchmark_result import MAX_SECONDS, BenchmarkError, LatencyResult, ThroughputResult
from vllm_watch_parsers.fields import MAX_REQUESTS, MAX_TOKENS, MAX_TOKENS_PER_SECOND, number, whole
from vllm_watch_parsers.json_fields import JsonFields


_THROUGHPUT = frozenset(
    {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"}
)

_NUMBER = r"([0-9.e+-]{1,40})"
_RATES = re.compile(
    rf"Throughput: {_NUMBER} requests/s, {_NUMBER} (?:total )?tokens/s(?:, {_NUMBER} output tokens/s)?\s*\Z"
)
_PROMPT_TOKENS = re.compile(r"Total num prompt tokens:\s+(\d{1,18})\s*\Z", re.ASCII)
_OUTPUT_TOKENS = re.compile(r"Total num output tokens:\s+(\d{1,18})\s*\Z", re.ASCII)
_AVERAGE = re.compile(rf"Avg latency: {_NUMBER} seconds\s*\Z")
_PERCENTILE = re.compile(rf"(\d{{1,2}})% percentile latency: {_NUMBER} seconds\s*\Z", re.ASCII)


_READ = (_RATES, _PROMPT_TOKENS, _OUTPUT_TOKENS, _AVERAGE, _PERCENTILE)


def read_part(line: str) -> str:
    """Return what is read of a line of a terminal, nothing of most."""
    return next((found[0] for form in _READ if (found := form.search(line))), "")


def is_throughput(keys: set[str]) -> bool:
    """Return whether an object with these keys is a result of ``vllm bench throughput``."""
    return len(keys & _THROUGHPUT) >= 3


def is_latency(keys: set[str]) -> bool:
    """Return whether an object with these keys is a result of ``vllm bench latency``."""
    return "avg_latency" in keys and bool(keys & {"latencies", "percentiles"})


def read_throughput(values: Mapping[str, Any], line: int) -> ThroughputResult:
    """
    Read the object of ``--output-json``.

    Raises:
        BenchmarkError: A key is missing, or a value is not what it has to be.
    """
    fields = JsonFields(values, line)
    return ThroughputResult(
        line=line,
        requests_per_second=fields.required("requests_per_second", MAX_TOKENS_PER_SECOND),
        tokens_per_second=fields.required("tokens_per_second", MAX_TOKENS_PER_SECOND),
        model_id=fields.text("model_id"),
        elapsed_time=fields.required("elapsed_time", MAX_SECONDS),
        num_requests=fields.required_whole("num_requests", MAX_REQUESTS),
        total_num_tokens=fields.required_whole("total_num_tokens", MAX_TOKENS),
    )


def read_latency(values: Mapping[str, Any], line: int) -> LatencyResult:
    """
    Read the object of ``--output-json``.

    Raises:
        BenchmarkError: A key is missing, or a value is not what it has to be.
    """
    fields = JsonFields(values, line)
    percentiles = values.get("percentiles") or {}
    if not isinstance(percentiles, dict):
        fields.reject("percentiles", "must be an object")
    by_key = JsonFields({f"percentiles.{key}": value for key, value in percentiles.items()}, line)
    found = {}
    for key in percentiles:
        share = number(key)
        if share is None or not 0 <= share <= 100:
            fields.reject(f"percentiles.{key[:40]}", "must be a key from 0 to 100")
        found[share] = by_key.required(f"percentiles.{key}", MAX_SECONDS)
    return LatencyResult(
        line=line,
        avg_latency=fields.required("avg_latency", MAX_SECONDS),
        percentiles=found,
        model_id=fields.text("model_id"),
        latencies=fields.reals("latencies", MAX_SECONDS),
    )


def is_printed_throughput(line: str) -> bool:
    """Return whether a line of a terminal is the result of ``vllm bench throughput``."""
    return _RATES.search(line) is not None


def is_printed_latency(line: str) -> bool:
    """Return whether a line of a terminal is where the result of ``vllm bench latency`` starts."""
    return _AVERAGE.search(line) is not None


def read_printed_throughput(lines: list[str], start: int) -> ThroughputResult:
    """
    Read the line at `start` and the two lines of totals that follow it from 0.8.0 on.

    Raises:
        BenchmarkError: A number is out of range.
    """
    found = _RATES.search(lines[start])
    rates = [_real(text, start, MAX_TOKENS_PER_SECOND) for text in (found.groups() if found else ()) if text]
    totals = []
    for form, text in zip((_PROMPT_TOKENS, _OUTPUT_TOKENS), lines[start + 1 : start + 3], strict=False):
        total = form.search(text)
        totals.append(None if total is None else whole(total[1]))
    prompt, output = totals if len(totals) == 2 else (None, None)
    return ThroughputResult(
        line=start + 1,
        requests_per_second=rates[0],
        tokens_per_second=rates[1],
        output_tokens_per_second=rates[2] if len(rates) > 2 else None,
        total_prompt_tokens=prompt,
        total_output_tokens=output,
        total_num_tokens=None if prompt is None or output is None else prompt + output,
    )


def read_printed_latency(lines: list[str], start: int) -> LatencyResult:
    """
    Read the line at `start` and those of the percentiles that follow it.

    Raises:
        BenchmarkError: A number is out of range, or no percentile follows.
    """
    found = _AVERAGE.search(lines[start])
    percentiles = {}
    for offset in range(start + 1, len(lines)):
        percentile = _PERCENTILE.search(lines[offset])
        if percentile is None:
            break
        percentiles[float(percentile[1])] = _real(percentile[2], offset, MAX_SECONDS)
    if not percentiles:
        raise BenchmarkError(start + 1, "the result of vllm bench latency is cut off: no percentile follows")
    return LatencyResult(start + 1, _real(found[1] if found else "", start, MAX_SECONDS), percentiles)


def _real(text: str, index: int, most: float) -> float:
    """Return a printed number from 0 to `most`."""
    value = number(text)
    if value is None or not 0 <= value <= most:
        raise BenchmarkError(index + 1, f"must be a number from 0 to {most:g}, not {text!r}")
    return value
