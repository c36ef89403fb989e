# SPDX-License-Identifier: Apache-2.0
"""What can happen to a server, in words: the events of the snapshot, of `top` and of reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vllm_watch.daemon.catalog.language import N_
from vllm_watch.daemon.catalog.states import DownCause
from vllm_watch_parsers.events import FailureKind


EventKind = Literal["start", "state", "failure", "file", "flags", "xid", "gpu"]
"""
What happened: the server started, an engine's state changed, the log reports a failure, something happened to the log's
file, a start had other flags, the kernel reports an error of a GPU, or a GPU's state changed.
"""

FileChange = Literal["rotation", "truncation", "lost"]

STARTED = N_("the server starts")

FAILURES: Mapping[str, str] = {
    "cuda_illegal_access": N_("a CUDA kernel accessed memory that is not its own"),
    "cuda_launch_failure": N_("a CUDA kernel failed"),
    "engine_dead": N_("the engine died"),
    "execution_timeout": N_("a model execution timed out"),
    "gpu_ecc": N_("an uncorrectable memory error of a GPU"),
    "gpu_lost": N_("a GPU is lost"),
    "gpu_memory_too_small": N_("the GPU's memory is too small"),
    "gpu_nvlink": N_("an NVLink error"),
    "kernel_compiled": N_("a kernel was compiled while requests waited for it"),
    "kv_cache_too_small": N_("the KV cache is too small"),
    "nccl_error": N_("NCCL error"),
    "out_of_memory": N_("out of memory"),
    "request_error": N_("a request failed inside the engine"),
    "shm_timeout": N_("its processes waited 60 s for each other"),
    "stack_dump_failed": N_("its watchdog could not write what its threads do"),
    "stack_dumped": N_("its watchdog wrote what its threads do"),
    "worker_died": N_("a worker died"),
}
"""The failures that a log reports, and what explains them, by kind."""

CRASHES: Mapping[DownCause, frozenset[FailureKind]] = {
    "out_of_memory": frozenset({"out_of_memory", "gpu_memory_too_small", "kv_cache_too_small"}),
    "worker_failed": frozenset(
        {
            "worker_died", "nccl_error", "execution_timeout", "gpu_ecc", "gpu_nvlink", "gpu_lost",
            "cuda_illegal_access", "cuda_launch_failure",
        }
    ),
    "engine_died": frozenset({"engine_dead"}),
}  # fmt: skip
"""The failures that a crash is put down to: the first of these causes that the log reports."""

FAILURE_RUNBOOKS: Mapping[str, str] = {kind: "VllmEngineCrashed" for kinds in CRASHES.values() for kind in kinds}
"""The runbook that says what to do about a failure: that of the alert on it."""

FILE_CHANGES: Mapping[FileChange, str] = {
    "rotation": "the log was rotated",
    "truncation": "the log was truncated",
    "lost": "a rotated file of the log was gone before it was read to its end",
}


def state_text(before: str, state: str) -> str:
    """Return a change of state in words."""
    return f"{state} (was {before})"


def flags_text(changes: str) -> str:
    """Return a start with other flags in words."""
    return f"started with other flags: {changes}"
