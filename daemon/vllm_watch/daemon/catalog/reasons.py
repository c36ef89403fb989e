# SPDX-License-Identifier: Apache-2.0
"""
Every reason of `source_info`, and why an engine is stalled: what each means, in words that an operator can act on.

A source's reasons are a type, so that mypy finds one that is not listed; what each means is in `reasons.json`, in the
same order. Everything else derives from these tables: the label values, what `check`, the status page and the log
report, the English texts of the dashboards and their colours, and the results of probes that no alert considers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec


SourceName = Literal["log", "metrics", "probe", "gpu"]

SOURCE_NAMES: Mapping[SourceName, str] = {"log": "log", "metrics": "/metrics", "probe": "probe", "gpu": "GPUs"}
"""What people call the sources."""

ReasonKind = Literal["ok", "quiet", "misconfigured", "internal", "failure"]
"""
What a reason is about.

quiet: the server has nothing to report, and nothing needs repair. misconfigured: this daemon or the server is
configured wrongly, and an operator has to correct it. internal: something fails inside this daemon. failure: all
others.
"""


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a reason means: `text` in a sentence or two, with what to do; `short` for a table's cell."""

    kind: ReasonKind
    short: str
    text: str


LogReason = Literal[
    "ok", "starting", "ended", "idle", "sleeping", "stalled", "silent", "no_statistics_yet", "not_vllm",
    "stats_disabled", "api_servers_more_than_one", "not_found", "permission_denied", "not_regular", "symlink_loop",
    "read_error", "hangs", "internal_error", "no_entries", "journalctl_missing", "journal_failed",
]  # fmt: skip

MetricsReason = Literal[
    "ok", "starting", "refused", "timeout", "unreachable", "name_not_resolved", "tls_error", "unauthorized",
    "forbidden", "not_found", "http_error", "redirect", "not_metrics", "stats_disabled", "no_requests_yet", "ray",
    "ray_idle", "ray_engines_mixed", "router", "llm_d", "dynamo", "litellm", "sglang", "text_generation_inference",
    "tensorrt_llm", "triton", "llama_cpp", "ollama", "lmcache", "other_program", "several_servers", "too_many_samples",
    "too_large", "incomplete", "encoded", "internal_error", "token_unreadable",
]  # fmt: skip

ProbeReason = Literal[
    "ok", "starting", "sleeping", "overdue", "refused", "timeout", "unauthorized", "forbidden", "not_found",
    "bad_request", "overloaded", "http_error", "failed", "redirect", "not_a_stream", "too_large", "incomplete",
    "encoded", "tls_error", "name_not_resolved", "unreachable", "key_unreadable", "model_unknown",
]  # fmt: skip

GpuReason = Literal[
    "ok", "starting", "no_module", "no_library", "no_driver", "driver_mismatch", "no_permission", "no_gpus",
    "unassigned", "call_hangs", "access_lost", "reader_ended", "internal_error",
]  # fmt: skip

KernelLogReason = Literal[
    "ok", "starting", "no_entries", "journalctl_missing", "journal_failed", "permission_denied", "internal_error",
]  # fmt: skip

