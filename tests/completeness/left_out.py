# SPDX-License-Identifier: Apache-2.0
"""
What vLLM says and vllm-watch does not show, each with its reason.

Both lists are closed: what is neither shown nor listed fails a test, and so does an entry that is shown, or that no
recorded release has.
"""

from __future__ import annotations


_REPORT = "`vllm-watch report` has it; it is no series"
_PROCESS = "of the Python interpreter of the API server, whose memory and processor time are shown"
_HTTP = "of the HTTP layer: until the headers or the whole stream, no latency of a generation"
_SIZE = "bytes of JSON with all its names; the tokens are shown"
_SAME = "V0's own rate of a counter whose rate is shown"
_DETAIL = "a detail of single transfers; bytes, times and failures are shown"
_HELD = "a part of the tier's use, which is shown"
_RESIDENCY = "of a hundredth of the blocks in the host's memory; those of the device are shown"
_KVCR = "named by the package kvcr, which vLLM's sources do not have"

FIELDS: dict[str, str] = {
    "StartupFact.gpu": _REPORT,
    "Lifecycle.rank": "several ranks' starts are one of the server: the reader of lines tells them apart by it",
    "Failure.engine": "failures are counted for the server: the log of a crash rarely says whose it was first",
    "Failure.path": "a path is no label; the events of the snapshot, the page and `top` have it",
    "SpecDecoding.accepted_tokens_per_second": "the tokens are counted",
    "SpecDecoding.drafted_tokens_per_second": "the tokens are counted",
    "AccessRequest.target": "text of a client's; the path alone is looked up in a closed list",
}
"""Fields of the log's events."""

QUANTITIES: dict[str, str] = {}
"""What is read of a page."""

FAMILIES: dict[str, str] = {
    "*_created": "when a series began, not what it says",
    "http_request_duration_*": _HTTP,
    "http_request_size_bytes": _SIZE,
    "http_response_size_bytes": _SIZE,
    "process_virtual_memory_bytes": "address space, most of which is no memory",
    "python_*": _PROCESS,
    "vllm:avg_generation_throughput_toks_per_s": _SAME,
    "vllm:avg_prompt_throughput_toks_per_s": _SAME,
    "vllm:hisparse_pending_page_transfers": "of pages that go both ways, with no direction",
    "vllm:kv_offload_cpu_allocation_size": _DETAIL,
    "vllm:kv_offload_cpu_cache_*_usage_perc": _HELD,
    "vllm:kv_offload_tiering_backpressure_blocks_dropped_total": "the stores that are dropped are shown",
    "vllm:kv_offload_tiering_backpressure_store_latency_ema": _DETAIL,
    "vllm:kv_offload_tiering_lookup_*_delay_seconds": "a part of the lookups' time, which is shown",
    "vllm:kv_offload_tiering_primary_*_usage_perc": _HELD,
    "vllm:mooncake_num_descriptors": _DETAIL,
    "vllm:mooncake_store_operation_*keys_total": _DETAIL,
    "vllm:nixl_num_descriptors": _DETAIL,
    "vllm:nixl_post_time_seconds": _DETAIL,
    "vllm:umbp_transfer_submitted_total": "those that ended are shown",
}
"""Families of /metrics, by name or pattern."""

CONSTRUCTED: dict[str, str] = {
    "vllm:hisparse_host_block_*_seconds": _RESIDENCY,
    "vllm:kv_offload_config_info": "the labels are those of the configured manager, without end",
    "vllm:kv_offload_tiering_promotion_latency_seconds": _DETAIL,
    "vllm:model_*_time_milliseconds": "V0's time of a step, only while it traces in detail; step times are shown",
    "vllm:tokens_total": "V0's sum of prompt and generated tokens, which are shown",
    "vllm:{DURATION_METRIC}": _KVCR,
    "vllm:{STATE_METRIC}": _KVCR,
    "vllm:{TRANSFER_B*_METRIC}_total": _KVCR,
}
"""Families that vLLM's sources construct and no recorded page has, by name or pattern; `tests/drift` looks for them."""

LINES: dict[str, str] = {
    "%sIteration(%d): *": "one line a step (--enable-logging-iteration-details): statistics have all steps together",
    "Corrupted: %d reqs": "always printed as 0",
    "EC Transfer metrics: %s": "no connector of encoder caches that vLLM brings prints anything",
    "KV Transfer metrics: %s": "the lines of the single connectors are known",
    "{self.settings_header *": "a table of CUDA graphs over several lines (--cudagraph-metrics), for tuning by hand",
    "{} Engines Aggregated": "how many engines a line sums over: the configuration has it",
}
"""Statistics in vLLM's log, by format or pattern: whole lines, or parts of one. `tests/drift` looks for them."""
