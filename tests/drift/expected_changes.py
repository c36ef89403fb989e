# SPDX-License-Identifier: Apache-2.0
"""
What changed between the releases of the corpus, written by hand from a study of them; not from what the command finds.

Names are without ``vllm:``, as /metrics shows them. Statistics are the whole texts of each release.
"""

from __future__ import annotations


def _each(prefix: str, names: str) -> str:
    return " ".join(prefix + name for name in names.split())


V1_LATENCIES = (
    "e2e_request_latency_seconds request_decode_time_seconds request_inference_time_seconds "
    "request_prefill_time_seconds request_queue_time_seconds"
)
_V1_FIRST = (
    f"{V1_LATENCIES} generation_tokens_total gpu_cache_usage_perc gpu_prefix_cache_hits_total "
    "gpu_prefix_cache_queries_total iteration_tokens_total num_requests_running num_requests_waiting "
    "prompt_tokens_total request_generation_tokens request_prompt_tokens request_success_total "
    "time_per_output_token_seconds time_to_first_token_seconds"
)
_BUCKETS_OF_085 = f"{V1_LATENCIES} iteration_tokens_total time_per_output_token_seconds time_to_first_token_seconds"
_LAST_OF_V0 = (
    f"{V1_LATENCIES} cache_config_info generation_tokens_total gpu_cache_usage_perc inter_token_latency_seconds "
    "iteration_tokens_total lora_requests_info num_preemptions_total num_requests_running num_requests_waiting "
    "prompt_tokens_total request_generation_tokens request_max_num_generation_tokens request_params_max_tokens "
    "request_params_n request_prompt_tokens request_success_total time_per_output_token_seconds "
    "time_to_first_token_seconds"
)
_OFFLOAD_OF_033 = _each(
    "kv_offload_",
    (
        "allocation_failure_total config_info cpu_allocation_size cpu_cache_read_usage_perc cpu_cache_usage_perc "
        "cpu_cache_write_usage_perc load_bytes_total load_size load_time_total lookup_async_delay_seconds "
        "lookup_sync_delay_seconds store_bytes_total store_size store_time_total stores_skipped_total"
    ),
)
_TIERING_OF_033 = _each(
    "kv_offload_tiering_",
    (
        "active_cascade_jobs active_promotion_jobs backpressure_blocks_dropped_total "
        "backpressure_store_latency_ema backpressure_stores_dropped_total cascade_job_failures_total "
        "chunk_hits_total chunk_queries_total lookup_async_delay_seconds lookup_sync_delay_seconds "
        "primary_read_usage_perc primary_write_usage_perc promotion_allocation_failures_total "
        "promotion_job_failures_total promotion_latency_seconds read_bytes_total read_time_total "
        "write_bytes_total write_time_total"
    ),
)
_CONNECTORS_OF_033 = (
    "hisparse_cache_hits_total hisparse_cache_misses_total hisparse_host_block_idle_before_evict_seconds "
    "hisparse_host_block_lifetime_seconds hisparse_host_block_reuse_gap_seconds hisparse_host_cache_usage_perc "
    "hisparse_host_to_device_bytes_total hisparse_pending_page_transfers mooncake_bytes_transferred "
    "mooncake_num_descriptors mooncake_num_failed_recvs_total mooncake_num_failed_transfers_total "
    "mooncake_num_kv_expired_reqs_total mooncake_store_operation_bytes_total "
    "mooncake_store_operation_failed_keys_total mooncake_store_operation_keys_total "
    "mooncake_store_operation_time_seconds mooncake_store_operation_total mooncake_xfer_time_seconds "
    "nixl_num_notifications_after_expiry_total simple_kv_offload_info simple_kv_offload_load_blocks_total "
    "simple_kv_offload_pending_store_blocks simple_kv_offload_save_outcomes_total simple_kv_offload_used_blocks "
    "umbp_transfer_bytes_total umbp_transfer_completed_total umbp_transfer_failed_total "
    "umbp_transfer_submitted_total"
)
_KVCR = "{DURATION_METRIC} {STATE_METRIC} {TRANSFER_BLOCKS_METRIC}_total {TRANSFER_BYTES_METRIC}_total"
_OTHERS_OF_033 = (
    "admission_rejections_total diffusion_num_canvas_positions_total diffusion_num_committed_tokens_total "
    "diffusion_num_denoising_steps_total num_requests_kv_fetch_by_stage prompt_tokens_cached_by_source_total "
    "request_num_preemptions rl_weight_update_operation_duration_seconds rl_weight_update_operations_in_flight "
    "sleep_mode_operation_duration_seconds sleep_mode_operations_in_flight tool_call_parser_invocations_total "
    "watermark_requests_total"
)