KubernetesReason = Literal[
    "ok", "starting", "extra_missing", "no_credentials", "unauthorized", "forbidden", "bad_request", "not_found",
    "too_many", "expired", "api_error", "refused", "timeout", "unreachable", "name_not_resolved", "tls_error",
    "no_kubernetes", "internal_error",
]  # fmt: skip


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of `reasons.json`: why each source is or is not read, and why pods are or are not listed."""

    log: dict[LogReason, Reason]
    metrics: dict[MetricsReason, Reason]
    probe: dict[ProbeReason, Reason]
    gpu: dict[GpuReason, Reason]
    kernel_log: dict[KernelLogReason, Reason]
    kubernetes: dict[KubernetesReason, Reason]


_TABLES = msgspec.json.decode(Path(__file__).with_name("reasons.json").read_bytes(), type=_Tables)
LOG: Mapping[LogReason, Reason] = _TABLES.log
METRICS: Mapping[MetricsReason, Reason] = _TABLES.metrics
PROBE: Mapping[ProbeReason, Reason] = _TABLES.probe
GPU: Mapping[GpuReason, Reason] = _TABLES.gpu
KERNEL_LOG: Mapping[KernelLogReason, Reason] = _TABLES.kernel_log
KUBERNETES: Mapping[KubernetesReason, Reason] = _TABLES.kubernetes
BY_SOURCE: Mapping[SourceName, Mapping[str, Reason]] = {
    "log": dict(LOG.items()),
    "metrics": dict(METRICS.items()),
    "probe": dict(PROBE.items()),
    "gpu": dict(GPU.items()),
}
"""All reasons, by source."""

NOT_JUDGED: tuple[ProbeReason, ...] = tuple(
    code for code, reason in PROBE.items() if reason.kind in {"quiet", "misconfigured", "internal"}
)
"""A probe's reasons that do not show what users get: it was not made, or its own configuration is wrong."""

GPU_FAILURES: tuple[GpuReason, ...] = tuple(code for code, reason in GPU.items() if reason.kind == "failure")
"""Reasons for which GPUs that could be read are not; the others are of machines and installations without them."""

StallReason = Literal[
    "batch_stands_still", "queue_stands_still", "nothing_computed", "no_first_token", "log_fell_silent",
]  # fmt: skip
STALL_REASONS: tuple[StallReason, ...] = get_args(StallReason)

STALLED: Mapping[StallReason, str] = {
    "batch_stands_still": "Requests are running, and there is no token, no engine step, no finished request and no "
    "filled KV block.",
    "queue_stands_still": "Nothing is running, and requests that wait for capacity are not scheduled.",
    "nothing_computed": "Requests come and go, and nothing is computed for any of them.",
    "no_first_token": "No request has received a token since the server started, for longer than compilation "
    "should take.",
    "log_fell_silent": "The log's last statistics line had requests and no tokens, and nothing followed it.",
}
"""Why an engine is called stalled."""

CheckpointReason = Literal[
    "ok", "absent", "unreadable", "too_large", "empty", "not_json", "wrong_shape", "wrong_version", "impossible_values",
    "from_the_future",
]  # fmt: skip
"""Whether the checkpoint was used at the start, or why not."""


def needs_attention(source: str, reason: str, *, is_up: bool, is_stopped: bool = False) -> bool:
    """
    Whether somebody has to look at a source.

    A driver need not be there: a machine may have other GPUs or none, or a server may use none. Where a server
    was stopped in order nothing listens.
    """
    if is_stopped and reason == "refused":
        return False
    known = BY_SOURCE["gpu"].get(reason) if source == "gpu" else None
    return not is_up and (known is None or known.kind != "quiet")


def explain(source: SourceName, reason: str, *, is_stopped: bool = False) -> str:
    """Return what a reason means, as a sentence or two; a server `is_stopped` that was stopped in order."""
    if is_stopped and reason == "refused":
        return "Nothing listens at this address: the server was stopped in order."
    return BY_SOURCE[source][reason].text


Standing = Literal["ok", "not ok", "FAILED", "not read"]
"""
How a source is, in a word.

not ok: it is read, and what it says is a failure. not read: it cannot be read, and need not be.
"""

WRONG: frozenset[Standing] = frozenset({"not ok", "FAILED"})


def standing(source: str, reason: str, *, is_up: bool, is_stopped: bool = False) -> Standing:
    """Return how a source is, by its reason."""
    if needs_attention(source, reason, is_up=is_up, is_stopped=is_stopped):
        return "FAILED"
    if not is_up:
        return "not read"
    of_failures = {code for name, reasons in BY_SOURCE.items() if name == source for code in _failures(reasons)}
    return "not ok" if reason in of_failures else "ok"


def _failures(reasons: Mapping[str, Reason]) -> Iterator[str]:
    return (code for code, reason in reasons.items() if reason.kind == "failure")
