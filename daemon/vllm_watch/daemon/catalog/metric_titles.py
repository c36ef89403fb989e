# SPDX-License-Identifier: Apache-2.0
"""What the metrics of a load test are called where a person reads them: each name and unit once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.language import N_, _


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
    "queue_ms": N_("Queue"),
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2el_ms": "E2EL",
}
LATENCY_NAMES: Mapping[LatencyName, str] = {
    "queue_ms": N_("Time in the server's queue"),
    "ttft_ms": N_("Time to first token (TTFT)"),
    "tpot_ms": N_("Time per output token (TPOT)"),
    "itl_ms": N_("Inter-token latency (ITL)"),
    "e2el_ms": N_("End-to-end latency (E2EL)"),
}
STATISTIC_LABELS: Mapping[str, str] = {
    "mean": N_("mean"),
    "median": N_("median"),
    "std": "std",
    "p50": "P50",
    "p90": "P90",
    "p95": "P95",
    "p99": "P99",
}
VIEW_LABELS: Mapping[View, str] = {"client": N_("Client"), "server": N_("Server")}

_TITLES: Mapping[str, MetricTitle] = {
    "successful": MetricTitle(N_("Successful requests"), ""),
    "failed": MetricTitle(N_("Failed requests"), ""),
    "duration_s": MetricTitle(N_("Duration"), "s"),
    "total_input_tokens": MetricTitle(N_("Input tokens"), ""),
    "total_output_tokens": MetricTitle(N_("Output tokens"), ""),
    "request_throughput": MetricTitle(N_("Requests"), "1/s"),
    "output_throughput": MetricTitle(N_("Output"), N_("tokens/s")),
    "total_token_throughput": MetricTitle(N_("Total"), N_("tokens/s")),
    "request_goodput": MetricTitle(N_("Goodput"), "1/s"),
    "mean_watts": MetricTitle(N_("GPU power, mean"), "W"),
    "energy_joules": MetricTitle(N_("GPU energy"), "J"),
    "joules_per_output_token": MetricTitle(N_("Energy per output token"), "J"),
    "tokens_per_joule": MetricTitle(N_("Computed tokens per joule"), ""),
    "cost_per_million_input_tokens": MetricTitle(N_("Cost by input"), N_("per M tokens")),
    "cost_per_million_output_tokens": MetricTitle(N_("Cost by output"), N_("per M tokens")),
    "cost_per_million_tokens": MetricTitle(N_("Cost by all"), N_("per M tokens")),
    "goodput.ratio": MetricTitle(N_("Within objective"), "%"),
    "goodput.request_goodput": MetricTitle(N_("Goodput"), "1/s"),
    "prompt_tokens_per_second": MetricTitle(N_("Prompts"), N_("tokens/s")),
    "generation_tokens_per_second": MetricTitle(N_("Output"), N_("tokens/s")),
    "requests_per_second": MetricTitle(N_("Requests served"), "1/s"),
    "offered_requests_per_second": MetricTitle(N_("Requests offered"), "1/s"),
    "running": MetricTitle(N_("Running"), N_("requests")),
    "max_running": MetricTitle(N_("Running, highest"), N_("requests")),
    "waiting": MetricTitle(N_("Waiting"), N_("requests")),
    "max_waiting": MetricTitle(N_("Waiting, highest"), N_("requests")),
    "kv_cache_usage_ratio": MetricTitle(N_("KV cache"), "%"),
    "max_kv_cache_usage_ratio": MetricTitle(N_("KV cache, highest"), "%"),
    "preemptions": MetricTitle(N_("Preemptions"), ""),
    "prefix_cache_hit_ratio": MetricTitle(N_("Prefix cache hits"), "%"),
    "mm_cache_hit_ratio": MetricTitle(N_("Multimodal cache hits"), "%"),
    "acceptance_length": MetricTitle(N_("Acceptance length"), N_("tokens")),
    "memory_gib": MetricTitle(N_("Memory"), "GiB"),
    "drafted_tokens": MetricTitle(N_("Drafted tokens"), ""),
    "wasted_draft_tokens": MetricTitle(N_("Wasted draft tokens"), ""),
}


def metric_title(name: str) -> MetricTitle:
    """Return what a metric is called: ``ttft_ms.p99`` is "TTFT P99" in ms. A name without an entry is its own label."""
    if name in _TITLES:
        return MetricTitle(*map(_, _TITLES[name]))
    base, _dot, statistic = name.partition(".")
    for latency, label in LATENCY_LABELS.items():
        if base == latency:
            return MetricTitle(f"{_(label)} {_(STATISTIC_LABELS.get(statistic, statistic))}".strip(), "ms")
    return MetricTitle(name.replace("_", " "), "")


def titled(name: str) -> str:
    """Return a metric's name with its unit: ``Output (tokens/s)``."""
    label, unit = metric_title(name)
    return f"{label} ({unit})" if unit else label
