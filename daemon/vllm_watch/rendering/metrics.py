# SPDX-License-Identifier: Apache-2.0
"""What the metrics of a load test are called where a person reads them: each name and unit once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.loadtest.model import LatencyName, View


class Metric(NamedTuple):
    """A metric's name for people, and its unit, empty if it has none. Ratios are shown as per cent."""

    label: str
    unit: str


LATENCY_LABELS: Mapping[LatencyName, str] = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2el_ms": "E2EL"}
LATENCY_NAMES: Mapping[LatencyName, str] = {
    "ttft_ms": "Time to first token",
    "tpot_ms": "Time per output token",
    "itl_ms": "Inter-token latency",
    "e2el_ms": "End-to-end latency",
}
STATISTIC_LABELS: Mapping[str, str] = {
    "mean": "mean",
    "median": "median",
    "std": "std",
    "p50": "P50",
    "p90": "P90",
    "p95": "P95",
    "p99": "P99",
}
VIEW_LABELS: Mapping[View, str] = {"client": "Client", "server": "Server"}

_METRICS: Mapping[str, Metric] = {
    "successful": Metric("Successful requests", ""),
    "failed": Metric("Failed requests", ""),
    "duration_s": Metric("Duration", "s"),
    "total_input_tokens": Metric("Input tokens", ""),
    "total_output_tokens": Metric("Output tokens", ""),
    "request_throughput": Metric("Requests", "1/s"),
    "output_throughput": Metric("Output", "tokens/s"),
    "total_token_throughput": Metric("Total", "tokens/s"),
    "request_goodput": Metric("Goodput", "1/s"),
    "goodput.ratio": Metric("Within objective", "%"),
    "goodput.request_goodput": Metric("Goodput", "1/s"),
    "prompt_tokens_per_second": Metric("Prompts", "tokens/s"),
    "generation_tokens_per_second": Metric("Output", "tokens/s"),
    "requests_per_second": Metric("Requests served", "1/s"),
    "offered_requests_per_second": Metric("Requests offered", "1/s"),
    "running": Metric("Running", "requests"),
    "max_running": Metric("Running, highest", "requests"),
    "waiting": Metric("Waiting", "requests"),
    "max_waiting": Metric("Waiting, highest", "requests"),
    "kv_cache_usage_ratio": Metric("KV cache", "%"),
    "max_kv_cache_usage_ratio": Metric("KV cache, highest", "%"),
    "preemptions": Metric("Preemptions", ""),
    "prefix_cache_hit_ratio": Metric("Prefix cache hits", "%"),
    "mm_cache_hit_ratio": Metric("Multimodal cache hits", "%"),
    "acceptance_length": Metric("Acceptance length", "tokens"),
    "memory_gib": Metric("Memory", "GiB"),
    "drafted_tokens": Metric("Drafted tokens", ""),
    "wasted_draft_tokens": Metric("Wasted draft tokens", ""),
}


def metric(name: str) -> Metric:
    """Return what a metric is called: ``ttft_ms.p99`` is "TTFT P99" in ms. A name without an entry is its own label."""
    if name in _METRICS:
        return _METRICS[name]
    base, _, statistic = name.partition(".")
    for latency, label in LATENCY_LABELS.items():
        if base == latency:
            return Metric(f"{label} {STATISTIC_LABELS.get(statistic, statistic)}".strip(), "ms")
    return Metric(name.replace("_", " "), "")


def titled(name: str) -> str:
    """Return a metric's name with its unit: ``Output (tokens/s)``."""
    label, unit = metric(name)
    return f"{label} ({unit})" if unit else label
