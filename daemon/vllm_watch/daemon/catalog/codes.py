# SPDX-License-Identifier: Apache-2.0
"""
Closed lists of codes, each once: label values and what they mean, names, limits.

Those of sources (`reasons`), of states (`states`, `causes`) and of GPUs (`gpu_texts`) have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args


# Limits of what is kept.

MAX_ENGINES = 256
"""Of so many engines what one log reports is kept; /metrics has a limit of its own in the parsers."""

MAX_HANGING_PROCESSES = 64
"""While discovery waits for this many processes, it reads no other: each holds a thread that cannot be ended."""

STALL_SECONDS = 30.0
"""Seconds for which an engine with work may make no progress, unless the server's `stall_after` says otherwise."""

SERVERS_WITH_HOUR = 12
"""Of up to so many servers `top` and the status page always ask for the last hour; of more it would be megabytes."""

KV_FULL_RATIO = 0.9
"""The share of the KV cache from which on it is shown as full: `kv_full_ratio` of the alerts' thresholds."""

STEP_TIME_SECONDS = 300
"""The time of a decode step is the median of this period."""

# Parts of the daemon, which `internal_errors_total` names.

Part = Literal[
    "main",
    "reload",
    "tail",
    "scrape",
    "probe",
    "discovery",
    "threads",
    "file_events",
    "snapshot",
    "web",
    "web_config",
    "notify",
    "alerts",
    "gpu",
    "kernel_log",
    "otlp",
    "kubernetes",
]
PARTS: tuple[Part, ...] = get_args(Part)

# The daemon's own log.

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

# Severities of alerts.

SEVERITIES = ("critical", "warning", "info")
"""From the worst on."""


def severity_rank(severity: str) -> int:
    """Return the place of a severity in the order from the worst on."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


# What a capacity is based on, and why none is known: the values of the labels `basis` and `reason`.

CapacityBasis = Literal["saturated", "bench", "curve"]

CAPACITY_BASES: Mapping[CapacityBasis, str] = {
    "saturated": "measured while requests waited and the batch or the KV cache was full",
    "bench": "measured by a benchmark, from the configuration",
    "curve": "at least what was seen, estimated from tokens per second by running requests",
}
"""What each basis means; the best is the first."""

CapacityReason = Literal[
    "no_metrics", "limit_unknown", "limits_differ", "too_few_loads", "too_light", "preempted", "lengths_differ",
    "prefix_hits_differ", "acceptance_differs", "no_curve",
]  # fmt: skip

CAPACITY_UNKNOWN: Mapping[CapacityReason, str] = {
    "no_metrics": "Capacity is estimated from /metrics, which is not read, or has no running engine.",
    "limit_unknown": (
        "Neither the log, the command line nor /metrics shows how many requests run at most. Start vLLM with "
        "--max-num-seqs."
    ),
    "limits_differ": (
        "By its size the KV cache holds another number of these requests than by what is used of it: they differ by "
        "more than 30 %."
    ),
    "too_few_loads": (
        "The engine has not yet worked for five minutes without a queue at four levels of running requests, each about "
        "twice the one before."
    ),
    "too_light": "The engine has not yet run 77 % of the requests that fit: what is further away is not promised.",
    "preempted": "Requests were preempted in too much of the time that was seen.",
    "lengths_differ": "The lengths of the requests change too much: fewer than five minutes have alike ones.",
    "prefix_hits_differ": "The share of prompt tokens from the prefix cache changes too much.",
    "acceptance_differs": "The acceptance of drafts changes too much.",
    "no_curve": "Throughput still grows in proportion as more requests run, or varies too much for a curve.",
}
"""Why there is no estimate, in sentences."""

# How an export over OTLP can end.

OtlpOutcome = Literal[
    "ok", "partial", "not_installed", "headers_unreadable", "refused", "timeout", "unreachable", "name_not_resolved",
    "tls_error", "no_http", "unauthorized", "forbidden", "not_found", "redirect", "overloaded", "rejected",
    "server_error", "missed", "internal_error",
]  # fmt: skip

OTLP_OUTCOMES: Mapping[OtlpOutcome, str] = {
    "ok": "the endpoint has accepted everything",
    "partial": "the endpoint has rejected some of the values; what it says of them is in vllm-watch's log",
    "not_installed": "the extra otlp is not installed: in the sources, pip install '.[otlp]'",
    "headers_unreadable": "headers_file cannot be read, or has a line that is no header",
    "refused": "nothing listens at this address",
    "timeout": "no whole answer came in time",
    "unreachable": "the address cannot be reached, or the connection broke",
    "name_not_resolved": "the host name cannot be resolved",
    "tls_error": "TLS failed; check the certificate, its certificate authority and the URL's scheme",
    "no_http": "what answers there is not HTTP; OTLP over gRPC has another port",
    "unauthorized": "the endpoint requires a key, or another one (401); set headers_file",
    "forbidden": "the endpoint denies access (403)",
    "not_found": "there is no such path (404, 405); most receivers want /v1/metrics",
    "redirect": "the endpoint redirects, which is not followed; give the final URL",
    "overloaded": "the endpoint is overloaded (429, 503)",
    "rejected": "the endpoint rejects the request",
    "server_error": "the endpoint answered with an error of its own",
    "missed": "the export before it took longer than the interval",
    "internal_error": "the export failed inside vllm-watch; see its log",
}

# What becomes of a pod.

PodState = Literal["watched", "starting", "pending", "ended", "no_port", "over_limit"]

POD_STATES: Mapping[PodState, str] = {
    "watched": "It is watched.",
    "starting": "It has not been ready yet; it is watched from then on.",
    "pending": "It has no address yet.",
    "ended": "It has finished, failed, or should have been gone by now.",
    "no_port": "No container of it has a port of the configured name.",
    "over_limit": "As many pods as one vllm-watch watches are watched already.",
}

# Flags of a server as labels and as series.

CONFIG_LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dtype": ("dtype",),
        "quantization": ("quantization",),
        "kv_cache_dtype": ("kv-cache-dtype",),
        "prefix_caching": ("enable-prefix-caching",),
        "chunked_prefill": ("enable-chunked-prefill",),
        "enforce_eager": ("enforce-eager",),
        "spec_method": ("speculative-config.method",),
        "attention_backend": ("attention-backend",),
        "compile_mode": ("compilation-config.mode", "compilation-config.level"),
        "cudagraph_mode": ("compilation-config.cudagraph_mode",),
        "expert_parallel": ("enable-expert-parallel",),
        "kv_connector": ("kv-transfer-config.kv_connector",),
        "kv_role": ("kv-transfer-config.kv_role",),
        "device": ("device",),
    }
)
"""By label; of several flags the first that is known is taken."""

FLAGS_OF_FACTS: Mapping[str, str] = MappingProxyType(
    {
        "max_model_len_tokens": "max-model-len",
        "max_running_requests": "max-num-seqs",
        "max_batched_tokens": "max-num-batched-tokens",
        "gpu_memory_utilization_ratio": "gpu-memory-utilization",
        "block_size_tokens": "block-size",
        "tensor_parallel_size": "tensor-parallel-size",
        "pipeline_parallel_size": "pipeline-parallel-size",
        "data_parallel_size": "data-parallel-size",
        "num_speculative_tokens": "speculative-config.num_speculative_tokens",
    }
)
"""By series, without its prefix; the last one is a part of the flag ``speculative-config``."""

TAG = "vllm-watch"
"""On every dashboard, and on every region of a load test."""