FAMILIES: dict[tuple[str, str], dict[tuple[str, str], str]] = {
    ("0.5.5", "0.6.6"): {
        ("family added", "V0"): (
            "iteration_tokens_total lora_requests_info model_execute_time_milliseconds "
            "model_forward_time_milliseconds request_decode_time_seconds request_inference_time_seconds "
            "request_max_num_generation_tokens request_params_max_tokens request_prefill_time_seconds "
            "request_queue_time_seconds time_in_queue_requests tokens_total"
        ),
        ("family removed", "V0"): "request_params_best_of",
        ("buckets", "V0"): "e2e_request_latency_seconds",
    },
    ("0.6.6", "0.7.3"): {
        ("family added", "V1"): _V1_FIRST,
        ("family removed", "V0"): "avg_generation_throughput_toks_per_s avg_prompt_throughput_toks_per_s",
        ("buckets", "V0"): "iteration_tokens_total",  # The sizes of CUDA graphs are in an attribute of another name.
    },
    ("0.7.3", "0.8.5"): {
        ("family added", "V1"): (
            "cache_config_info lora_requests_info num_preemptions_total request_max_num_generation_tokens "
            "request_params_max_tokens request_params_n spec_decode_num_accepted_tokens_per_pos_total "
            "spec_decode_num_accepted_tokens_total spec_decode_num_draft_tokens_total spec_decode_num_drafts_total"
        ),
        ("family removed", "V0"): "tokens_total",
        ("hidden", "V0"): (
            "cpu_cache_usage_perc cpu_prefix_cache_hit_rate gpu_prefix_cache_hit_rate "
            "model_execute_time_milliseconds model_forward_time_milliseconds num_requests_swapped "
            "time_in_queue_requests"
        ),
        ("labels", "V1"): _V1_FIRST,
        ("buckets", "V0"): f"{_BUCKETS_OF_085} time_in_queue_requests",
        ("buckets", "V1"): _BUCKETS_OF_085,
    },
    ("0.8.5", "0.10.2"): {
        ("family added", "V0"): "inter_token_latency_seconds",
        ("family added", "V1"): (
            "inter_token_latency_seconds kv_cache_usage_perc prefix_cache_hits_total prefix_cache_queries_total"
        ),
        ("family removed", "V0"): (
            "cpu_cache_usage_perc cpu_prefix_cache_hit_rate gpu_prefix_cache_hit_rate "
            "model_execute_time_milliseconds model_forward_time_milliseconds num_requests_swapped "
            "spec_decode_draft_acceptance_rate spec_decode_efficiency spec_decode_num_accepted_tokens_total "
            "spec_decode_num_draft_tokens_total spec_decode_num_emitted_tokens_total time_in_queue_requests"
        ),
    },
    ("0.10.2", "0.12.0"): {
        ("family added", "V1"): (
            "corrupted_requests_total engine_sleep_state external_prefix_cache_hits_total "
            "external_prefix_cache_queries_total kv_block_idle_before_evict_seconds kv_block_lifetime_seconds "
            "kv_block_reuse_gap_seconds mm_cache_hits_total mm_cache_queries_total nixl_bytes_transferred "
            "nixl_num_descriptors nixl_num_failed_notifications_total nixl_num_failed_transfers_total "
            "nixl_post_time_seconds nixl_xfer_time_seconds request_time_per_output_token_seconds"
        ),
        ("family removed", "V0"): _LAST_OF_V0,
        ("family removed", "V1"): "gpu_cache_usage_perc gpu_prefix_cache_hits_total gpu_prefix_cache_queries_total",
        ("hidden", "V1"): "time_per_output_token_seconds",
    },
    ("0.12.0", "0.20.2"): {
        ("family added", "V1"): (
            "estimated_flops_per_gpu_total estimated_read_bytes_per_gpu_total estimated_write_bytes_per_gpu_total "
            "hf3fs_load_duration_seconds hf3fs_num_failed_load_total hf3fs_num_failed_save_total "
            "hf3fs_save_duration_seconds kv_offload_size kv_offload_total_bytes_total kv_offload_total_time_total "
            "nixl_num_kv_expired_reqs_total num_requests_waiting_by_reason prompt_tokens_by_source_total "
            "prompt_tokens_cached_total request_prefill_kv_computed_tokens websocket_connection_duration_seconds "
            "websocket_connections_active websocket_connections_total"
        ),
        ("family removed", "V1"): "time_per_output_token_seconds",
    },
    ("0.20.2", "0.33.0"): {
        ("family added", "V1"): f"{_OFFLOAD_OF_033} {_TIERING_OF_033} {_CONNECTORS_OF_033} {_KVCR} {_OTHERS_OF_033}",
        ("buckets", "V1"): "kv_offload_size",  # Deprecated; its buckets come from a table of descriptions.
    },
}
"""For each pair of releases the families that differ, by what differs and by engine."""

