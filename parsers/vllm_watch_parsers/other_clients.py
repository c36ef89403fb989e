# SPDX-License-Identifier: Apache-2.0
"""
Results of other clients: GuideLLM, AIPerf, inference-perf.

Names and units are those of the writers' own source:

* GuideLLM 0.8.1, ``benchmarks.json``: ``guidellm/benchmark/schemas/report.py``, ``benchmark.py`` and ``metrics.py``,
  ``guidellm/schemas/base/request_stats.py``. Its inter-token latency of a request is vLLM's TPOT; over all requests it
  weights it by tokens, so that its statistics are not taken where the requests are there.
* AIPerf 0.13.0, ``profile_export_aiperf.json`` and ``profile_export.jsonl``:
  ``aiperf/common/models/export_models.py``, ``record_models.py``. Its inter-token latency is vLLM's TPOT, its
  inter-chunk latency vLLM's ITL.
* inference-perf, ``…_lifecycle_metrics.json``: ``inference_perf/reportgen/base.py`` of kubernetes-sigs/inference-perf
  at 010d12fb, and the results of early releases in its folder ``demos``.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any

from vllm_watch_parsers.benchmark_result import (
    MAX_MILLISECONDS,
    MAX_SECONDS,
    BenchmarkError,
    LatencyStats,
    MetricName,
    ServeResult,
    Settings,
    reason_of,
)
from vllm_watch_parsers.fields import MAX_REQUESTS, MAX_TOKENS, MAX_TOKENS_PER_SECOND
from vllm_watch_parsers.json_fields import JsonFields, decode_objects
from vllm_watch_parsers.request_list import Request, lists_of, result_of


GUIDELLM, AIPERF, INFERENCE_PERF = "GuideLLM", "AIPerf", "inference-perf"

_PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d{1,12})?)")
_RATE_UNLIMITED = frozenset({"throughput", "concurrent", "synchronous"})
_GUIDELLM_PERCENTILES: Mapping[str, float] = {"p001": 0.1, "p999": 99.9}
_CLOCK = 1e15
_SCALES: Mapping[str, float] = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "sec": 1000.0, "s": 1000.0}
"""Milliseconds in each unit of a time."""

_AIPERF: Mapping[str, MetricName] = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2el",
}
_INFERENCE_PERF: Mapping[str, MetricName] = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2el",
}
_GUIDELLM: Mapping[str, tuple[MetricName, float]] = {
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
    "request_latency": ("e2el", 1000.0),
}


def client_of(keys: Iterable[str]) -> str | None:
    """Return who wrote a JSON object, or the first of a list or of lines, with these keys; `None` if unknown."""
    known = set(keys)
    if known >= {"metadata", "benchmarks"} or known >= {"args", "benchmarks"}:
        return GUIDELLM
    if "aiperf_version" in known or known >= {"metadata", "metrics", "error"} or known == {"metadata", "metrics"}:
        return AIPERF
    if known >= {"load_summary", "successes"} or known >= {"start_time", "end_time", "error", "computed_metrics"}:
        return INFERENCE_PERF
    return None


def read_client(text: str, client: str) -> tuple[ServeResult, ...]:
    """
    Read what one of these clients wrote; a report of GuideLLM has a result for each of its loads.

    Raises:
        BenchmarkError: The text is cut off, a value is missing that each release writes, or it cannot be believed.
    """
    values = [(line, value) for line, value in decode_objects(text, MAX_REQUESTS)]
    entries = [(line, entry) for line, value in values for entry in (value if isinstance(value, list) else [value])]
    fields = [JsonFields(_object(entry, line), line) for line, entry in entries]
    first = fields[0]
    if client == GUIDELLM:
        return tuple(_guidellm(_part(first, entry)) for entry in first.items("benchmarks"))
    if client == AIPERF:
        return (_aiperf(first),) if "aiperf_version" in first.values else (_aiperf_records(fields),)
    return (_inference_perf(first),) if "load_summary" in first.values else (_inference_perf_requests(fields),)


def _guidellm(fields: JsonFields) -> ServeResult:
    metrics = _inner(fields, "metrics")
    totals = _inner(metrics, "request_totals")
    completed = totals.required_whole("successful", MAX_REQUESTS)
    listed = _inner(fields, "requests")
    good = [_guidellm_request(_part(fields, entry)) for entry in listed.items("successful")]
    latencies = {
        name: _stats(stats, scale, is_guidellm=True)
        for key, (name, scale) in _GUIDELLM.items()
        if (stats := _inner(_inner(metrics, key), "successful")).values
    }
    # A report may have a sample of its requests, and those of the warm-up, which its statistics leave out.
    requests = lists_of(good) if completed and len(good) == completed else None
    if requests is not None and requests.tpots:
        latencies.pop("tpot", None)
    failed = [_text(_inner(_part(fields, entry), "info"), "error") for entry in listed.items("errored")]
    duration = fields.real("duration", MAX_SECONDS)
    return ServeResult(
        line=fields.line,
        settings=_guidellm_settings(_inner(fields, "config"), totals),
        duration=duration,
        completed=completed,
        failed=totals.whole("errored", MAX_REQUESTS),
        total_input_tokens=_total(metrics, "prompt_token_count"),
        total_output_tokens=_total(metrics, "output_token_count"),
        request_throughput=completed / duration if duration else None,
        output_throughput=_rate(_total(metrics, "output_token_count"), duration),
        total_token_throughput=_rate(_total(metrics, "total_token_count"), duration),
        latencies=latencies if completed else {},
        requests=requests,
        errors=_reasons((text, 1) for text in failed),
        end=fields.real("end_time", _CLOCK),
        client=GUIDELLM,
    )


def _guidellm_request(fields: JsonFields) -> Request:
    first = fields.real("time_to_first_token_ms", MAX_MILLISECONDS)
    each = fields.real("inter_token_latency_ms", MAX_MILLISECONDS)
    return Request(
        start=fields.real("request_start_time", _CLOCK),
        prompt_tokens=fields.whole("prompt_tokens", MAX_TOKENS),
        output_tokens=fields.whole("output_tokens", MAX_TOKENS),
        ttft=None if first is None else first / 1000,
        tpot=None if each is None else each / 1000,
        e2el=fields.real("request_latency", MAX_SECONDS),
    )


def _guidellm_settings(config: JsonFields, totals: JsonFields) -> Settings:
    strategy = _inner(config, "strategy")
    kind = strategy.text("type_")
    streams = 1 if kind == "synchronous" else strategy.whole("streams", MAX_REQUESTS)
    most = strategy.whole("max_concurrency", MAX_REQUESTS) if streams is None else streams
    return Settings(
        model_id=_text(_inner(config, "backend"), "model"),
        num_prompts=totals.whole("total", MAX_REQUESTS),
        request_rate=inf if kind in _RATE_UNLIMITED else strategy.real("rate", MAX_TOKENS_PER_SECOND),
        max_concurrency=most,
    )


def _total(metrics: JsonFields, key: str) -> int | None:
    """Return the sum over the successful requests."""
    value = _inner(_inner(metrics, key), "successful").real("total_sum", MAX_TOKENS)
    return None if value is None else round(value)


def _aiperf(fields: JsonFields) -> ServeResult:
    def value(tag: str, most: float) -> float | None:
        return _inner(fields, tag).real("avg", most)

    def whole(tag: str) -> int | None:
        found = value(tag, MAX_TOKENS)
        return None if found is None else round(found)

    latencies = {
        name: _stats(stats, _scale(stats)) for tag, name in _AIPERF.items() if (stats := _inner(fields, tag)).values
    }
    duration = value("benchmark_duration", MAX_MILLISECONDS)
    seconds = None if duration is None else duration * _scale(_inner(fields, "benchmark_duration")) / 1000
    prompt, output = whole("total_isl"), whole("total_osl")
    completed = whole("request_count") or 0
    failed = [_part(fields, entry) for entry in fields.items("error_summary")]
    return ServeResult(
        line=fields.line,
        settings=Settings(date=_date(_text(fields, "end_time")), model_id=_aiperf_model(fields)),
        duration=seconds,
        completed=completed,
        failed=whole("error_request_count") or 0,
        total_input_tokens=prompt,
        total_output_tokens=output,
        request_throughput=value("request_throughput", MAX_TOKENS_PER_SECOND),
        output_throughput=value("output_token_throughput", MAX_TOKENS_PER_SECOND),
        total_token_throughput=None if prompt is None or output is None else _rate(prompt + output, seconds),
        latencies=latencies if completed else {},
        errors=_reasons(
            (_aiperf_error(_inner(each, "error_details")), each.whole("count", MAX_REQUESTS) or 0) for each in failed
        ),
        client=AIPERF,
    )


def _aiperf_model(fields: JsonFields) -> str | None:
    models = _inner(_inner(fields, "input_config"), "models").items("items")
    names = [_text(_part(fields, each), "name") for each in models]
    return names[0] if len(names) == 1 else None


def _aiperf_records(records: list[JsonFields]) -> ServeResult:
    measured = [
        each for each in records if _inner(each, "metadata").values.get("benchmark_phase") in (None, "profiling")
    ]
    return result_of([_aiperf_request(each) for each in measured], AIPERF)


def _aiperf_request(fields: JsonFields) -> Request:
    metadata, metrics, error = (_inner(fields, key) for key in ("metadata", "metrics", "error"))

    def seconds(tag: str) -> float | None:
        metric = _inner(metrics, tag)
        found = metric.real("value", MAX_MILLISECONDS)
        return None if found is None else found * _scale(metric) / 1000

    start = metadata.real("request_start_ns", 1e22)
    end = metadata.real("request_end_ns", 1e22)
    whole = seconds("request_latency")
    return Request(
        start=None if start is None else start / 1e9,
        prompt_tokens=_inner(metrics, "input_sequence_length").whole("value", MAX_TOKENS),
        output_tokens=_inner(metrics, "output_sequence_length").whole("value", MAX_TOKENS),
        ttft=seconds("time_to_first_token"),
        tpot=seconds("inter_token_latency"),
        e2el=(end - start) / 1e9 if whole is None and end is not None and start is not None else whole,
        error=_aiperf_error(error) if error.values else None,
    )


def _aiperf_error(error: JsonFields) -> str:
    code = error.whole("code", 10_000)
    kind = _text(error, "type") or ""
    return f"HTTP {code}" if code is not None and 400 <= code < 600 else f"{kind}: {_text(error, 'message') or ''}"


def _inference_perf(fields: JsonFields) -> ServeResult:
    successes, failures, load = (_inner(fields, key) for key in ("successes", "failures", "load_summary"))
    rates, latency = _inner(successes, "throughput"), _inner(successes, "latency")
    completed = successes.required_whole("count", MAX_REQUESTS)
    served = rates.real("requests_per_sec", MAX_TOKENS_PER_SECOND)
    # Early releases do not write how long it took: that follows from the rate.
    duration = fields.real("benchmark_time_seconds", MAX_SECONDS) or (completed / served if served else None)
    reasons = _inner(failures, "by_label")
    users = load.whole("concurrency", MAX_REQUESTS)
    return ServeResult(
        line=fields.line,
        settings=Settings(
            num_prompts=load.whole("count", MAX_REQUESTS),
            # The rate of a load of so many users is not asked for.
            request_rate=load.real("requested_rate", MAX_TOKENS_PER_SECOND) if users is None else None,
            max_concurrency=users,
        ),
        duration=duration,
        completed=completed,
        failed=failures.whole("count", MAX_REQUESTS),
        total_input_tokens=_tokens(rates, "input_tokens_per_sec", duration),
        total_output_tokens=_tokens(rates, "output_tokens_per_sec", duration),
        request_throughput=served,
        output_throughput=rates.real("output_tokens_per_sec", MAX_TOKENS_PER_SECOND),
        total_token_throughput=rates.real("total_tokens_per_sec", MAX_TOKENS_PER_SECOND),
        latencies={
            name: _stats(stats, 1000.0)
            for key, name in _INFERENCE_PERF.items()
            if (stats := _inner(latency, key)).values and completed
        },
        errors=_reasons((label, _inner(reasons, label).whole("count", MAX_REQUESTS) or 0) for label in reasons.values),
        client=INFERENCE_PERF,
    )


def _inference_perf_requests(entries: list[JsonFields]) -> ServeResult:
    return result_of([_inference_perf_request(each) for each in entries], INFERENCE_PERF)


def _inference_perf_request(fields: JsonFields) -> Request:
    metrics, error = _inner(fields, "computed_metrics"), _inner(fields, "error")
    start, end = fields.required("start_time", _CLOCK), fields.required("end_time", _CLOCK)
    return Request(
        start=start,
        prompt_tokens=metrics.whole("input_tokens", MAX_TOKENS),
        output_tokens=metrics.whole("output_tokens", MAX_TOKENS),
        ttft=metrics.real("time_to_first_token", MAX_SECONDS),
        tpot=metrics.real("time_per_output_token", MAX_SECONDS),
        e2el=end - start,
        error=f"{_text(error, 'error_type')}: {_text(error, 'error_msg')}" if error.values else None,
    )


def _tokens(rates: JsonFields, key: str, duration: float | None) -> int | None:
    rate = rates.real(key, MAX_TOKENS_PER_SECOND)
    return None if rate is None or duration is None else round(rate * duration)


def _stats(stats: JsonFields, scale: float, *, is_guidellm: bool = False) -> LatencyStats:
    """Return the statistics of a latency in milliseconds, whichever of its client's names they have."""
    shares = _inner(stats, "percentiles") if is_guidellm else stats
    found = {}
    for key in shares.values:
        match = _PERCENTILE.fullmatch(key)
        value = None if match is None else shares.real(key, MAX_MILLISECONDS)
        if match is not None and value is not None:
            share = _GUIDELLM_PERCENTILES.get(key, float(match[1])) if is_guidellm else float(match[1])
            found[share] = value * scale

    def real(*keys: str) -> float | None:
        value = next((real for key in keys if (real := stats.real(key, MAX_MILLISECONDS)) is not None), None)
        return None if value is None else value * scale

    return LatencyStats(real("mean", "avg"), real("median", "p50"), real("std_dev", "std"), found)


