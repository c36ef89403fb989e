# SPDX-License-Identifier: Apache-2.0
"""
The events in vLLM's log.

Events are immutable tuples of numbers and of values from closed lists: they hold no text
of the log except what an operator gave the server at its start (model names, version).
Numbers are in Prometheus base units: tokens, seconds, ratios from 0 to 1. A field that
the line does not have is ``None``; so is one that it prints as ``nan``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from vllm_watch_parsers.kv_transfer import KvKey


DEFAULT_INTERVAL = 10.0
"""How often vLLM prints statistics unless VLLM_LOG_STATS_INTERVAL is set (V0: 5 s)."""


AGGREGATED = "aggregated"
"""The `engine` of a statistics line that sums over all engines of a server."""

LifecyclePhase = Literal["starting", "ready", "shutting_down", "stopped"]

FailureKind = Literal[
    "cuda_illegal_access",
    "cuda_launch_failure",
    "engine_dead",
    "execution_timeout",
    "gpu_ecc",
    "gpu_lost",
    "gpu_memory_too_small",
    "gpu_nvlink",
    "kernel_compiled",
    "kv_cache_too_small",
    "nccl_error",
    "out_of_memory",
    "request_error",
    "shm_timeout",
    "stack_dump_failed",
    "stack_dumped",
    "worker_died",
]

FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

AdapterChangeKind = Literal["loaded", "removed"]

ADAPTER_CHANGES: tuple[AdapterChangeKind, ...] = get_args(AdapterChangeKind)

SleepKind = Literal["paused", "resumed", "asleep", "awake"]

MEMORY_TAGS = frozenset({"weights", "kv_cache"})
"""What a sleeping engine has given up, and can get back piece by piece."""

FlagsPlace = Literal["arguments", "engine"]
"""Where a server prints its flags: the arguments, or the engine's configuration that vLLM made of them."""

NoticeKind = Literal["api_servers_more_than_one", "stats_unparsed", "value_out_of_range"]


class EngineStats(NamedTuple):
    """
    One periodic statistics line of an engine, or V0's separate line of hit rates.

    `engine` is the number the line prints (``"0"``), `AGGREGATED`, or ``None`` where the
    release prints none. `requests_waiting` includes `requests_deferred`. `is_rust` is true of
    the Rust front end's line, which names no engine because it sums over all there are.
    """

    engine: str | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    requests_running: int | None = None
    requests_waiting: int | None = None
    requests_deferred: int | None = None
    requests_swapped: int | None = None
    kv_cache_usage_ratio: float | None = None
    cpu_kv_cache_usage_ratio: float | None = None
    prefix_cache_hit_ratio: float | None = None
    cpu_prefix_cache_hit_ratio: float | None = None
    external_prefix_cache_hit_ratio: float | None = None
    mm_cache_hit_ratio: float | None = None
    preemptions: int | None = None
    kv_fetch: tuple[int, int, int] | None = None
    is_rust: bool | None = None
    unknown_fields: tuple[str, ...] = ()


class SpecDecoding(NamedTuple):
    """
    One periodic line on speculative decoding.

    `mean_acceptance_length` counts the bonus token, in every release. `accepted_tokens`
    and `drafted_tokens` are those of the line's interval; V0 prints totals since its
    start instead, which are in the fields ending in `_cumulative`.
    """

    engine: str | None = None
    mean_acceptance_length: float | None = None
    accepted_tokens_per_second: float | None = None
    drafted_tokens_per_second: float | None = None
    accepted_tokens: int | None = None
    drafted_tokens: int | None = None
    acceptance_ratio: float | None = None
    position_acceptance_ratio: tuple[float | None, ...] | None = None
    num_speculative_tokens: int | None = None
    system_efficiency: float | None = None
    accepted_tokens_cumulative: int | None = None
    drafted_tokens_cumulative: int | None = None
    emitted_tokens_cumulative: int | None = None
    unknown_fields: tuple[str, ...] = ()