_LOGGER = "RayPrometheusStatLogger: "
RAY: dict[tuple[str, str], dict[str, list[str]]] = {
    ("0.8.5", "0.10.2"): {"ray added": [f"{_LOGGER}_spec_decoding_cls is RaySpecDecodingProm"]},
    ("0.10.2", "0.12.0"): {
        "ray added": [
            "in names [^a-zA-Z0-9_] becomes _",
            "label: ReplicaId",
            f"{_LOGGER}_kv_connector_cls is RayKVConnectorPrometheus",
        ],
        "ray removed": [f"{_LOGGER}_metrics_cls is RayMetrics"],
    },
    ("0.12.0", "0.20.2"): {"ray added": [f"{_LOGGER}_perf_metrics_cls is RayPerfMetricsProm"]},
}
"""What became of the families on their way to Ray."""

_V0 = (
    "Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, "
    "Swapped: %d reqs, Pending: %d reqs, GPU KV cache usage: %.1f%%, CPU KV cache usage: %.1f%%."
)
_V0_HITS = "Prefix cache hit rate: GPU: %.2f%%, CPU: %.2f%%"
_V0_DRAFTS = (
    "Speculative metrics: Draft acceptance rate: {:.3f}, System efficiency: {:.3f}, "
    "Number of speculative tokens: {}, Number of accepted tokens: {}, Number of draft tokens: {}, "
    "Number of emitted tokens: {}."
)
_START = "Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs"
_V1 = f"{_START}, Waiting: %d reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%"
_LATE_HITS = "⟦, External prefix cache hit rate: %.1f%%⟧⟦, MM cache hit rate: %.1f%%⟧"
_V1_012 = (
    f"{_START}, Waiting: %d reqs⟦, Preemptions: %d⟧, GPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%"
    f"⟦, Corrupted: %d reqs⟧{_LATE_HITS}"
)
_V1_020 = _V1_012.replace("⟦, Preemptions", "⟦, Deferred: %d reqs⟧⟦, Preemptions")
_KV_FETCH = "⟦, KV fetch: %d waiting to start, %d in progress, %d completed waiting⟧"
_V1_033 = (
    _V1_020.replace("⟦, Preemptions", f"{_KV_FETCH}⟦, Preemptions")
    .replace("GPU KV", "%s KV")
    .replace(", Prefix cache hit rate: %.1f%%", "⟦, Prefix cache hit rate: %.1f%%⟧")
)
_DRAFTS_085 = (
    "SpecDecoding metrics: Draft acceptance rate: %.1f%%, Mean acceptance length: %.2f, Accepted: %d tokens, "
    "Drafted: %d tokens, Per-position acceptance rate: %s"
)
_DRAFTS = (
    "SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f tokens/s, "
    "Drafted throughput: %.2f tokens/s, Accepted: %d tokens, Drafted: %d tokens, Per-position acceptance rate: %s, "
    "Avg Draft acceptance rate: %.1f%%"
)
_DIFFUSION = (
    "DiffusionDecoding metrics: Committed token throughput: %.2f tokens/s, Mean denoising steps per canvas: %.2f, "
    "Mean tokens committed per denoising step: %.2f, Committed: %d tokens, Denoising steps: %d, "
    "Canvas positions evaluated: %d"
)
_ITERATION = (
    "%sIteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, "
    "iteration elapsed time: %.2f ms%s, %s KV cache usage: %.1f%%%s"
)


def _labelled(text: str) -> list[str]:
    return ["Engine {:03d}: " + text, "{} Engines Aggregated: " + text]


STATISTICS: dict[str, list[str]] = {
    "0.5.5": [_V0, _V0_HITS, _V0_DRAFTS],
    "0.6.6": [_V0, _V0_HITS, _V0_DRAFTS],
    "0.7.3": [_V0, _V0_HITS, _V0_DRAFTS, _V1],
    "0.8.5": [_V0, _V0_HITS, _V0_DRAFTS, "Engine %03d: " + _V1, _DRAFTS_085],
    "0.10.2": [_V0, _V0_HITS, "Engine %03d: " + _V1, _DRAFTS],
    "0.12.0": [*_labelled(_V1_012), _DRAFTS],
    "0.20.2": [*_labelled(_V1_020), _DRAFTS, "%sMFU: %.1f TF/s/GPU %.1f GB/s/GPU"],
    "0.33.0": [
        *_labelled(_V1_033),
        _DRAFTS,
        _DIFFUSION,
        _ITERATION,
        "%sMFU: %.1f TF/s/device %.1f GB/s/device",
        "EC Transfer metrics: %s",
    ],
}
"""What each release prints again and again, but for lines of KV connectors and tables."""

