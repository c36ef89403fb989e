# SPDX-License-Identifier: Apache-2.0
"""
One table of the names in vLLM's /metrics, from 0.5 to today.

Each quantity has the names it has had, newest first: where a scrape has several, they have the same value and the
newest counts (adding them up would double it).

Families about a whole server, such as its process, its connections and operations like sleep, have no engine. They are
read under the names of their series, with the values of their labels from closed lists: a value that no list has is
`OTHER`.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch_parsers.lora import LORA_REQUESTS, LoraUnknown


OTHER = "other"

OPERATIONS = ("sleep", "release_kv_cache_memory", "wake")
"""What `/sleep` and `/wake_up` are doing, by the label `operation`."""

WEIGHT_UPDATES = ("init", "shutdown", "start", "start_draft", "update", "finish")
"""What a trainer is doing to the weights, by the label `operation`."""

_OPERATION = (("operation", OPERATIONS),)
_WEIGHT_UPDATE = (("operation", WEIGHT_UPDATES),)


class ServerSeries(NamedTuple):
    """A series without its prefix, and the values of its labels but for the server."""

    name: str
    labels: tuple[str, ...] = ()


class ServerFamily(NamedTuple):
    """What a family is read as. `labels` are those that are kept, each with the values that it may have."""

    name: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def series(self, labels: tuple[tuple[str, str], ...]) -> ServerSeries:
        """Return the series that a sample with these labels belongs to."""
        given = dict(labels)
        kept = ((given.get(name, ""), values) for name, values in self.labels)
        return ServerSeries(self.name, tuple(value if value in values else OTHER for value, values in kept))


SERVER_VALUES: dict[str, ServerFamily] = {
    "process_open_fds": ServerFamily("server_process_open_fds"),
    "process_max_fds": ServerFamily("server_process_max_fds"),
    "process_resident_memory_bytes": ServerFamily("server_process_resident_memory_bytes"),
    "process_cpu_seconds_total": ServerFamily("server_process_cpu_seconds_total"),
    "vllm:websocket_connections_active": ServerFamily("websocket_connections_active"),
    "vllm:websocket_connections_total": ServerFamily("websocket_connections_total"),
    # Of streamed answers it counts each delta, so the mode is kept; models and kinds of requests are added up.
    "vllm:tool_call_parser_invocations_total": ServerFamily(
        "tool_parser_calls_total",
        (("mode", ("non_streaming", "streaming")), ("outcome", ("tool_call", "no_tool_call"))),
    ),
    "vllm:sleep_mode_operations_in_flight": ServerFamily("sleep_operations_in_flight", _OPERATION),
    "vllm:rl_weight_update_operations_in_flight": ServerFamily("weight_update_operations_in_flight", _WEIGHT_UPDATE),
}
"""Gauges and counters, by the name of their samples; series of equal labels are added up."""

SERVER_HISTOGRAMS: dict[str, ServerFamily] = {
    "vllm:websocket_connection_duration_seconds": ServerFamily("websocket_connection_duration_seconds"),
    "vllm:sleep_mode_operation_duration_seconds": ServerFamily("sleep_operation_duration_seconds", _OPERATION),
    "vllm:rl_weight_update_operation_duration_seconds": ServerFamily(
        "weight_update_operation_duration_seconds", _WEIGHT_UPDATE
    ),
}

IN_FLIGHT = frozenset({"sleep_operations_in_flight", "weight_update_operations_in_flight"})
"""While one of these is above 0, tokens stop: somebody works on the engine."""

LORA_ACTIVE = ServerSeries("lora_active_adapters")
LORA_MOST = ServerSeries("lora_max_adapters")


def lora_unknown(reason: LoraUnknown) -> ServerSeries:
    """Return the series that is there instead of `LORA_ACTIVE`."""
    return ServerSeries("lora_active_unknown_info", (reason,))


GAUGES: dict[str, tuple[str, ...]] = {
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
    "requests_swapped": ("vllm:num_requests_swapped",),
    "kv_cache_usage_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    # V0 only, over the server's whole life; -1 where prefix caching is off.
    "prefix_cache_hit_ratio_lifetime": ("vllm:gpu_prefix_cache_hit_rate",),
    "acceptance_ratio_lifetime": ("vllm:spec_decode_draft_acceptance_rate",),
    "cpu_kv_cache_usage_ratio": ("vllm:cpu_cache_usage_perc",),
    "cpu_prefix_cache_hit_ratio_lifetime": ("vllm:cpu_prefix_cache_hit_rate",),
    "system_efficiency_lifetime": ("vllm:spec_decode_efficiency",),
}
"""Quantities of the present. Those of a V0 engine's whole life end in `_lifetime`."""

