# SPDX-License-Identifier: Apache-2.0
"""
What vLLM says and vllm-watch does not show, each with its reason.

Both lists are closed: what is neither shown nor listed fails a test, and so does an entry that is shown, or that no
recorded release has.
"""

from __future__ import annotations


_V0 = "only the V0 engine has it, which is gone since 0.11"
_SETTING = "what a client asked for, not what the server did"
_REPORT = "`vllm-watch report` has it; it is no series"
_PROCESS = "of the API server's process, which tells nothing of its engine"
_HTTP = "of the HTTP layer: until the headers or the whole stream, no latency of a generation"
_DETAIL = "a detail of single transfers; bytes, times and failures are shown"
_HELD = "a part of the tier's use, which is shown"
_RESIDENCY = "of a hundredth of the blocks, with --kv-cache-metrics"
_OPERATION = "how long an operator's own command took"
_KVCR = "named by the package kvcr, which vLLM's sources do not have"
_ESTIMATE = "a model-based estimate that stays 0 without --enable-mfu-metrics"

FIELDS: dict[str, str] = {
    "EngineStats.requests_swapped": f"{_V0}; it tells V0's lines from others",
    "EngineStats.cpu_kv_cache_usage_ratio": _V0,
    "EngineStats.cpu_prefix_cache_hit_ratio": _V0,
    "SpecDecoding.system_efficiency": _V0,
    "SpecDecoding.emitted_tokens_cumulative": f"{_V0}; accepted and drafted tokens are shown",
    "StartupFact.gpu": _REPORT,
    "StartupFact.api_server_count": "several API servers are told by their own warning and by their lines",
    "StartupFact.weights_load_seconds": "a part of the model's load time",
    "Lifecycle.rank": "several ranks' starts are one of the server: the reader of lines tells them apart by it",
    "Failure.engine": "failures are counted for the server: the log of a crash rarely says whose it was first",
    "AccessRequest.target": "text of a client's; the path alone is looked up in a closed list",
}
"""Fields of the log's events."""

QUANTITIES: dict[str, str] = {
    "gauges.requests_swapped": _V0,
    "histograms.inference_time_seconds": "the sum of prefill and decode time, which are shown",
}
"""What is read of a page."""

FAMILIES: dict[str, str] = {
    "*_created": "when a series began, not what it says",
    "http_request_duration_*": _HTTP,
    "http_request_size_bytes": _HTTP,
    "http_response_size_bytes": _HTTP,
    "process_cpu_seconds_total": _PROCESS,
    "process_max_fds": _PROCESS,
    "process_open_fds": _PROCESS,
    "process_resident_memory_bytes": _PROCESS,
    "process_virtual_memory_bytes": _PROCESS,
    "python_*": _PROCESS,
    "vllm:avg_generation_throughput_toks_per_s": f"{_V0}; the counter's rate is shown",
    "vllm:avg_prompt_throughput_toks_per_s": f"{_V0}; the counter's rate is shown",
    "vllm:cpu_cache_usage_perc": _V0,
    "vllm:cpu_prefix_cache_hit_rate": _V0,
    "vllm:estimated_flops_per_gpu_total": _ESTIMATE,
    "vllm:estimated_read_bytes_per_gpu_total": _ESTIMATE,
    "vllm:estimated_write_bytes_per_gpu_total": _ESTIMATE,
    "vllm:hisparse_pending_page_transfers": "of pages that go both ways, with no direction",
    "vllm:kv_offload_cpu_allocation_size": _DETAIL,
    "vllm:kv_offload_cpu_cache_*_usage_perc": _HELD,
    "vllm:kv_offload_tiering_backpressure_blocks_dropped_total": "the stores that are dropped are shown",
    "vllm:kv_offload_tiering_backpressure_store_latency_ema": _DETAIL,
    "vllm:kv_offload_tiering_lookup_*_delay_seconds": "a part of the lookups' time, which is shown",
    "vllm:kv_offload_tiering_primary_*_usage_perc": _HELD,
    "vllm:lora_requests_info": "its value is a time, and its labels are names of adapters without end",
    "vllm:mooncake_num_descriptors": _DETAIL,
    "vllm:mooncake_store_operation_*keys_total": _DETAIL,
    "vllm:nixl_num_descriptors": _DETAIL,
    "vllm:nixl_post_time_seconds": _DETAIL,
    "vllm:prompt_tokens_cached_by_source_total": "counted when a request is admitted, twice for a preempted one",
    "vllm:request_max_num_generation_tokens": "equals the generated tokens but for requests of several answers",
    "vllm:request_num_preemptions": "the counter of preemptions is shown",
    "vllm:request_params_best_of": _SETTING,
    "vllm:request_params_max_tokens": _SETTING,
    "vllm:request_params_n": _SETTING,
    "vllm:request_prefill_kv_computed_tokens": "prompt tokens computed are shown per second",
    "vllm:spec_decode_efficiency": _V0,
}
"""Families of /metrics, by name or pattern."""

CONSTRUCTED: dict[str, str] = {
    "vllm:corrupted_requests_total": "only where NaN in logits are looked for (VLLM_COMPUTE_NANS_IN_LOGITS)",
    "vllm:diffusion_num_*_total": "of diffusion language models, whose speed is not shown yet",
    "vllm:hisparse_host_block_*_seconds": _RESIDENCY,
    "vllm:kv_block_*_seconds": _RESIDENCY,
    "vllm:kv_offload_config_info": "the labels are those of the configured manager, without end",
    "vllm:kv_offload_tiering_promotion_latency_seconds": _DETAIL,
    "vllm:model_*_time_milliseconds": _V0,
    "vllm:rl_weight_update_operation*": _OPERATION,
    "vllm:sleep_mode_operation*": _OPERATION,
    "vllm:tokens_total": f"{_V0}; prompt and generated tokens are shown",
    "vllm:tool_call_parser_invocations_total": "streamed answers count each delta, others each call",
    "vllm:watermark_requests_total": "how often an answer was watermarked, which is no matter of speed",
    "vllm:websocket_connection*": "of the realtime endpoint's connections, which tell nothing of the engine",
    "vllm:{DURATION_METRIC}": _KVCR,
    "vllm:{STATE_METRIC}": _KVCR,
    "vllm:{TRANSFER_B*_METRIC}_total": _KVCR,
}
"""Families that vLLM's sources construct and no recorded page has, by name or pattern; `tests/drift` looks for them."""

LINES: dict[str, str] = {
    "%sIteration(%d): *": "one line for each step (--enable-logging-iteration-details), for single requests' analysis",
    "%sMFU: *": "a model-based estimate (--enable-mfu-metrics)",
    "Corrupted: %d reqs": "always printed as 0",
    "DiffusionDecoding metrics: *": "of diffusion language models, whose speed is not shown yet",
    "EC Transfer metrics: %s": "no connector of encoder caches that vLLM brings prints anything",
    "KV Transfer metrics: %s": "the lines of the single connectors are known",
    "KV Transfer metrics: {operation}_{key}={}": "UMBP's keys come together only: `tests/parsers` has its line",
    "{self.settings_header *": "a table of CUDA graphs over several lines (--cudagraph-metrics), for tuning by hand",
    "{} Engines Aggregated": "how many engines a line sums over: the configuration has it",
}
"""Statistics in vLLM's log, by format or pattern: whole lines, or parts of one. `tests/drift` looks for them."""
