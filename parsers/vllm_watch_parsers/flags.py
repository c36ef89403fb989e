# SPDX-License-Identifier: Apache-2.0
"""
The flags of a server that matter to how fast it is, from what it prints of its arguments and its configuration.

They are named as on the command line without the leading dashes: ``max-num-seqs``,
``speculative-config.num_speculative_tokens``. This is a closed list, for the arguments hold secrets, too.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Mapping

from vllm_watch_parsers.python_repr import top_level_items, unquote


Flags = tuple[tuple[str, str], ...]
"""Flags and their values as text, by name."""

_PLAIN = (
    "all2all_backend",
    "api_server_count",
    "async_scheduling",
    "attention_backend",
    "block_size",
    "cpu_offload_gb",
    "data_parallel_size",
    "decode_context_parallel_size",
    "device",
    "disable_custom_all_reduce",
    "disable_sliding_window",
    "distributed_executor_backend",
    "dtype",
    "enable_chunked_prefill",
    "enable_eplb",
    "enable_expert_parallel",
    "enable_lora",
    "enable_prefix_caching",
    "enforce_eager",
    "generation_config",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "long_prefill_token_threshold",
    "max_long_partial_prefills",
    "max_lora_rank",
    "max_loras",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_partial_prefills",
    "max_num_seqs",
    "num_gpu_blocks_override",
    "num_scheduler_steps",
    "num_speculative_tokens",
    "optimization_level",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "quantization",
    "runner",
    "scheduling_policy",
    "speculative_model",
    "stream_interval",
    "swap_space",
    "tensor_parallel_size",
)
_NESTED = {
    "compilation_config": ("cudagraph_mode", "level", "mode"),
    "speculative_config": ("method", "model", "num_speculative_tokens"),
}
_RENAMED = {
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "device_config": "device",
    "max_seq_len": "max_model_len",
    "num_spec_tokens": "num_speculative_tokens",
    "cache_dtype": "kv_cache_dtype",
}
"""What the engine's configuration and /metrics call some of them."""

PARALLEL_SIZES = ("data-parallel-size", "api-server-count")
"""Flags that an engine's own configuration has wrong: an engine of a dense model knows of no other."""

CACHE_LABELS = frozenset({"block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization"})
"""Labels of `vllm:cache_config_info` that are flags."""

_DRAFT_MODEL = "speculative-config.model"
_VALUE = re.compile(r"[A-Za-z0-9/\[][A-Za-z0-9._/:@+\[\]-]{0,120}\Z", re.ASCII)
_ENUM = re.compile(r"<\w{1,40}\.(\w{1,40}): [^<>]{1,40}>\Z", re.ASCII)
_UNSET = frozenset({"None", "auto"})


def printed_flags(text: str) -> Flags:
    """Return the flags in ``{'max_num_seqs': 24, …}``, ``Namespace(…)`` or ``dtype=…, max_seq_len=…``."""
    found: dict[str, str] = {}
    main = ""
    for key, value in top_level_items(text):
        main = _value(value) or "" if key == "model" else main
        name = _RENAMED.get(key, key)
        if name in _NESTED:
            found.update(_nested(name, value))
        else:
            found.update(_known([(name, value)], _PLAIN))
    if found.get(_DRAFT_MODEL) == main:  # The main model drafts for itself.
        del found[_DRAFT_MODEL]
    return tuple(sorted(found.items()))


def cache_flags(labels: Mapping[str, str]) -> Flags:
    """Return the flags among the labels of `vllm:cache_config_info`."""
    items = ((_RENAMED.get(name, name), value) for name, value in labels.items() if name in CACHE_LABELS)
    return tuple(sorted(_known(items, _PLAIN)))


def flag_name(argument: str) -> str:
    """Return the name of a flag on the command line, without the leading dashes."""
    return argument.replace("_", "-")


def _nested(outer: str, text: str) -> Iterator[tuple[str, str]]:
    body = re.sub(r"^\w{1,60}\(", "", text) if not text.startswith("{") else text
    items = ((_RENAMED.get(key, key), value) for key, value in top_level_items(body))
    for name, value in _known(items, _NESTED[outer]):
        yield f"{flag_name(outer)}.{name.replace('-', '_')}", value


def _known(items: Iterable[tuple[str, str]], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    wanted = frozenset(names)
    for name, printed in items:
        value = _value(printed) if name in wanted else None
        if value is not None:
            yield flag_name(name), value


def _value(printed: str) -> str | None:
    """Return a value as on a command line; `None` if it is not set, or no plain value."""
    text = (unquote(printed) or printed).strip().removeprefix("torch.")
    enum = _ENUM.match(text)
    if enum is not None:
        text = enum[1]
    return text if text not in _UNSET and _VALUE.match(text) else None
