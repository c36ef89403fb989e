# SPDX-License-Identifier: Apache-2.0
"""The daemon's metrics about itself: its build, configuration, threads and failures."""

from __future__ import annotations

import platform

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_watch import __version__
from vllm_watch.daemon.catalog.codes import OtlpOutcome, Part
from vllm_watch.daemon.discovery.pods import PodsStatus
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.state.xid_events import KernelLogStatus
from vllm_watch_parsers.kernel_messages import BY_CODE


class ReloadStatus(NamedTuple):
    """How the last reload went; `succeeded_at` is when the last good one was, in seconds since the epoch."""

    is_good: bool
    succeeded_at: float
    failures: int


class CheckpointStatus(NamedTuple):
    """How loading the checkpoint went, as a reason, and how many saves have failed."""

    reason: str
    failures: int


class GpusStatus(NamedTuple):
    """How many GPUs the driver shows, and how many seconds it took to read all of them."""

    visible: int
    read_seconds: float


class OtlpStatus(NamedTuple):
    """
    How the exports over OTLP went.

    Args:
        outcomes: How many ended in which way.
        succeeded_at: When the last one succeeded, in seconds since the epoch.
        seconds: How long the last one took.
    """

    outcomes: Mapping[OtlpOutcome, int]
    succeeded_at: float | None
    seconds: float | None


class SelfStatus(NamedTuple):
    """
    What the daemon knows about itself at the moment `at`; times are in seconds since the epoch.

    `checkpoint` is `None` without a checkpoint file, `hanging_processes` without discovery, `gpus` and `kernel_log`
    unless they are read, `otlp` without an endpoint, `pods` unless they are looked for. `heartbeats` are by thread,
    `collect_errors` by server, `internal_errors` by part.
    """

    at: float
    reload: ReloadStatus
    checkpoint: CheckpointStatus | None
    hanging_processes: int | None
    heartbeats: Mapping[str, float]
    collect_errors: Mapping[str, int]
    internal_errors: Mapping[Part, int]
    gpus: GpusStatus | None = None
    kernel_log: KernelLogStatus | None = None
    otlp: OtlpStatus | None = None
    pods: PodsStatus | None = None


def self_metrics(status: SelfStatus) -> Iterator[PlainSample]:
    """Yield the samples that show a status."""
    at = status.at
    yield PlainSample("build_info", (__version__, platform.python_version()), 1, at)
    yield PlainSample("config_last_reload_successful", (), float(status.reload.is_good), at)
    yield PlainSample("config_last_reload_success_timestamp_seconds", (), status.reload.succeeded_at, at)
    yield PlainSample("config_reload_failures_total", (), status.reload.failures, at)
    if status.checkpoint is not None:
        yield PlainSample("checkpoint_info", (status.checkpoint.reason,), 1, at)
        yield PlainSample("checkpoint_failures_total", (), status.checkpoint.failures, at)
    if status.hanging_processes is not None:
        yield PlainSample("discovery_hanging_processes", (), status.hanging_processes, at)
    if status.gpus is not None:
        yield PlainSample("gpus", (), status.gpus.visible, at)
        yield PlainSample("gpu_read_duration_seconds", (), status.gpus.read_seconds, at)
    for thread, timestamp in status.heartbeats.items():
        yield PlainSample("heartbeat_timestamp_seconds", (thread,), timestamp, at)
    for server, count in status.collect_errors.items():
        yield PlainSample("collect_errors_total", (server,), count, at)
    for part, count in status.internal_errors.items():
        yield PlainSample("internal_errors_total", (part,), count, at)
    if status.otlp is not None:
        yield from _otlp_metrics(status.otlp, at)
    if status.kernel_log is not None:
        yield from _kernel_log_metrics(status.kernel_log, at)
    if status.pods is not None:
        yield from pods_metrics(status.pods, at)


def _otlp_metrics(status: OtlpStatus, at: float) -> Iterator[PlainSample]:
    for outcome, count in status.outcomes.items():
        yield PlainSample("otlp_exports_total", (outcome,), count, at)
    if status.succeeded_at is not None:
        yield PlainSample("otlp_last_success_timestamp_seconds", (), status.succeeded_at, at)
    if status.seconds is not None:
        yield PlainSample("otlp_export_duration_seconds", (), status.seconds, at)


def _kernel_log_metrics(status: KernelLogStatus, at: float) -> Iterator[PlainSample]:
    yield PlainSample("kernel_log_up", (), float(status.is_up), at)
    yield PlainSample("kernel_log_info", (status.place, status.reason), 1, at)
    for total in status.totals:
        labels = (total.gpu, total.pci, total.code, BY_CODE[total.code].group)
        yield PlainSample("gpu_xid_events_total", labels, total.events, at)
        yield PlainSample("gpu_xid_last_timestamp_seconds", labels, total.last_at, at)


def pods_metrics(status: PodsStatus, at: float) -> Iterator[PlainSample]:
    """Yield the samples that show how listing the pods goes, at a moment in seconds since the epoch."""
    yield PlainSample("kubernetes_up", (), float(status.reason == "ok"), at)
    yield PlainSample("kubernetes_info", (status.reason,), 1, at)
    if status.listed_at is not None:
        yield PlainSample("kubernetes_last_list_timestamp_seconds", (), status.listed_at, at)
    for state, count in status.counts.items():
        yield PlainSample("kubernetes_pods", (state,), count, at)
    for server in status.servers:
        yield PlainSample("kubernetes_server_info", (server,), 1, at)