class KvTransfers(NamedTuple):
    """
    One periodic line on the KV blocks that a server's connectors have moved.

    `counts` are those of the line's interval, `gauges` its last values, both under the names of `kv_transfer`. Bytes
    and seconds of a pair of servers are means times numbers, as exact as the line's three decimals. `unknown_fields`
    are the names that no connector is known to print.
    """

    engine: str | None = None
    counts: tuple[tuple[KvKey, float], ...] = ()
    gauges: tuple[tuple[KvKey, float], ...] = ()
    unknown_fields: tuple[str, ...] = ()


class StartupFact(NamedTuple):
    """
    What the server reports about itself while it starts. Sizes in tokens or GiB.

    `flags` are those that matter to its speed, by name, each with its value as text, and `flags_of` is where they are
    printed; `None` if the line is about none. `gpu` is the name of the device for which vLLM looks for the
    configuration of a kernel.
    """

    engine: str | None = None
    version: str | None = None
    engine_generation: str | None = None
    model: str | None = None
    served_model_name: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    api_server_count: int | None = None
    num_speculative_tokens: int | None = None
    block_size: int | None = None
    log_stats_disabled: bool | None = None
    model_load_gib: float | None = None
    model_load_seconds: float | None = None
    weights_load_seconds: float | None = None
    kv_cache_memory_gib: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    num_gpu_blocks: int | None = None
    engine_init_seconds: float | None = None
    compile_seconds: float | None = None
    graph_capture_seconds: float | None = None
    flags: tuple[tuple[str, str], ...] = ()
    flags_of: FlagsPlace | None = None
    gpu: str | None = None


class StartupDetail(NamedTuple):
    """
    What a line reports that vLLM prints for some configurations only, and some releases not at all.

    `flags` are what it made of flags, by name, each with its value as text.
    """

    engine: str | None = None
    compile_seconds: float | None = None
    flags: tuple[tuple[str, str], ...] = ()


class Lifecycle(NamedTuple):
    """The server starts, is ready, shuts down or has stopped."""

    phase: LifecyclePhase
    rank: str | None = None
    """The data-parallel rank or API server number of the process that reports it."""


class Failure(NamedTuple):
    """
    A failure, or what explains one. Many lines may report the same; the reader of lines counts each crash once.

    `path` is the file of a `stack_dumped` or `stack_dump_failed`, whose folder the operator has given.
    """

    kind: FailureKind
    engine: str | None = None
    path: str | None = None


class SleepOrPause(NamedTuple):
    """
    The operator has paused the engine or put it to sleep, or ended that.

    `memory` is what an engine that wakes has back, of `MEMORY_TAGS`; empty for all of it.
    """

    kind: SleepKind
    memory: tuple[str, ...] = ()


class AdapterChange(NamedTuple):
    """A LoRA adapter was loaded, or removed; which one is a name that users choose, and is not kept."""

    kind: AdapterChangeKind


class AchievedWork(NamedTuple):
    """
    One periodic line on achieved work: of each device, as vLLM estimates it, by the time since the line before.

    `memory_bytes_per_second` are bytes read and written. `engine` is ``None`` of the Rust front end's line.
    """

    engine: str | None = None
    flops_per_second: float | None = None
    memory_bytes_per_second: float | None = None


class DiffusionDecoding(NamedTuple):
    """
    One periodic line of a diffusion language model, which completes a canvas of tokens step by step.

    The counts are those of the line's interval. A step evaluates all positions of the canvas, and commits some tokens.
    """

    engine: str | None = None
    committed_tokens_per_second: float | None = None
    tokens_per_denoising_step: float | None = None
    committed_tokens: int | None = None
    denoising_steps: int | None = None
    canvas_positions: int | None = None
    unknown_fields: tuple[str, ...] = ()


class AccessRequest(NamedTuple):
    """One line of uvicorn's access log: `path` is without the query string."""

    method: str
    path: str
    status: int
    target: str


class Notice(NamedTuple):
    """Something about the log itself: statistics switched off, a malformed line."""

    kind: NoticeKind
    quantity: str | None = None
    """With `value_out_of_range`: the name of the field that was out of range."""


Event = (
    EngineStats
    | SpecDecoding
    | KvTransfers
    | StartupFact
    | StartupDetail
    | Lifecycle
    | Failure
    | SleepOrPause
    | AdapterChange
    | AchievedWork
    | DiffusionDecoding
    | AccessRequest
    | Notice
)