_NIXL = (
    "Num successful transfers, Avg xfer time (ms), P90 xfer time (ms), Avg post time (ms), P90 post time (ms), "
    "Avg MB per transfer, Throughput (MB/s), Avg number of descriptors"
)
_HF3FS = (
    "Num transfers task, Num save task success, Num save task failed, Num load task success, Num load task failed, "
    "Avg save duration (ms), P90 save duration (ms), Avg load duration (ms), P90 load duration (ms)"
)
_STORE = "count avg_ms p90_ms total_keys total_bytes failed_keys error_count"
TRANSFERS: dict[str, list[str]] = {
    "0.10.2": [],
    "0.12.0": [_NIXL],
    "0.20.2": [_NIXL, _HF3FS, "{transfer_type}_total_bytes, {transfer_type}_total_time"],
    "0.33.0": [
        f"{_NIXL}, Num failed transfers, Num KV expired reqs, Num notifs after expiry",
        (
            "Num successful transfers, Avg xfer time (ms), P90 xfer time (ms), Avg MB per transfer, "
            "Throughput (MB/s), Avg number of descriptors, Num failed transfers, Num failed recvs, "
            "Num KV expired reqs"
        ),
        _HF3FS,
        ", ".join(f"{{operation}}_{part}" for part in _STORE.split()),
        (
            "HiSparse hot-buffer hits, HiSparse hot-buffer misses, HiSparse host-to-device bytes, "
            "HiSparse host KV cache usage %"
        ),
        "{operation}_{key}",
        "{key}:{labelvalues}",
        "{key_with_labels}_count, {key_with_labels}_sum, {key}:{labelvalues}",
    ],
}
"""The keys of the lines of KV connectors, in any order."""

MESSAGES: dict[str, tuple[str, str, str]] = {
    "vLLM API server version %s": ("0.5.5", "0.20.2", "StartupFact.version"),
    "vLLM server version %s, serving model %s": ("0.20.2", "0.33.0", "StartupFact.model"),
    "GPU KV cache size: %s tokens": ("0.8.5", "0.20.2", "StartupFact.kv_cache_tokens"),
    "%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx": (
        "0.33.0",
        "0.33.0",
        "StartupFact.max_concurrency",
    ),
    "# %s blocks: %d, # CPU blocks: %d": ("0.7.3", "0.10.2", "StartupFact.num_gpu_blocks"),
    "Loading model weights took %.4f GB": ("0.5.5", "0.7.3", "StartupFact.model_load_gib"),
    "Model loading took %.4f GiB memory and %.6f seconds": ("0.12.0", "0.12.0", "StartupFact.model_load_seconds"),
    "Model loading took %s GiB memory and %.6f seconds": ("0.20.2", "0.33.0", "StartupFact.model_load_seconds"),
    "init engine (profile, create kv cache, warmup model) took %.2f seconds": (
        "0.6.6",
        "0.12.0",
        "StartupFact.engine_init_seconds",
    ),
    "init engine (profile, create kv cache, warmup model) took %.2f s (compilation: %.2f s)": (
        "0.20.2",
        "0.33.0",
        "StartupFact.compile_seconds",
    ),
    "Gracefully stopping http server": ("0.5.5", "0.5.5", "Lifecycle:shutting_down"),
    "Shutting down FastAPI HTTP server.": ("0.6.6", "0.20.2", "Lifecycle:shutting_down"),
    "[shutdown] API server: shutdown triggered": ("0.33.0", "0.33.0", "Lifecycle:shutting_down"),
    "It took %.6f seconds to fall asleep.": ("0.7.3", "0.33.0", "SleepOrPause:asleep"),
    "setting pause state to %s": ("0.33.0", "0.33.0", "SleepOrPause:paused"),
    "EngineCore encountered a fatal error.": ("0.8.5", "0.33.0", "Failure:engine_dead"),
    "AsyncLLMEngine has failed, terminating server process": ("0.5.5", "0.7.3", "Failure:engine_dead"),
    "Worker proc %s died unexpectedly, shutting down executor.": ("0.8.5", "0.20.2", "Failure:worker_died"),
    "Worker proc %s died unexpectedly (exit code: %s), shutting down executor.": (
        "0.33.0",
        "0.33.0",
        "Failure:worker_died",
    ),
    "TimeoutError: RPC call to {} timed out.": ("0.6.6", "0.33.0", "Failure:execution_timeout"),
    "RuntimeError: NCCL error: {}": ("0.5.5", "0.33.0", "Failure:nccl_error"),
}
"""Messages of the start and of failures: the first and last release that prints each, and what it says."""
