# SPDX-License-Identifier: Apache-2.0
"""
Every series that vllm-watch exports: its name, type, labels, unit, help and where its value comes from.

Names are given without the prefix; counters with their ``_total``. `daemon/METRICS.md`, the labels that a configuration
may not use and what `vllm-watch check` reports about missing series derive from this table; a test checks that
nothing else is ever exported.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.capacity_reasons import CAPACITY_BASES, CAPACITY_UNKNOWN
from vllm_watch.daemon.catalog.causes import DOWN
from vllm_watch.daemon.catalog.config_labels import CONFIG_LABELS
from vllm_watch.daemon.catalog.gpu_codes import (
    GPU_ACTIONS,
    GPU_LINK_ERRORS,
    GPU_PCIE_ERRORS,
    GPU_STATES,
    GPU_THROTTLING,
)
from vllm_watch.daemon.catalog.limits import MAX_HANGING_PROCESSES
from vllm_watch.daemon.catalog.otlp_outcomes import OTLP_OUTCOMES
from vllm_watch.daemon.catalog.parts import PARTS
from vllm_watch.daemon.catalog.pod_states import POD_STATES
from vllm_watch.daemon.catalog.reasons import STALL_REASONS
from vllm_watch.daemon.catalog.states import ENGINE_STATES
from vllm_watch_parsers.kernel_messages import XID_CLASSES
from vllm_watch_parsers.lora import LORA_UNKNOWN, MAX_LORA_BYTES


PREFIX = "vllm_watch_"

SeriesType = Literal["gauge", "counter", "histogram"]

Origin = Literal["metrics", "log", "probe", "gpu", "kernel log", "command line", "configuration", "daemon"]
"""Where a value comes from: a source, under its name in the label `source`, or the daemon and what it was given."""

Combination = Literal["first", "latest", "each", "all"]
"""
How the sources of a series make its value.

first: the first that has it. latest: the newest of them. each: whichever there are, each by itself or in one judgement.
all: only where all of them are there.
"""

Feature = Literal[
    "slo",
    "speculative decoding",
    "kv connector",
    "links",
    "gpu",
    "cost",
    "kubernetes",
    "otlp",
    "peak_flops",
    "lora",
    "nan",
]
"""What must be configured or used for a series to be there."""

_ENGINE = ("server", "model_name", "engine")
_MOVED = (*_ENGINE, "connector", "direction")
_OF_CONNECTOR = (*_ENGINE, "connector")
_TIER = (*_ENGINE, "connector", "kv_tier")  # `tier` is a label of alerts, and of users.
_SERVER = ("server",)
_GPU = ("gpu",)
_STEP = (*_ENGINE, "config", "version", "batch_class", "context_class", "prompt_class")


class Source(NamedTuple):
    """One source of a series, and what is read there; `what` is empty if it needs no explanation."""

    origin: Origin
    what: str = ""


class Series(NamedTuple):
    """One family. `help` is one sentence in the terms of Prometheus; `sources` are in the order of preference."""

    name: str
    type: SeriesType
    labels: tuple[str, ...]
    unit: str
    help: str
    sources: tuple[Source, ...] = (Source("daemon"),)
    combine: Combination = "first"
    feature: Feature | None = None

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name

    @property
    def family(self) -> str:
        """The family's name without the prefix: OpenMetrics has a counter's without its ``_total``."""
        return self.name.removesuffix("_total")

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where its value comes from, in the order of preference."""
        return tuple(source.origin for source in self.sources)


class Group(NamedTuple):
    """Series that belong together."""

    title: str
    series: tuple[Series, ...]


def _scrape(what: str = "") -> Source:
    return Source("metrics", what)


def _log(what: str = "") -> Source:
    return Source("log", what)


def _probe() -> Source:
    return Source("probe")


def _driver(what: str = "") -> Source:
    return Source("gpu", what)


def _configuration(what: str) -> Source:
    return Source("configuration", what)


_KERNEL_LOG = Source("kernel log")
_COMMAND_LINE = Source("command line", "of its process on this machine")


_gauge = partial(Series, type="gauge")
_counter = partial(Series, type="counter")
_histogram = partial(Series, type="histogram", labels=_ENGINE)
_gpu_gauge = partial(Series, type="gauge", labels=_GPU, feature="gpu")
_gpu_counter = partial(Series, type="counter", labels=_GPU, feature="gpu")


