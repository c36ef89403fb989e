# SPDX-License-Identifier: Apache-2.0
"""What the metrics of a load test are called where a person reads them: each name and unit once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


View = Literal["client", "server"]
"""Who measured: the benchmark client, or the server's own log and /metrics."""

LatencyName = Literal["queue_ms", "ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"]
LATENCIES: tuple[LatencyName, ...] = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
"""Those that clients and servers measure; the time in the server's queue is a part of its TTFT."""


class MetricTitle(NamedTuple):
    """A metric's name for people, and its unit, empty if it has none. Ratios are shown as per cent."""

    label: str
    unit: str


LATENCY_LABELS: Mapping[LatencyName, str] = {
    "queue_ms": "Queue",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2el_ms": "E2EL",
}
LATENCY_NAMES: Mapping[LatencyName, str] = {
    "queue_ms": "Time in the server's queue",
    "ttft_ms": "Time to first token (TTFT)",
    "tpot_ms": "Time per output token (TPOT)",
    "itl_ms": "Inter-token latency (ITL)",
    "e2el_ms": "End-to-end latency (E2EL)",
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

_TITLES: Mapping[str, MetricTitle] = {
    "successful": MetricTitle("Successful requests", ""),
    "failed": MetricTitle("Failed requests", ""),
    "duration_s": MetricTitle("Duration", "s"),
    "total_input_tokens": MetricTitle("Input tokens", ""),
    "total_output_tokens": MetricTitle("Output tokens", ""),
    "request_throughput": MetricTitle("Requests", "1/s"),
    "output_throughput": MetricTitle("Output", "tokens/s"),
    "total_token_throughput": MetricTitle("Total", "tokens/s"),
    "request_goodput": MetricTitle("Goodput", "1/s"),
    "mean_watts": MetricTitle("GPU power, mean", "W"),
    "energy_joules": MetricTitle("GPU energy", "J"),
    "joules_per_output_token": MetricTitle("Energy per output token", "J"),
    "tokens_per_joule": MetricTitle("Computed tokens per joule", ""),
    "cost_per_million_input_tokens": MetricTitle("Cost by input", "per M tokens"),
    "cost_per_million_output_tokens": MetricTitle("Cost by output", "per M tokens"),
    "cost_per_million_tokens": MetricTitle("Cost by all", "per M tokens"),
    "goodput.ratio": MetricTitle("Within objective", "%"),
    "goodput.request_goodput": MetricTitle("Goodput", "1/s"),
    "prompt_tokens_per_second": MetricTitle("Prompts", "tokens/s"),
    "generation_tokens_per_second": MetricTitle("Output", "tokens/s"),
    "requests_per_second": MetricTitle("Requests served", "1/s"),
    "offered_requests_per_second": MetricTitle("Requests offered", "1/s"),
    "running": MetricTitle("Running", "requests"),
    "max_running": MetricTitle("Running, highest", "requests"),
    "waiting": MetricTitle("Waiting", "requests"),
    "max_waiting": MetricTitle("Waiting, highest", "requests"),
    "kv_cache_usage_ratio": MetricTitle("KV cache", "%"),
    "max_kv_cache_usage_ratio": MetricTitle("KV cache, highest", "%"),
    "preemptions": MetricTitle("Preemptions", ""),
    "prefix_cache_hit_ratio": MetricTitle("Prefix cache hits", "%"),
    "mm_cache_hit_ratio": MetricTitle("Multimodal cache hits", "%"),
    "acceptance_length": MetricTitle("Acceptance length", "tokens"),
    "memory_gib": MetricTitle("Memory", "GiB"),
    "drafted_tokens": MetricTitle("Drafted tokens", ""),
    "wasted_draft_tokens": MetricTitle("Wasted draft tokens", ""),
}


def metric_title(name: str) -> MetricTitle:
    """Return what a metric is called: ``ttft_ms.p99`` is "TTFT P99" in ms. A name without an entry is its own label."""
    if name in _TITLES:
        return _TITLES[name]
    base, _, statistic = name.partition(".")
    for latency, label in LATENCY_LABELS.items():
        if base == latency:
            return MetricTitle(f"{label} {STATISTIC_LABELS.get(statistic, statistic)}".strip(), "ms")
    return MetricTitle(name.replace("_", " "), "")


def titled(name: str) -> str:
    """Return a metric's name with its unit: ``Output (tokens/s)``."""
    label, unit = metric_title(name)
    return f"{label} ({unit})" if unit else label
