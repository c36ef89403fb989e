# SPDX-License-Identifier: Apache-2.0
"""What can happen to a server, in words: the events of the snapshot, of `top` and of reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


EventKind = Literal["start", "state", "failure", "file", "flags", "xid", "gpu"]
"""
What happened: the server started, an engine's state changed, the log reports a failure, something happened to the log's
file, a start had other flags, the kernel reports an error of a GPU, or a GPU's state changed.
"""

FileChange = Literal["rotation", "truncation", "lost"]

STARTED = "the server starts"

FAILURES: Mapping[str, str] = {
    "cuda_illegal_access": "a CUDA kernel accessed memory that is not its own",
    "cuda_launch_failure": "a CUDA kernel failed",
    "engine_dead": "the engine died",
    "execution_timeout": "a model execution timed out",
    "gpu_ecc": "an uncorrectable memory error of a GPU",
    "gpu_lost": "a GPU is lost",
    "gpu_memory_too_small": "the GPU's memory is too small",
    "gpu_nvlink": "an NVLink error",
    "kernel_compiled": "a kernel was compiled while requests waited for it",
    "kv_cache_too_small": "the KV cache is too small",
    "nccl_error": "NCCL error",
    "out_of_memory": "out of memory",
    "request_error": "a request failed inside the engine",
    "shm_timeout": "its processes waited 60 s for each other",
    "stack_dump_failed": "its watchdog could not write what its threads do",
    "stack_dumped": "its watchdog wrote what its threads do",
    "worker_died": "a worker died",
}
"""The failures that a log reports, and what explains them, by kind."""

FAILURE_RUNBOOKS: Mapping[str, str] = dict.fromkeys(
    (
        "cuda_illegal_access",
        "cuda_launch_failure",
        "engine_dead",
        "execution_timeout",
        "gpu_ecc",
        "gpu_lost",
        "gpu_memory_too_small",
        "gpu_nvlink",
        "kv_cache_too_small",
        "nccl_error",
        "out_of_memory",
        "worker_died",
    ),
    "VllmEngineCrashed",
)
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