NOW = Group(
    "What the engine does now",
    (
        _gauge(
            "prompt_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Prompt tokens computed per second. vLLM before 0.16 also counts cached tokens.",
            sources=(
                _scrape(
                    'rate of `vllm:prompt_tokens_by_source_total{source="local_compute"}` (before 0.16 '
                    "`vllm:prompt_tokens_total`) over 10 s or more, or all less cached ones"
                ),
                _log("`Avg prompt throughput`"),
            ),
        ),
        _gauge(
            "generation_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Tokens generated per second.",
            sources=(
                _scrape("rate of `vllm:generation_tokens_total` over 10 s or more"),
                _log("`Avg generation throughput`"),
            ),
        ),
        _gauge(
            "requests_running",
            labels=_ENGINE,
            unit="requests",
            help="Requests in the running batch.",
            sources=(_scrape("`vllm:num_requests_running`"), _log("`Running`")),
        ),
        _gauge(
            "requests_waiting",
            labels=_ENGINE,
            unit="requests",
            help="Requests waiting to be scheduled, including deferred ones.",
            sources=(_scrape("`vllm:num_requests_waiting`"), _log("`Waiting` (V0 `Pending`)")),
        ),
        _gauge(
            "requests_deferred",
            labels=_ENGINE,
            unit="requests",
            help=(
                "Waiting requests that wait for something other than capacity (a LoRA adapter, a KV transfer). vLLM "
                "0.20 and later."
            ),
            sources=(_scrape('`vllm:num_requests_waiting_by_reason{reason="deferred"}`'), _log("`Deferred`")),
        ),
        _gauge(
            "kv_cache_usage_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of the KV cache in use; 1 is full.",
            sources=(_scrape("`vllm:kv_cache_usage_perc`, `vllm:gpu_cache_usage_perc`"), _log("`GPU KV cache usage`")),
        ),
        _gauge(
            "prefix_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried prompt tokens that were in the prefix cache, over recent requests (V0: since the start).",
            sources=(
                _scrape(
                    "increase of `vllm:prefix_cache_hits_total` divided by that of `…_queries_total` over the last 10 s to "
                    "60 s with queries"
                ),
                _log("`Prefix cache hit rate` of up to 1000 requests"),
            ),
        ),
        _gauge(
            "external_prefix_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried prompt tokens that were in an external KV cache, over recent requests.",
            sources=(
                _scrape("`vllm:external_prefix_cache_hits_total` divided by `…_queries_total`"),
                _log("`External prefix cache hit rate`"),
            ),
        ),
        _gauge(
            "mm_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried multimodal items that were in the multimodal cache, over recent requests.",
            sources=(_scrape("`vllm:mm_cache_hits_total` divided by `…_queries_total`"), _log("`MM cache hit rate`")),
        ),
        _gauge(
            "spec_decode_mean_acceptance_length",
            labels=_ENGINE,
            unit="tokens",
            help=(
                "Mean number of tokens per engine step and request with speculative decoding (MTP, EAGLE, draft "
                "models), including the bonus token; 1 is no gain."
            ),
            sources=(
                _scrape("1 + accepted tokens per draft over the last 10 s to 60 s"),
                _log("`SpecDecoding metrics`, `Mean acceptance length`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_acceptance_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of draft tokens that were accepted, recently (V0: since the start).",
            sources=(
                _scrape("accepted tokens divided by draft tokens"),
                _log("`SpecDecoding metrics`, `Avg Draft acceptance rate`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_position_acceptance_ratio",
            labels=(*_ENGINE, "position"),
            unit="ratio",
            help="Share of drafts whose token at this position was accepted; position 0 is the first.",
            sources=(
                _scrape("`vllm:spec_decode_num_accepted_tokens_per_pos_total` per draft"),
                _log("`SpecDecoding metrics`, `Per-position acceptance rate`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_accepted_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Draft tokens accepted per second.",
            sources=(
                _scrape("rate of `vllm:spec_decode_num_accepted_tokens_total`"),
                _log("`SpecDecoding metrics`, `Accepted throughput`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_drafted_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Draft tokens proposed per second.",
            sources=(
                _scrape("rate of `vllm:spec_decode_num_draft_tokens_total`"),
                _log("`SpecDecoding metrics`, `Drafted throughput`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "last_token_timestamp_seconds",
            labels=_ENGINE,
            unit="unix time",
            help="Time at which a generated token was last seen.",
            sources=(_scrape("an increase of `vllm:generation_tokens_total`"), _log("a statistics line with tokens")),
            combine="latest",
        ),
        _gauge(
            "decode_step_seconds",
            labels=_STEP,
            unit="seconds",
            help=(
                "Median time of a decode step in the last five minutes, by what it had to do, which `batch_class`, "
                "`context_class` and `prompt_class` are: how many requests decoded (`5-8`), how many tokens of context "
                "each of them had (where the size of the KV cache is not known, which share of it) and how many "
                "prompt tokens were in it. Only times of equal labels can be compared."
            ),
            sources=(
                _scrape("the increase of `vllm:inter_token_latency_seconds` between two scrapes, sum by count"),
                _log("`Running`, by `Avg generation throughput` and tokens per step, where no prompt was computed"),
            ),
        ),
        _gauge(
            "decode_step_measurements",
            labels=_STEP,
            unit="measurements",
            help="How many measurements `decode_step_seconds` is the median of, three or more.",
            sources=(_scrape("two scrapes are one"), _log("a statistics line is one")),
        ),
        _gauge(
            "latency_quantile_seconds",
            labels=(*_ENGINE, "stage", "quantile"),
            unit="seconds",
            help=(
                "Latency quantiles of the last minute by request stage, for use without Prometheus. Interpolated "
                "linearly within a bucket, so only roughly right in a wide one; in the last bucket its lower bound; "
                "absent if the quantile is in the first bucket, that is below "
                "`latency_first_bound_seconds`."
            ),
            sources=(_scrape("the histograms' increase over the last minute"),),
        ),
        _gauge(
            "latency_mean_seconds",
            labels=(*_ENGINE, "stage"),
            unit="seconds",
            help="Exact mean latency of the last minute by request stage; a quantile is only an estimate within its bucket.",
            sources=(
                _scrape("the increase of the histograms' sum divided by that of their count, over the last minute"),
            ),
        ),
        _gauge(
            "latency_first_bound_seconds",
            labels=(*_ENGINE, "stage"),
            unit="seconds",
            help="Upper bound of the first histogram bucket by request stage; quantiles below it cannot be estimated.",
            sources=(_scrape("the histograms' buckets"),),
        ),
    ),
)

DONE = Group(
    "What the engine has done",
    (
        _counter(
            "prompt_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Prompt tokens processed, including cached ones.",
            sources=(_scrape("`vllm:prompt_tokens_total`"),),
        ),
        _counter(
            "prompt_tokens_by_source_total",
            labels=(*_ENGINE, "source"),
            unit="tokens",
            help=(
                "Prompt tokens processed by where they came from: local_compute, local_cache_hit (prefix cache), "
                "external_kv_transfer (KV cache of another server or store). vLLM 0.16 and later."
            ),
            sources=(_scrape("`vllm:prompt_tokens_by_source_total`"),),
        ),
        _counter(
            "generation_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens generated.",
            sources=(_scrape("`vllm:generation_tokens_total`"),),
        ),
        _counter(
            "spec_decode_drafts_total",
            labels=_ENGINE,
            unit="drafts",
            help="Drafts made by speculative decoding.",
            sources=(_scrape("`vllm:spec_decode_num_drafts_total`"),),
            feature="speculative decoding",
        ),
        _counter(
            "spec_decode_draft_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Draft tokens proposed.",
            sources=(_scrape("`vllm:spec_decode_num_draft_tokens_total`"), _log("sum of `Drafted`")),
            feature="speculative decoding",
        ),
        _counter(
            "spec_decode_accepted_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Draft tokens accepted.",
            sources=(_scrape("`vllm:spec_decode_num_accepted_tokens_total`"), _log("sum of `Accepted`")),
            feature="speculative decoding",
        ),
        _counter(
            "preemptions_total",
            labels=_ENGINE,
            unit="preemptions",
            help="Requests preempted because the KV cache was full; they are computed again.",
            sources=(
                _scrape("`vllm:num_preemptions_total`"),
                _log("sum of the Rust front end's `Preemptions` (the Python server prints none)"),
            ),
        ),
        _counter(
            "requests_finished_total",
            labels=(*_ENGINE, "reason"),
            unit="requests",
            help="Finished requests by reason (stop, length, abort, ...).",
            sources=(_scrape("`vllm:request_success_total`"),),
        ),
        _counter(
            "admission_rejections_total",
            labels=(*_SERVER, "model_name", "reason"),
            unit="requests",
            help="Requests rejected because the queue was full. vLLM 0.32 and later.",
            sources=(_scrape("`vllm:admission_rejections_total`"),),
        ),
        _counter(
            "http_requests_total",
            labels=(*_SERVER, "method", "handler", "code"),
            unit="requests",
            help="HTTP requests answered by the server. `handler` is from a closed list; all others are `other`.",
            sources=(
                _log("uvicorn's access lines"),
                _scrape(
                    "`http_requests_total`, whose codes are classes (`2xx`), if the log has no access line and the scrape has "
                    "counted five requests"
                ),
            ),
        ),
        _counter(
            "log_events_total",
            labels=(*_SERVER, "event"),
            unit="events",
            help=(
                "Failures reported in the log; each crash counts once. All kinds start at 0. Not counted: failures "
                "during an orderly shutdown, and a slow worker before the server's first token (while it starts, and "
                "in its first five minutes). `gpu_xid` are errors of the server's GPUs that the kernel reports; it is "
                "there where these GPUs are known and the kernel's log can be read."
            ),
            sources=(_log("see the parsers' `failures` module"), _KERNEL_LOG),
            combine="each",
        ),
        _counter(
            "server_starts_total",
            labels=_SERVER,
            unit="starts",
            help="Server starts seen since this daemon started watching it.",
            sources=(
                _log("its version line"),
                _scrape("a new `process_start_time_seconds` or counters that decreased"),
            ),
        ),
    ),
)

LATENCY = Group(
    "How long requests take",
    (
        _histogram(
            "time_to_first_token_seconds",
            unit="seconds",
            help="Time from the arrival of a request to its first token (TTFT).",
            sources=(_scrape("`vllm:time_to_first_token_seconds`"),),
        ),
        _histogram(
            "inter_token_latency_seconds",
            unit="seconds",
            help="Time between two consecutive tokens of a request (ITL).",
            sources=(
                _scrape("`vllm:inter_token_latency_seconds`, before 0.10.2 `vllm:time_per_output_token_seconds`"),
            ),
        ),
        _histogram(
            "time_per_output_token_seconds",
            unit="seconds",
            help="Mean time per output token of a request (TPOT).",
            sources=(_scrape("`vllm:request_time_per_output_token_seconds`, 0.11 and later"),),
        ),
        _histogram(
            "e2e_request_latency_seconds",
            unit="seconds",
            help="Time from the arrival of a request to its last token.",
            sources=(_scrape("`vllm:e2e_request_latency_seconds`"),),
        ),
        _histogram(
            "queue_time_seconds",
            unit="seconds",
            help="Time that a request waited in the queue.",
            sources=(_scrape("`vllm:request_queue_time_seconds`"),),
        ),
        _histogram(
            "prefill_time_seconds",
            unit="seconds",
            help="Time that a request spent in prefill.",
            sources=(_scrape("`vllm:request_prefill_time_seconds` (0.6.4 exports it as decode time)"),),
        ),
        _histogram(
            "decode_time_seconds",
            unit="seconds",
            help="Time that a request spent in decode.",
            sources=(_scrape("`vllm:request_decode_time_seconds` (0.6.4 exports it as prefill time)"),),
        ),
        _histogram(
            "inference_time_seconds",
            unit="seconds",
            help="Time that a request ran, in prefill and decode together: from its first step to its last token.",
            sources=(_scrape("`vllm:request_inference_time_seconds`"),),
        ),
        _histogram(
            "iteration_tokens",
            unit="tokens",
            help="Tokens per engine step that returns any: those generated, and the prompts whose prefill ends in it, whole and with what was cached. Steps that prefill only a part of a prompt are not observed.",
            sources=(_scrape("`vllm:iteration_tokens_total`"),),
        ),
        _histogram(
            "request_prompt_tokens",
            unit="tokens",
            help="Prompt tokens per request.",
            sources=(_scrape("`vllm:request_prompt_tokens`"),),
        ),
        _histogram(
            "request_generation_tokens",
            unit="tokens",
            help="Generated tokens per request.",
            sources=(_scrape("`vllm:request_generation_tokens`"),),
        ),
        _histogram(
            "request_computed_prompt_tokens",
            unit="tokens",
            help="Prompt tokens per request that were computed here: without those from a cache. vLLM 0.13 and later.",
            sources=(_scrape("`vllm:request_prefill_kv_computed_tokens`"),),
        ),
        _histogram(
            "request_max_tokens",
            unit="tokens",
            help="The limit of generated tokens per request (`max_tokens`). V1 fills in a missing one with what the context has left, so that its highest buckets hold the requests without a limit; V0 leaves those out.",
            sources=(_scrape("`vllm:request_params_max_tokens`"),),
        ),
        _histogram(
            "request_max_generation_tokens",
            unit="tokens",
            help="Generated tokens of the longest answer per request; equal to request_generation_tokens where requests have one answer.",
            sources=(_scrape("`vllm:request_max_num_generation_tokens`"),),
        ),
        _histogram(
            "request_params_n",
            unit="answers",
            help="Answers asked for per request (`n`).",
            sources=(_scrape("`vllm:request_params_n`"),),
        ),
        _histogram(
            "request_params_best_of",
            unit="answers",
            help="Answers generated per request (`best_of`). V0 before 0.6.3.",
            sources=(_scrape("`vllm:request_params_best_of`"),),
        ),
        _histogram(
            "request_preemptions",
            unit="preemptions",
            help="Preemptions per finished request. vLLM 0.30 and later.",
            sources=(_scrape("`vllm:request_num_preemptions`"),),
        ),
    ),
)

KV = Group(
    "What KV connectors move",
    (
        _counter(
            "kv_transfer_bytes_total",
            labels=_MOVED,
            unit="bytes",
            help=(
                "Bytes of KV blocks that a connector has moved, by direction: `in` is towards the GPU, `out` away from "
                "it. NIXL counts where blocks are read (the decode server), or sent (NixlPushConnector), Mooncake where "
                "they are sent (the prefill server). All workers together."
            ),
            sources=(
                _scrape(
                    "the sums of `vllm:nixl_bytes_transferred` and `vllm:mooncake_bytes_transferred`, "
                    "`vllm:kv_offload_load_bytes_total`, `…_store_bytes_total` (before 0.24 "
                    "`vllm:kv_offload_total_bytes_total`), `vllm:mooncake_store_operation_bytes_total`, "
                    "`vllm:umbp_transfer_bytes_total`, `vllm:hisparse_host_to_device_bytes_total`"
                ),
                _log("sum of `KV Transfer metrics`, to three decimals of each line's mean"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_transfer_seconds_total",
            labels=_MOVED,
            unit="seconds",
            help=(
                "Time that transfers took, added up over workers, whose transfers overlap: with tensor parallelism it "
                "can grow by more than a second per second. Of `mooncake_store` also the time of what failed."
            ),
            sources=(
                _scrape("the sums of histograms of times, `vllm:kv_offload_load_time_total`, `…_store_time_total`"),
                _log("sum of `KV Transfer metrics`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_transfers_total",
            labels=_MOVED,
            unit="transfers",
            help=(
                "Transfers that succeeded. Each worker counts its own; `mooncake_store` counts operations, `umbp` "
                "objects and `simple_kv_offload` blocks."
            ),
            sources=(_scrape("the counts of histograms, or counters"), _log("sum of `KV Transfer metrics`")),
            feature="kv connector",
        ),
        _counter(
            "kv_transfer_failures_total",
            labels=(*_ENGINE, "connector", "kind"),
            unit="transfers",
            help=(
                "Transfers that failed, by kind. `transfer` has NIXL's failed handshakes and notifications since 0.31; "
                "`promotion` is from a tier behind the CPU's memory to it, `cascade` the way back. A kind without a "
                "failure may be absent."
            ),
            sources=(
                _scrape("`vllm:nixl_num_failed_transfers_total` and others"),
                _log("`Num failed transfers` and others, from 0.31 on"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_expired_requests_total",
            labels=_OF_CONNECTOR,
            unit="requests",
            help=(
                "Requests whose KV blocks nobody has fetched in time, so that the prefill server has given them up; the "
                "decode server computes their prompts itself or fails. With bidirectional transfers also those that were "
                "not begun because it was too late."
            ),
            sources=(
                _scrape("`vllm:nixl_num_kv_expired_reqs_total`, `vllm:mooncake_num_kv_expired_reqs_total`"),
                _log("`Num KV expired reqs`, from 0.31 on"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_notifications_after_expiry_total",
            labels=_OF_CONNECTOR,
            unit="notifications",
            help=(
                "Notifications, one for each rank of a reader, that blocks were read which had been given up before: "
                "what was read may have been overwritten. vLLM 0.32 and later."
            ),
            sources=(
                _scrape("`vllm:nixl_num_notifications_after_expiry_total`"),
                _log("`Num notifs after expiry`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_transfers_skipped_total",
            labels=(*_ENGINE, "connector", "reason"),
            unit="transfers",
            help=(
                "What was not moved: for lack of room in the CPU's memory (`no_space` to store, `no_space_to_promote` "
                "from another tier), because a tier is too slow (`backpressure`), or because a block was not asked for "
                "often enough yet (`not_reused`), which is configured. `simple_kv_offload` counts blocks."
            ),
            sources=(
                _scrape(
                    "`vllm:kv_offload_allocation_failure_total`, `…_tiering_promotion_allocation_failures_total`, "
                    "`…_tiering_backpressure_stores_dropped_total`, `…_stores_skipped_total`"
                ),
                _log("the same names in `KV Transfer metrics`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_lookups_total",
            labels=(*_ENGINE, "connector", "kind"),
            unit="lookups",
            help="Lookups in offloaded KV blocks: `sync` ones hold the scheduler up, a request of an `async` one waits.",
            sources=(
                _scrape("`vllm:kv_offload_lookup_sync_delay_seconds`, `…_async_…`, Mooncake's `lookup_exists`"),
                _log("the same in `KV Transfer metrics`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_lookup_seconds_total",
            labels=(*_ENGINE, "connector", "kind"),
            unit="seconds",
            help="Time that these lookups took; it is part of the queue time.",
            sources=(_scrape("the sums of the same histograms"), _log("the same in `KV Transfer metrics`")),
            feature="kv connector",
        ),
        _counter(
            "kv_tier_bytes_total",
            labels=(*_TIER, "direction"),
            unit="bytes",
            help="Bytes moved between the CPU's memory and a tier behind it, by tier; `in` is towards the GPU.",
            sources=(
                _scrape("`vllm:kv_offload_tiering_read_bytes_total`, `…_write_bytes_total`, LMCache's remote bytes"),
                _log("the same names in `KV Transfer metrics`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_tier_seconds_total",
            labels=(*_TIER, "direction"),
            unit="seconds",
            help="Time that these transfers took, where the tier reports it.",
            sources=(
                _scrape("`vllm:kv_offload_tiering_read_time_total`, `…_write_time_total`"),
                _log("the same names in `KV Transfer metrics`"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_tier_queries_total",
            labels=_TIER,
            unit="1",
            help="What was looked for in a tier: chunks, in LMCache tokens, in HiSparse's hot buffer pages.",
            sources=(
                _scrape(
                    "`vllm:kv_offload_tiering_chunk_queries_total`, `lmcache:num_lookup_tokens_total`, HiSparse's hits "
                    "and misses"
                ),
                _log("the same in `KV Transfer metrics`, but for LMCache"),
            ),
            feature="kv connector",
        ),
        _counter(
            "kv_tier_hits_total",
            labels=_TIER,
            unit="1",
            help="What of it was found there.",
            sources=(
                _scrape(
                    "`vllm:kv_offload_tiering_chunk_hits_total`, `lmcache:num_lookup_hits_total`, "
                    "`vllm:hisparse_cache_hits_total`"
                ),
                _log("the same in `KV Transfer metrics`, but for LMCache"),
            ),
            feature="kv connector",
        ),
        _gauge(
            "kv_offload_usage_ratio",
            labels=_TIER,
            unit="ratio",
            help=(
                "Share of an offload tier that is in use by transfers in flight and by hits; blocks that may be evicted "
                "count as free, so it is no measure of how much is kept. At 1 nothing more can be stored."
            ),
            sources=(
                _scrape(
                    "`vllm:kv_offload_cpu_cache_usage_perc`, `vllm:hisparse_host_cache_usage_perc`, "
                    "`vllm:simple_kv_offload_used_blocks` divided by `capacity_blocks`"
                ),
                _log("the same in `KV Transfer metrics`, but for the last"),
            ),
            feature="kv connector",
        ),
        _gauge(
            "kv_offload_used_bytes",
            labels=_TIER,
            unit="bytes",
            help="Bytes that LMCache keeps in a tier.",
            sources=(_scrape("`lmcache:local_cache_usage`, `…local_storage_usage`, `…remote_cache_usage`"),),
            feature="kv connector",
        ),
        _gauge(
            "kv_transfers_pending",
            labels=_MOVED,
            unit="transfers",
            help=(
                "Transfers that have started and not ended: jobs of tiers behind the CPU's memory, UMBP's objects, blocks "
                "that `simple_kv_offload` stores."
            ),
            sources=(
                _scrape(
                    "`vllm:kv_offload_tiering_active_promotion_jobs`, `…_active_cascade_jobs`, "
                    "`vllm:umbp_transfer_submitted_total` less those that ended, "
                    "`vllm:simple_kv_offload_pending_store_blocks`"
                ),
                _log("the same in `KV Transfer metrics`, but for UMBP"),
            ),
            feature="kv connector",
        ),
        _gauge(
            "kv_fetch_requests",
            labels=(*_ENGINE, "stage"),
            unit="requests",
            help=(
                "Waiting requests whose KV blocks are fetched: waiting_to_start, in_progress, completed_waiting (loaded, "
                "and not yet running). Of a server that reads KV blocks; vLLM 0.32 and later."
            ),
            sources=(
                _scrape("`vllm:num_requests_kv_fetch_by_stage`"),
                _log("`KV fetch`, which is printed only while there are any"),
            ),
            feature="kv connector",
        ),
    ),
)

FACTS = Group(
    "What the server is",
    (
        _gauge(
            "server_info",
            labels=(*_SERVER, "model_name", "version", "engine_generation", "pd_role"),
            unit="1",
            help=(
                "Always 1. The server's version and engine generation (V0, V1), and its role where several servers share "
                "a request by a KV connector: prefill, decode, both; a label is empty if it is unknown."
            ),
            sources=(
                _log(
                    "`Initializing a V1 LLM engine (v…)`, version lines and logo; `kv_role` in the arguments line or the "
                    "command line"
                ),
            ),
        ),
        _gauge(
            "server_config_info",
            labels=(*_SERVER, "model_name", *CONFIG_LABELS, "config"),
            unit="1",
            help=(
                "Always 1. The flags that the server runs with; a label is empty where no source has it. `config` is the "
                "same for all starts with the same flags and model."
            ),
            sources=(
                _log("the engine's configuration, its lines about one flag, the arguments line"),
                _scrape("`vllm:cache_config_info`"),
                _COMMAND_LINE,
            ),
            combine="each",
        ),
        _gauge(
            "server_config_change_timestamp_seconds",
            labels=(*_SERVER, "flag", "from", "to"),
            unit="unix time",
            help=(
                "Time of the last start with other flags, another model or another version: one series for each that "
                "changed; `from` or `to` is empty where it was not set. Absent while no change is known."
            ),
            sources=(_log("two starts"), _COMMAND_LINE, _scrape("`vllm:cache_config_info` before and after a restart")),
        ),
        _gauge(
            "kv_cache_capacity_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Capacity of the KV cache in tokens.",
            sources=(
                _log(
                    "`GPU KV cache size` (V0: blocks times block size; the sum if the lines are for all engines together)"
                ),
                _scrape("`vllm:cache_config_info` of a lone engine, from 0.24 on or of V0"),
            ),
        ),
        _gauge(
            "max_concurrency",
            labels=_ENGINE,
            unit="requests",
            help="Number of requests of maximum length that fit in the KV cache.",
            sources=(_log("`Maximum concurrency for … tokens per request`"), _scrape("`vllm:cache_config_info`")),
        ),
        _gauge(
            "max_running_requests",
            labels=_ENGINE,
            unit="requests",
            help="Maximum number of requests in a batch (`--max-num-seqs`), if it was given.",
            sources=(_log("the arguments line"), _COMMAND_LINE),
        ),
        _gauge(
            "max_model_len_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Maximum number of tokens of a request, prompt and output together.",
            sources=(_log("the engine's configuration, `Using max model len`"), _COMMAND_LINE),
        ),
        _gauge(
            "num_speculative_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Configured number of tokens per draft.",
            sources=(_log("the speculative configuration, V0's line on drafts"), _COMMAND_LINE),
        ),
        _gauge(
            "tensor_parallel_size",
            labels=_ENGINE,
            unit="1",
            help="Tensor parallel size.",
            sources=(_log("the engine's configuration"), _COMMAND_LINE),
        ),
        _gauge(
            "data_parallel_size",
            labels=_ENGINE,
            unit="1",
            help=(
                "Data parallel size. Absent if there are several engines and each reports a size of 1, as with dense "
                "models."
            ),
            sources=(_log("the arguments, the engine's configuration"), _COMMAND_LINE),
        ),
        _gauge(
            "api_servers",
            labels=_ENGINE,
            unit="processes",
            help="Processes of the API server (`--api-server-count`), if it was given: of several none prints statistics.",
            sources=(_log("the arguments line"),),
        ),
        _gauge(
            "pipeline_parallel_size",
            labels=_ENGINE,
            unit="1",
            help="Pipeline parallel size.",
            sources=(_log("the engine's configuration, the arguments line"), _COMMAND_LINE),
        ),
        _gauge(
            "max_batched_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Maximum number of tokens of an engine step (`--max-num-batched-tokens`), if it is printed or was given.",
            sources=(
                _log("`Chunked prefill is enabled with max_num_batched_tokens`, the arguments line"),
                _COMMAND_LINE,
            ),
        ),
        _gauge(
            "gpu_memory_utilization_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of a GPU's memory that an engine may use (`--gpu-memory-utilization`).",
            sources=(_scrape("`vllm:cache_config_info`"), _log("the arguments line"), _COMMAND_LINE),
        ),
        _gauge(
            "block_size_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens in a block of the KV cache.",
            sources=(
                _log("`Setting attention block size`"),
                _scrape("`vllm:cache_config_info`"),
                _log("the arguments line"),
                _COMMAND_LINE,
            ),
        ),
        _gauge(
            "model_weights_bytes",
            labels=_ENGINE,
            unit="bytes",
            help="Memory that the model takes on each device of an engine; of several workers the greatest.",
            sources=(_log("`Model loading took`, `Loading model weights took`"),),
        ),
        _gauge(
            "kv_cache_bytes",
            labels=_ENGINE,
            unit="bytes",
            help="Memory that the KV cache takes on each device of an engine; of several workers the smallest.",
            sources=(_log("`Available KV cache memory` (0.9.1 and later), on a CPU `Explicitly set`"),),
        ),
        _gauge(
            "startup_seconds",
            labels=(*_ENGINE, "phase"),
            unit="seconds",
            help=(
                "Time that the slowest worker took for a phase of the last start: `load` is `model_load_seconds`, `weights` "
                "a part of it, `init` the rest up to the first step; `compile` and `graphs` are parts of `init`."
            ),
            sources=(
                _log(
                    "`Model loading took`, `Loading weights took`, `torch.compile takes` or the compilation in `init engine`, `Graph capturing "
                    "finished`, `init engine`"
                ),
            ),
        ),
        _gauge(
            "model_load_seconds",
            labels=_ENGINE,
            unit="seconds",
            help="Time that the slowest worker took to load the model.",
            sources=(_log("`Model loading took`"),),
        ),
        _gauge(
            "server_start_timestamp_seconds",
            labels=_SERVER,
            unit="unix time",
            help="Time of the last server start.",
            sources=(
                _log("its version line, unless many lines without a time hide how old it is"),
                _scrape("`process_start_time_seconds`"),
            ),
        ),
        _gauge(
            "server_links_info",
            labels=(*_SERVER, "logs_url", "gpu_url"),
            unit="1",
            help=(
                "Always 1. Configured links to the server's logs and to a dashboard of its GPUs; a label is empty if "
                "there is none. {from} and {to} stand for a time."
            ),
            sources=(_configuration("`links`"),),
            feature="links",
        ),
        _gauge(
            "slo_time_to_first_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Configured objective for the time to first token.",
            sources=(_configuration("`slo`"),),
            feature="slo",
        ),
        _gauge(
            "slo_time_per_output_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Configured objective for the time per output token.",
            sources=(_configuration("`slo`"),),
            feature="slo",
        ),
        _gauge(
            "slo_bound_seconds",
            labels=(*_ENGINE, "objective"),
            unit="seconds",
            help=(
                "Bound that requests are compared with: the objective, or the next higher bucket bound of vLLM's "
                "histogram."
            ),
            sources=(_configuration("`slo`"), _scrape("buckets of the objective's histogram")),
            combine="all",
            feature="slo",
        ),
        _counter(
            "slo_requests_total",
            labels=(*_ENGINE, "objective", "bound"),
            unit="requests",
            help="Requests compared with an objective. A new bound starts a new counter.",
            sources=(_scrape("the objective's histogram"),),
            feature="slo",
        ),
        _counter(
            "slo_good_requests_total",
            labels=(*_ENGINE, "objective", "bound"),
            unit="requests",
            help="Requests within the bound given by `slo_bound_seconds`.",
            sources=(_scrape("the objective's histogram"),),
            feature="slo",
        ),
    ),
)

_capacity = partial(
    Series,
    type="gauge",
    labels=(*_ENGINE, "basis"),
    unit="tokens/s",
    sources=(_scrape("what the engine did since it was started"), _configuration("`capacity`, for the basis `bench`")),
    combine="each",
)

CAPACITY = Group(
    "How much the engine can carry",
    (
        _capacity(
            "capacity_estimate_tokens_per_second",
            help=(
                "How many tokens per second the engine generates at most, with requests as they were. Bases, the best "
                f"first: {'; '.join(f'{basis}, {meaning}' for basis, meaning in CAPACITY_BASES.items())}."
            ),
        ),
        _capacity(
            "capacity_estimate_lower_tokens_per_second",
            help="Lower bound of `capacity_estimate_tokens_per_second`. Plan with 70 to 85 % of it.",
        ),
        _capacity(
            "capacity_estimate_upper_tokens_per_second",
            help="Upper bound of `capacity_estimate_tokens_per_second`.",
        ),
        _capacity(
            "capacity_estimate_prompt_tokens_per_second",
            help=(
                "Prompt tokens that the engine computes per second while it generates "
                "`capacity_estimate_tokens_per_second`. With longer prompts it generates fewer."
            ),
        ),
        _gauge(
            "capacity_unknown_info",
            labels=(*_ENGINE, "reason"),
            unit="1",
            help=f"1 while there is no estimate on any basis, else absent. Reasons: {', '.join(CAPACITY_UNKNOWN)}.",
        ),
    ),
)

GPUS = Group(
    "The GPUs under the servers",
    (
        _gpu_gauge(
            "gpu_info",
            labels=(*_GPU, "index", "name", "pci_bus_id", "driver_version", "vendor", "mig"),
            unit="1",
            help="Always 1. A GPU that a watched server uses; `gpu` is its UUID, `index` may change when the machine boots.",
            sources=(_driver(),),
        ),
        _gpu_gauge(
            "gpus",
            labels=(),
            unit="GPUs",
            help="GPUs that the driver shows, used by watched servers or not; MIG instances do not count.",
            sources=(_driver(),),
        ),
        _gpu_gauge(
            "server_gpu_info",
            labels=(*_SERVER, "gpu", "how", "shared"),
            unit="1",
            help=(
                "Always 1. A GPU that a server uses, by a process of its own (`pid`) or by `gpus` in the configuration "
                "(`config`). `shared` is `true` where another watched server uses it too. It stays while the server is "
                "down, until its next start."
            ),
            sources=(_driver("processes on each GPU"), _configuration("`gpus`")),
        ),
        _gpu_gauge(
            "gpu_read_duration_seconds",
            labels=(),
            unit="s",
            help="How long the last reading of all GPUs took.",
            sources=(_driver(),),
        ),
        _gpu_gauge(
            "gpu_state",
            labels=(*_GPU, "state"),
            unit="1",
            help=f"1 for what the driver says of a GPU as a whole, else 0. States: {', '.join(GPU_STATES)}.",
            sources=(_driver("error codes of its calls"),),
        ),
        _gpu_gauge(
            "gpu_recovery_action",
            labels=(*_GPU, "action"),
            unit="1",
            help=f"1 for what the driver recommends to do with a GPU, else 0. Actions: {', '.join(GPU_ACTIONS)}.",
            sources=(_driver("field 230"),),
        ),
        _gpu_gauge(
            "gpu_busy_ratio",
            unit="ratio",
            help=(
                "Share of the last window (1/6 to 1 s) in which any kernel ran. Not how much of the GPU was used: one "
                "request that decodes, or a kernel that hangs, reads near 1."
            ),
            sources=(_driver(),),
        ),
        _gpu_gauge(
            "gpu_memory_busy_ratio",
            unit="ratio",
            help="Share of the last window in which memory was read or written. Not how full it is.",
            sources=(_driver(),),
        ),
        _gpu_gauge("gpu_memory_total_bytes", unit="bytes", help="Memory of the GPU.", sources=(_driver(),)),
        _gpu_gauge(
            "gpu_memory_used_bytes",
            unit="bytes",
            help="Memory in use, by all processes. vLLM takes its share at the start, so this says nothing about load.",
            sources=(_driver(),),
        ),
        _gpu_gauge(
            "gpu_process_memory_bytes",
            labels=(*_SERVER, "gpu"),
            unit="bytes",
            help="Memory of a GPU that the processes of a server have.",
            sources=(_driver("processes on each GPU"),),
        ),
        _gpu_gauge(
            "gpu_other_memory_bytes",
            unit="bytes",
            help="Memory of a GPU that processes of no watched server have.",
            sources=(_driver("processes on each GPU"),),
        ),
        _gpu_gauge("gpu_power_watts", unit="W", help="Power that the GPU draws.", sources=(_driver("field 185"),)),
        _gpu_gauge(
            "gpu_power_limit_watts", unit="W", help="Power limit that is enforced.", sources=(_driver("field 190"),)
        ),
        _gpu_counter(
            "gpu_energy_joules_total",
            unit="J",
            help="Energy that the GPU has used since its driver was loaded.",
            sources=(_driver("field 83"),),
        ),
        _gpu_gauge(
            "gpu_temperature_celsius",
            labels=(*_GPU, "sensor"),
            unit="°C",
            help="Temperature of the `core` and of the `memory`.",
            sources=(_driver("field 82 of the memory"),),
        ),
        _gpu_gauge("gpu_sm_clock_hertz", unit="Hz", help="Clock of the multiprocessors.", sources=(_driver(),)),
        _gpu_gauge("gpu_sm_clock_max_hertz", unit="Hz", help="Highest clock that is possible.", sources=(_driver(),)),
        _gpu_counter(
            "gpu_throttled_seconds_total",
            labels=(*_GPU, "reason"),
            unit="s",
            help=(
                f"Time in which clocks were lowered, by reason: {', '.join(GPU_THROTTLING)}. `power_cap` is normal during "
                "a prefill."
            ),
            sources=(_driver("fields 74 to 77, 79, 269 to 271"),),
        ),
        _gpu_counter(
            "gpu_ecc_errors_total",
            labels=(*_GPU, "kind", "lifetime"),
            unit="errors",
            help="Errors of memory, `corrected` or `uncorrected`, since the driver was loaded (`boot`) or ever (`life`).",
            sources=(_driver("fields 3 to 6"),),
        ),
        _gpu_gauge(
            "gpu_remapped_rows",
            labels=(*_GPU, "kind"),
            unit="rows",
            help="Rows of memory that spare ones have replaced, after `corrected` or `uncorrected` errors.",
            sources=(_driver("fields 142, 143"),),
        ),
        _gpu_gauge(
            "gpu_row_remap_pending",
            unit="1",
            help="Whether a row will be replaced at the next reset.",
            sources=(_driver("field 144"),),
        ),
        _gpu_gauge(
            "gpu_row_remap_failed",
            unit="1",
            help="Whether a row could not be replaced: the GPU has to be exchanged.",
            sources=(_driver("field 145"),),
        ),
        _gpu_gauge(
            "gpu_nvlink_active_links",
            unit="links",
            help="NVLinks that are up. Absent on a GPU without any.",
            sources=(_driver("field 165"),),
        ),
        _gpu_counter(
            "gpu_nvlink_errors_total",
            labels=(*_GPU, "kind"),
            unit="errors",
            help=f"Errors of all NVLinks: {', '.join(GPU_LINK_ERRORS)}.",
            sources=(_driver("fields 161 to 163, 213, 214"),),
        ),
        _gpu_counter(
            "gpu_nvlink_bytes_total",
            labels=(*_GPU, "direction"),
            unit="bytes",
            help="Data over all NVLinks, `tx` and `rx`.",
            sources=(_driver("fields 138, 139, 202, 204"),),
        ),
        _gpu_counter(
            "gpu_pcie_errors_total",
            labels=(*_GPU, "kind"),
            unit="errors",
            help=f"Errors of the PCIe link: {', '.join(GPU_PCIE_ERRORS)}.",
            sources=(_driver("fields 94, 173, 179, 180"),),
        ),
        _gpu_counter(
            "gpu_pcie_bytes_total",
            labels=(*_GPU, "direction"),
            unit="bytes",
            help="Data over the PCIe link, `tx` and `rx`.",
            sources=(_driver("fields 197, 198"),),
        ),
        _gpu_counter(
            "gpu_xid_events_total",
            labels=(*_GPU, "pci_bus_id", "xid", "class"),
            unit="events",
            help=(
                "Xid errors that the kernel reported since this daemon started, by code; codes without a number are "
                "errors of NVSwitches and AMD's. `class` says what to do: "
                f"{', '.join(XID_CLASSES)}. `gpu` is empty while the UUID is not known. One event prints many lines; it "
                "counts once. A code is there from its first event: alert on gpu_xid_last_timestamp_seconds, or on "
                'log_events_total{event="gpu_xid"}, which starts at 0.'
            ),
            sources=(_KERNEL_LOG,),
        ),
        _gpu_gauge(
            "gpu_xid_last_timestamp_seconds",
            labels=(*_GPU, "pci_bus_id", "xid", "class"),
            unit="unix time",
            help="Time of the last such event, since the machine booted.",
            sources=(_KERNEL_LOG,),
        ),
        _gauge(
            "kernel_log_up",
            labels=(),
            unit="1",
            help=(
                "Whether the kernel's log can be read, which has the Xid errors. Absent where it is not read: without "
                "GPUs, or with `kernel_log: never`."
            ),
            sources=(_KERNEL_LOG,),
            feature="gpu",
        ),
        _gauge(
            "kernel_log_info",
            labels=("place", "reason"),
            unit="1",
            help="Always 1. `place` is `journal` or `/dev/kmsg`; `reason` is `ok`, or why the kernel's log is not read.",
            sources=(_KERNEL_LOG,),
            feature="gpu",
        ),
        _gauge(
            "server_cost_per_hour",
            labels=_SERVER,
            unit="currency units per hour",
            help="What the server costs in an hour, in whatever currency the configuration has.",
            sources=(_configuration("`cost_per_hour`"),),
            feature="cost",
        ),
    ),
)

WORK = Group(
    "Work, adapters and connections",
    (
        _gauge(
            "achieved_flops_per_second",
            labels=_ENGINE,
            unit="operations/s",
            help="Floating point operations per second of each device of the engine, as vLLM estimates them from the shapes of the model. It is no measurement. Absent without `--enable-mfu-metrics`.",
            sources=(
                _scrape("rate of `vllm:estimated_flops_per_gpu_total` over 10 s or more, 0.17 and later"),
                _log("`MFU: … TF/s/GPU`, 0.14 and later, unless the line before was of an earlier interval"),
            ),
        ),
        _gauge(
            "achieved_memory_bytes_per_second",
            labels=_ENGINE,
            unit="bytes/s",
            help="Bytes per second that each device of the engine reads from and writes to its memory, as vLLM estimates them.",
            sources=(
                _scrape("rate of `vllm:estimated_read_bytes_per_gpu_total` and `…_write_bytes…` together"),
                _log("`MFU: … GB/s/GPU`"),
            ),
        ),
        _gauge(
            "achieved_read_bytes_per_second",
            labels=_ENGINE,
            unit="bytes/s",
            help="Bytes read of these.",
            sources=(_scrape("rate of `vllm:estimated_read_bytes_per_gpu_total`"),),
        ),
        _gauge(
            "achieved_write_bytes_per_second",
            labels=_ENGINE,
            unit="bytes/s",
            help="Bytes written of these.",
            sources=(_scrape("rate of `vllm:estimated_write_bytes_per_gpu_total`"),),
        ),
        _gauge(
            "flops_utilization_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Model FLOPs utilization (MFU): achieved_flops_per_second as a share of the configured peak of a device.",
            sources=(
                _configuration("`peak_flops`"),
                _scrape("achieved_flops_per_second"),
            ),
            feature="peak_flops",
        ),
        _histogram(
            "kv_block_lifetime_seconds",
            unit="seconds",
            help="Time from the allocation of a block of the KV cache to its eviction. Of a sample of the blocks, 1 % by default: only the shape means something.",
            sources=(_scrape("`vllm:kv_block_lifetime_seconds`, with `--kv-cache-metrics`, 0.12 and later"),),
        ),
        _histogram(
            "kv_block_idle_before_evict_seconds",
            unit="seconds",
            help="Time that a block of the KV cache had not been used when it was evicted. Of a sample of the blocks.",
            sources=(_scrape("`vllm:kv_block_idle_before_evict_seconds`"),),
        ),
        _histogram(
            "kv_block_reuse_gap_seconds",
            unit="seconds",
            help="Time between two uses of a block of the KV cache. Of a sample of the blocks that were evicted.",
            sources=(_scrape("`vllm:kv_block_reuse_gap_seconds`"),),
        ),
        _counter(
            "corrupted_requests_total",
            labels=_ENGINE,
            unit="requests",
            help="Requests whose logits had a NaN: their answers are wrong. Only with VLLM_COMPUTE_NANS_IN_LOGITS=1, 0.11.1 and later.",
            sources=(_scrape("`vllm:corrupted_requests_total`"),),
            feature="nan",
        ),
        _counter(
            "prompt_tokens_cached_by_source_total",
            labels=(*_ENGINE, "source"),
            unit="tokens",
            help="Prompt tokens found in a cache when a request was admitted, by where that is: device, host, p2p, disk, external_unspecified. A preempted request counts again, so that it is no part of prompt_tokens_by_source_total. vLLM 0.32 and later.",
            sources=(_scrape("`vllm:prompt_tokens_cached_by_source_total`"),),
        ),
        _counter(
            "watermark_requests_total",
            labels=(*_ENGINE, "status"),
            unit="requests",
            help="Finished requests by what became of their watermark: watermarked, skipped, not_watermarked. Only with `--watermark-config`, 0.32 and later.",
            sources=(_scrape("`vllm:watermark_requests_total`"),),
        ),
        _gauge(
            "diffusion_committed_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Tokens per second that a diffusion language model commits.",
            sources=(
                _scrape("rate of `vllm:diffusion_num_committed_tokens_total`, 0.24 and later"),
                _log("`DiffusionDecoding metrics`"),
            ),
        ),
        _gauge(
            "diffusion_tokens_per_step",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens that a diffusion language model commits per denoising step, recently.",
            sources=(
                _scrape("committed tokens divided by denoising steps"),
                _log("`DiffusionDecoding metrics`"),
            ),
        ),
        _counter(
            "diffusion_committed_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens that a diffusion language model has committed.",
            sources=(
                _scrape("`vllm:diffusion_num_committed_tokens_total`"),
                _log("the sum of `DiffusionDecoding metrics`"),
            ),
        ),
        _counter(
            "diffusion_denoising_steps_total",
            labels=_ENGINE,
            unit="steps",
            help="Denoising steps of a diffusion language model.",
            sources=(
                _scrape("`vllm:diffusion_num_denoising_steps_total`"),
                _log("the sum of `DiffusionDecoding metrics`"),
            ),
        ),
        _counter(
            "diffusion_canvas_positions_total",
            labels=_ENGINE,
            unit="positions",
            help="Positions of canvases that a diffusion language model has evaluated.",
            sources=(
                _scrape("`vllm:diffusion_num_canvas_positions_total`"),
                _log("the sum of `DiffusionDecoding metrics`"),
            ),
        ),
        _gauge(
            "requests_swapped",
            labels=_ENGINE,
            unit="requests",
            help="Requests whose KV cache is in the memory of the CPU. V0 only.",
            sources=(
                _scrape("`vllm:num_requests_swapped`"),
                _log("`Swapped`"),
            ),
        ),
        _gauge(
            "cpu_kv_cache_usage_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of the space for swapped requests in use. V0 only.",
            sources=(
                _scrape("`vllm:cpu_cache_usage_perc`"),
                _log("`CPU KV cache usage` beside that of the GPU"),
            ),
        ),
        _gauge(
            "cpu_prefix_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried blocks that were in the prefix cache on the CPU, since the start. V0 only; absent where there is none.",
            sources=(
                _scrape("`vllm:cpu_prefix_cache_hit_rate`"),
                _log("`Prefix cache hit rate: …, CPU`"),
            ),
        ),
        _gauge(
            "spec_decode_system_efficiency_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of the tokens that speculative decoding could have emitted which it has, since the start. V0 only.",
            sources=(
                _scrape("`vllm:spec_decode_efficiency`"),
                _log("`Speculative metrics`, `System efficiency`"),
            ),
        ),
        _counter(
            "spec_decode_emitted_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens that speculative decoding has emitted. V0 only, whose /metrics counts them wrongly.",
            sources=(_log("`Speculative metrics`, `Number of emitted tokens`"),),
        ),
        _gauge(
            "lora_active_adapters",
            labels=_SERVER,
            unit="adapters",
            help="Number of LoRA adapters that have requests: on V1 also of those that only wait, so that it can be more than lora_max_adapters, on V0 of running ones. A name with commas counts as several. Absent where /metrics cannot tell, as lora_active_unknown_info says.",
            sources=(_scrape("the newest series of `vllm:lora_requests_info`"),),
            feature="lora",
        ),
        _gauge(
            "lora_active_unknown_info",
            labels=(*_SERVER, "reason"),
            unit="1",
            help=(
                "1 while lora_active_adapters is not known although adapters have had requests, else absent. Reasons: "
                f"{', '.join(LORA_UNKNOWN)}. Engines write over each other's lists, and processes add up their times. "
                "vLLM keeps each list of adapters that ever had requests together until it is restarted: of more than "
                f"{MAX_LORA_BYTES // 1024**2} MiB none is read."
            ),
            sources=(_scrape("`vllm:lora_requests_info`"),),
            feature="lora",
        ),
        _gauge(
            "lora_max_adapters",
            labels=_SERVER,
            unit="adapters",
            help="Number of LoRA adapters that a batch may use (`--max-loras`). Requests for others wait until one is no longer used.",
            sources=(_scrape("`max_lora` of `vllm:lora_requests_info`, from the first request on"),),
            feature="lora",
        ),
        _counter(
            "lora_adapter_changes_total",
            labels=(*_SERVER, "change"),
            unit="adapters",
            help="LoRA adapters that were loaded and removed; there from the first one on.",
            sources=(_log("`Loaded new LoRA adapter`, `Removed LoRA adapter`"),),
        ),
        _counter(
            "tool_parser_calls_total",
            labels=(*_SERVER, "mode", "outcome"),
            unit="calls",
            help="Calls of the parser of tool calls by outcome: tool_call, no_tool_call. One for each answer where `mode` is non_streaming, one for each piece of an answer where it is streaming. An error of the parser counts as no_tool_call. vLLM 0.24 and later.",
            sources=(_scrape("`vllm:tool_call_parser_invocations_total`"),),
        ),
        _gauge(
            "sleep_operations_in_flight",
            labels=(*_SERVER, "operation"),
            unit="operations",
            help="Calls to put the server to sleep or to wake it up that are not answered yet: no token comes meanwhile, and the engine does not count as stalled for ten minutes. vLLM 0.32 and later.",
            sources=(_scrape("`vllm:sleep_mode_operations_in_flight`"),),
        ),
        _gauge(
            "weight_update_operations_in_flight",
            labels=(*_SERVER, "operation"),
            unit="operations",
            help="Updates of the weights by a trainer that are not complete: no token comes meanwhile, and the engine does not count as stalled for ten minutes. vLLM 0.32 and later.",
            sources=(_scrape("`vllm:rl_weight_update_operations_in_flight`"),),
        ),
        _histogram(
            "sleep_operation_duration_seconds",
            labels=(*_SERVER, "operation"),
            unit="seconds",
            help="Time that a call to put the server to sleep or to wake it up took.",
            sources=(_scrape("`vllm:sleep_mode_operation_duration_seconds`"),),
        ),
        _histogram(
            "weight_update_operation_duration_seconds",
            labels=(*_SERVER, "operation"),
            unit="seconds",
            help="Time that an update of the weights by a trainer took.",
            sources=(_scrape("`vllm:rl_weight_update_operation_duration_seconds`"),),
        ),
        _gauge(
            "websocket_connections_active",
            labels=_SERVER,
            unit="connections",
            help="WebSocket connections that are open (realtime endpoint).",
            sources=(_scrape("`vllm:websocket_connections_active`, 0.18 and later"),),
        ),
        _counter(
            "websocket_connections_total",
            labels=_SERVER,
            unit="connections",
            help="WebSocket connections that were opened.",
            sources=(_scrape("`vllm:websocket_connections_total`"),),
        ),
        _histogram(
            "websocket_connection_duration_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Time that a WebSocket connection was open.",
            sources=(_scrape("`vllm:websocket_connection_duration_seconds`"),),
        ),
        _gauge(
            "server_process_open_fds",
            labels=_SERVER,
            unit="files",
            help="Open files and connections of the API server's process. Absent with several processes, as the next three.",
            sources=(_scrape("`process_open_fds`"),),
        ),
        _gauge(
            "server_process_max_fds",
            labels=_SERVER,
            unit="files",
            help="The most that it may have open; at this number it accepts no connection.",
            sources=(_scrape("`process_max_fds`"),),
        ),
        _gauge(
            "server_process_resident_memory_bytes",
            labels=_SERVER,
            unit="bytes",
            help="Memory of the API server's process; the engine's is another one.",
            sources=(_scrape("`process_resident_memory_bytes`"),),
        ),
        _counter(
            "server_process_cpu_seconds_total",
            labels=_SERVER,
            unit="seconds",
            help="Processor time of the API server's process: near one second a second it holds the engine up.",
            sources=(_scrape("`process_cpu_seconds_total`"),),
        ),
    ),
)

STATE = Group(
    "State",
    (
        _gauge(
            "engine_state",
            labels=(*_ENGINE, "state"),
            unit="1",
            help=f"1 for the engine's current state, 0 for the others: {', '.join(ENGINE_STATES)}.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _gauge(
            "engine_stall_info",
            labels=(*_ENGINE, "reason"),
            unit="1",
            help=f"1 while the engine is stalled, else absent. Reasons: {', '.join(STALL_REASONS)}.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _gauge(
            "engine_down_info",
            labels=(*_ENGINE, "reason"),
            unit="1",
            help=f"1 while the engine is down and how it ended is known, else absent. Reasons: {', '.join(DOWN)}.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
    ),
)

SOURCES = Group(
    "Sources",
    (
        _gauge(
            "source_up",
            labels=(*_SERVER, "source"),
            unit="1",
            help=(
                "Whether a source can be read (log, metrics, gpu); for `probe`, whether the last probe returned a token."
            ),
        ),
        _gauge(
            "source_info",
            labels=(*_SERVER, "source", "reason"),
            unit="1",
            help="Always 1. `reason` gives the state of a source, or why it reports nothing.",
        ),
        _gauge(
            "metrics_page_info",
            labels=(*_SERVER, "engine_kind"),
            unit="1",
            help=(
                "Always 1, while /metrics is read. `engine_kind` is whose names it bears: `vllm`, `ray_vllm` of Ray's "
                "agent, or `kserve_vllm`."
            ),
        ),
        _gauge(
            "source_last_reading_timestamp_seconds",
            labels=(*_SERVER, "source"),
            unit="unix time",
            help="Time of the last values from a source.",
        ),
        _gauge(
            "source_value",
            labels=(*_ENGINE, "source", "quantity"),
            unit="as the quantity",
            help="Value of the main quantities as each source reports it, for comparison.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _gauge(
            "source_disagreement",
            labels=(*_ENGINE, "quantity"),
            unit="1",
            help=(
                "Whether the log and /metrics have disagreed for minutes: of the log lines of the last 5 min, "
                "at least 6 and at least a third differ much from the scrapes around them; for `engine_state`, the "
                "server still answers although its log reported its end. /metrics is used; check that both are of the "
                "same server."
            ),
            sources=(_scrape(), _log()),
            combine="all",
        ),
        _gauge(
            "required_metric_missing",
            labels=(*_SERVER, "metric"),
            unit="1",
            help="Whether /metrics lacks a quantity that the server should export.",
            sources=(_scrape(),),
        ),
        _counter(
            "refused_values_total",
            labels=(*_SERVER, "source", "quantity"),
            unit="values",
            help="Values out of range, which are ignored.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _counter(
            "unknown_field_total",
            labels=(*_SERVER, "field"),
            unit="fields",
            help="Unknown fields in statistics lines, at most 20 different ones.",
            sources=(_log(),),
        ),
        _counter(
            "unparsed_stats_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines from a statistics call site that could not be parsed.",
            sources=(_log(),),
        ),
        _counter(
            "continuation_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines inside a multi-line record; a line that continues a record is never parsed as statistics.",
            sources=(_log(),),
        ),
        _counter(
            "log_lines_rejected_total",
            labels=_SERVER,
            unit="lines",
            help=(
                "Lines that look like vLLM's own but are in the wrong place: inside a record, from a call site that "
                "logs client input, or with another program's prefix. They may be forged."
            ),
            sources=(_log(),),
        ),
        _counter(
            "label_values_dropped_total",
            labels=(*_SERVER, "source"),
            unit="names",
            help=(
                "Label values (engines, models, fields, ...) dropped because a line or a scrape has more than the "
                "limit; their series are not exported."
            ),
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _counter(
            "scrape_long_lines_total",
            labels=_SERVER,
            unit="lines",
            help=(
                "Lines of /metrics over 16 KiB, skipped but for the newest: label sets of LoRA adapters, of which only "
                "the number is read."
            ),
            sources=(_scrape(),),
        ),
        _counter(
            "log_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Log lines read.",
            sources=(_log(),),
        ),
        _counter(
            "log_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help="Log bytes read.",
            sources=(_log(),),
        ),
        _gauge(
            "log_lag_bytes",
            labels=_SERVER,
            unit="bytes",
            help="Log bytes not read yet, including an unfinished line.",
            sources=(_log(),),
        ),
        _counter(
            "log_truncations_total",
            labels=_SERVER,
            unit="truncations",
            help="Log truncations or rewrites: data that had been read was no longer in the file.",
            sources=(_log(),),
        ),
        _counter(
            "log_rotations_total",
            labels=_SERVER,
            unit="rotations",
            help="Log rotations: the path named a new file.",
            sources=(_log(),),
        ),
        _counter(
            "log_files_lost_total",
            labels=_SERVER,
            unit="files",
            help="Rotated log files that disappeared, or could not be read, before they were read to the end.",
            sources=(_log(),),
        ),
        _counter(
            "log_long_lines_total",
            labels=_SERVER,
            unit="lines",
            help=(
                "Log lines dropped because they were over 64 KiB, or because a container runtime split them and the "
                "first part is missing."
            ),
            sources=(_log(),),
        ),
        _counter(
            "log_nul_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help="NUL bytes removed from the log; the log's writer does not append (`>` instead of `>>`).",
            sources=(_log(),),
        ),
        _counter(
            "log_skipped_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help=(
                "Log bytes skipped: a backlog over the limit, lines cut off by a truncation or never finished, "
                "truncated journal entries."
            ),
            sources=(_log(),),
        ),
        _counter(
            "log_read_errors_total",
            labels=_SERVER,
            unit="errors",
            help="Failed attempts to open or read an existing log.",
            sources=(_log(),),
        ),
        _gauge(
            "log_ignored_files",
            labels=_SERVER,
            unit="files",
            help="Files matching the log glob that are not followed; only the 64 most recently modified are.",
            sources=(_log(),),
        ),
        _gauge(
            "log_watch_info",
            labels=(*_SERVER, "mode"),
            unit="1",
            help=(
                "Always 1. How changes to the log files are noticed. events: notifications from the kernel, and while "
                "there are many, several checks a second instead; poll: a check every second, or several while the log "
                "grows."
            ),
        ),
        _gauge(
            "scrape_duration_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Duration of the last scrape.",
            sources=(_scrape(),),
        ),
        _gauge(
            "probe_success",
            labels=_SERVER,
            unit="1",
            help="Whether the last probe, a completion of one token, returned its token and ended in time.",
            sources=(_probe(),),
        ),
        _gauge(
            "probe_time_to_first_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Time to first token of the last probe, including the connection; absent if the probe failed.",
            sources=(_probe(),),
        ),
    ),
)

DAEMON = Group(
    "The daemon itself",
    (
        _gauge(
            "build_info",
            labels=("version", "python_version"),
            unit="1",
            help="Always 1. This daemon's version.",
        ),
        _gauge(
            "config_last_reload_successful",
            labels=(),
            unit="1",
            help="Whether the last load of the configuration and of the web configuration file succeeded.",
        ),
        _gauge(
            "config_last_reload_success_timestamp_seconds",
            labels=(),
            unit="unix time",
            help="Time of the last successful load of the configuration.",
        ),
        _counter(
            "config_reload_failures_total",
            labels=(),
            unit="reloads",
            help="Rejected reloads of the configuration or the web configuration file; the previous one stays in use.",
        ),
        _gauge(
            "checkpoint_info",
            labels=("reason",),
            unit="1",
            help="Always 1. Whether the checkpoint was used at the start (`ok`), or why not.",
        ),
        _counter(
            "checkpoint_failures_total",
            labels=(),
            unit="attempts",
            help="Failed checkpoint writes. Reading continues, but a restart may re-read lines.",
        ),
        _counter(
            "otlp_exports_total",
            labels=("outcome",),
            unit="exports",
            help="Exports over OTLP by how they ended: `ok`, or why the endpoint has not got the values of that moment: "
            f"{', '.join(outcome for outcome in OTLP_OUTCOMES if outcome != 'ok')}.",
            feature="otlp",
        ),
        _gauge(
            "otlp_last_success_timestamp_seconds",
            labels=(),
            unit="unix time",
            help="Time of the last export over OTLP that was accepted as a whole.",
            feature="otlp",
        ),
        _gauge(
            "otlp_export_duration_seconds",
            labels=(),
            unit="seconds",
            help="How long the last export over OTLP took, whether or not it succeeded.",
            feature="otlp",
        ),
        _counter(
            "collect_errors_total",
            labels=_SERVER,
            unit="errors",
            help="Internal errors while collecting a server's series; see the daemon's log.",
        ),
        _counter(
            "internal_errors_total",
            labels=("part",),
            unit="errors",
            help=(
                "Internal errors of the daemon, by part; the part continues, and the daemon's log has the error. Parts: "
                f"{', '.join(PARTS)}."
            ),
        ),
        _gauge(
            "discovery_hanging_processes",
            labels=(),
            unit="processes",
            help=(
                "Processes that discovery skips because reading their details hangs. At "
                f"{MAX_HANGING_PROCESSES} no new server is found. Absent if servers are not discovered."
            ),
        ),
        _gauge(
            "kubernetes_up",
            labels=(),
            unit="1",
            help=(
                "Whether the pods could be listed the last time. While they cannot, those of the last list stay watched. "
                "Absent without `kubernetes` in the configuration."
            ),
            feature="kubernetes",
        ),
        _gauge(
            "kubernetes_info",
            labels=("reason",),
            unit="1",
            help="Always 1. `reason` is `ok`, or why the pods are not listed.",
            feature="kubernetes",
        ),
        _gauge(
            "kubernetes_last_list_timestamp_seconds",
            labels=(),
            unit="unix time",
            help="Time of the last good list of pods. Absent before the first.",
            feature="kubernetes",
        ),
        _gauge(
            "kubernetes_pods",
            labels=("state",),
            unit="pods",
            help=f"Pods that the selector matches, by what becomes of them: {', '.join(POD_STATES)}. Absent while the pods "
            "cannot be listed.",
            feature="kubernetes",
        ),
        _gauge(
            "kubernetes_server_info",
            labels=_SERVER,
            unit="1",
            help="Always 1: the server is a pod that Kubernetes has listed. When the pod goes, so do all its series.",
            feature="kubernetes",
        ),
        _gauge(
            "heartbeat_timestamp_seconds",
            labels=("thread",),
            unit="unix time",
            help="Time of the last heartbeat of each of the daemon's threads.",
        ),
    ),
)

GROUPS: tuple[Group, ...] = (NOW, DONE, LATENCY, WORK, KV, FACTS, CAPACITY, GPUS, STATE, SOURCES, DAEMON)

SERIES: dict[str, Series] = {series.name: series for group in GROUPS for series in group.series}
"""All series, by name without the prefix."""