def _scale(metric: JsonFields) -> float:
    """Return how many milliseconds a metric's unit has."""
    unit = metric.values.get("unit")
    if not isinstance(unit, str) or unit not in _SCALES:
        metric.reject("unit", f"must be one of {', '.join(_SCALES)}")
    return _SCALES[unit]


def _rate(count: float | None, seconds: float | None) -> float | None:
    return None if count is None or not seconds else count / seconds


def _reasons(failed: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text, count in failed:
        reason = reason_of(text or "")
        found[reason] = found.get(reason, 0) + count
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _date(text: str | None) -> str | None:
    """Return a local time as vLLM's client writes it."""
    try:
        return None if text is None else datetime.fromisoformat(text).strftime("%Y%m%d-%H%M%S")
    except ValueError:
        return None


def _text(fields: JsonFields, key: str) -> str | None:
    """Return a text; of a key that has anything else here, nothing."""
    value = fields.values.get(key)
    return value if isinstance(value, str) else None


def _inner(fields: JsonFields, key: str) -> JsonFields:
    """Return the object of a key, an empty one where there is none."""
    value = fields.values.get(key)
    return JsonFields(value if isinstance(value, Mapping) else {}, fields.line)


def _part(fields: JsonFields, value: object) -> JsonFields:
    return JsonFields(_object(value, fields.line), fields.line)


def _object(value: object, line: int) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BenchmarkError(line, "must be a JSON object")
    return value