COUNTERS: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "prompt_tokens_cached": ("vllm:prompt_tokens_cached_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    # Blocks up to 0.8.5, tokens since 0.9.0: only their ratio is used.
    "prefix_cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_prefix_cache_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_prefix_cache_hits": ("vllm:external_prefix_cache_hits_total",),
    "mm_cache_queries": ("vllm:mm_cache_queries_total",),
    "mm_cache_hits": ("vllm:mm_cache_hits_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "corrupted_requests": ("vllm:corrupted_requests_total",),
    "denoising_steps": ("vllm:diffusion_num_denoising_steps_total",),
    "canvas_positions": ("vllm:diffusion_num_canvas_positions_total",),
    "committed_tokens": ("vllm:diffusion_num_committed_tokens_total",),
    # Of one device each, and 0 for ever without --enable-mfu-metrics.
    "estimated_flops": ("vllm:estimated_flops_per_gpu_total",),
    "estimated_read_bytes": ("vllm:estimated_read_bytes_per_gpu_total",),
    "estimated_write_bytes": ("vllm:estimated_write_bytes_per_gpu_total",),
}

HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "time_to_first_token_seconds": ("vllm:time_to_first_token_seconds",),
    # The old name meant the gap between two tokens, not the mean of a request.
    "inter_token_latency_seconds": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "time_per_output_token_seconds": ("vllm:request_time_per_output_token_seconds",),
    "e2e_request_latency_seconds": ("vllm:e2e_request_latency_seconds",),
    "queue_time_seconds": ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    "prefill_time_seconds": ("vllm:request_prefill_time_seconds",),
    "decode_time_seconds": ("vllm:request_decode_time_seconds",),
    "inference_time_seconds": ("vllm:request_inference_time_seconds",),
    "iteration_tokens": ("vllm:iteration_tokens_total",),
    "request_prompt_tokens": ("vllm:request_prompt_tokens",),
    "request_generation_tokens": ("vllm:request_generation_tokens",),
    "request_computed_prompt_tokens": ("vllm:request_prefill_kv_computed_tokens",),
    "request_max_tokens": ("vllm:request_params_max_tokens",),
    "request_max_generation_tokens": ("vllm:request_max_num_generation_tokens",),
    "request_params_n": ("vllm:request_params_n",),
    "request_params_best_of": ("vllm:request_params_best_of",),
    "request_preemptions": ("vllm:request_num_preemptions",),
    "kv_block_lifetime_seconds": ("vllm:kv_block_lifetime_seconds",),
    "kv_block_idle_before_evict_seconds": ("vllm:kv_block_idle_before_evict_seconds",),
    "kv_block_reuse_gap_seconds": ("vllm:kv_block_reuse_gap_seconds",),
}

SLEEP_STATE = "vllm:engine_sleep_state"
"""One series for each state. Only ``awake`` is used: a pause by ``/sleep?level=0`` has no other."""

WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
PROMPT_TOKENS_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
PROMPT_SOURCES = {
    "local_compute": "prompt_tokens_computed",
    "local_cache_hit": "prompt_tokens_cached_locally",
    "external_kv_transfer": "prompt_tokens_transferred",
}
"""Where prompt tokens come from, by the values of its label `source`; together they are all prompt tokens."""

CACHE_SOURCES = {
    source: f"prompt_tokens_cached_{source}" for source in ("device", "host", "p2p", "disk", "external_unspecified")
}
"""Where cached prompt tokens were, by the values of the label `source`."""

WATERMARKED = {
    "watermarked": "requests_watermarked",
    "skipped": "requests_watermark_skipped",
    "not_watermarked": "requests_not_watermarked",
}
"""What became of the watermark of a finished request, by the values of the label `status`."""

COUNTED_BY_LABEL: dict[str, tuple[str, dict[str, str]]] = {
    PROMPT_TOKENS_BY_SOURCE: ("source", PROMPT_SOURCES),
    "vllm:prompt_tokens_cached_by_source_total": ("source", CACHE_SOURCES),
    "vllm:watermark_requests_total": ("status", WATERMARKED),
}
"""Counters of which each value of a label is a quantity of its own: the label, and the quantities by its values."""

ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
V0_EMITTED_TOKENS = "vllm:spec_decode_num_emitted_tokens_total"
"""Only V0 has it, and its three counters of speculative decoding grow by their own totals at every interval."""

V0_SWAPPED = GAUGES["requests_swapped"][0]
"""Only V0 has it."""

REQUESTS_FINISHED = "vllm:request_success_total"
ADMISSION_REJECTIONS = "vllm:admission_rejections_total"
CACHE_CONFIG = "vllm:cache_config_info"
HTTP_REQUESTS = "http_requests_total"
PROCESS_START = "process_start_time_seconds"

INFERENCE_HANDLERS = frozenset(
    {
        "/inference/v1/generate",
        "/invocations",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
    }
)
"""Values of the label `handler`, and paths in the access log, of requests for which an engine computes tokens."""

_OTHERS = (
    SLEEP_STATE,
    WAITING_BY_REASON,
    *COUNTED_BY_LABEL,
    ACCEPTED_PER_POSITION,
    V0_EMITTED_TOKENS,
    REQUESTS_FINISHED,
    ADMISSION_REJECTIONS,
    CACHE_CONFIG,
    HTTP_REQUESTS,
    PROCESS_START,
    *SERVER_VALUES,
)

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


SAMPLE_NAMES: frozenset[str] = frozenset(
    [name for table in (GAUGES, COUNTERS) for names in table.values() for name in names]
    + [name + part for names in (*HISTOGRAMS.values(), SERVER_HISTOGRAMS) for name in names for part in HISTOGRAM_PARTS]
    + list(_OTHERS)
)
"""The sample names of all these families, as vLLM itself writes them."""

READ_ELSEWHERE = frozenset({LORA_REQUESTS})
"""Families of which each line is looked at on its own, by `lora`: there may be tens of thousands."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "requests_running": GAUGES["requests_running"],
    "requests_waiting": GAUGES["requests_waiting"],
    "kv_cache_usage_ratio": GAUGES["kv_cache_usage_ratio"],
    "prompt_tokens": COUNTERS["prompt_tokens"],
    "generation_tokens": COUNTERS["generation_tokens"],
    "time_to_first_token_seconds": HISTOGRAMS["time_to_first_token_seconds"],
    "e2e_request_latency_seconds": HISTOGRAMS["e2e_request_latency_seconds"],
}
"""Quantities that every server should have; the Rust front end has histograms only once it has served."""
