# SPDX-License-Identifier: Apache-2.0
"""
Every series that vllm-watch shows: its name, type, labels, unit, meaning and where its value comes from.

Names are given without the prefix; counters with their ``_total``. `daemon/METRICS.md` is made from this table, and
a test holds that nothing else is ever shown.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from vllm_watch.discovery.patience import MAX_HANGING
from vllm_watch.state.snapshot import ENGINE_STATES, STALL_REASONS
from vllm_watch.support.internal_errors import PARTS


PREFIX = "vllm_watch_"

SeriesType = Literal["gauge", "counter", "histogram"]

_ENGINE = ("server", "model_name", "engine")
_SERVER = ("server",)


class Series(NamedTuple):
    """One family. `help` is one sentence in the terms of Prometheus; `origin` says where values come from."""

    name: str
    type: SeriesType
    labels: tuple[str, ...]
    unit: str
    help: str
    origin: str

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name

    @property
    def family(self) -> str:
        """The family's name without the prefix: OpenMetrics has a counter's without its ``_total``."""
        return self.name.removesuffix("_total")


class Group(NamedTuple):
    """Series that belong together."""

    title: str
    series: tuple[Series, ...]


def _gauge(name: str, labels: tuple[str, ...], unit: str, meaning: str, origin: str) -> Series:
    return Series(name, "gauge", labels, unit, meaning, origin)


def _counter(name: str, labels: tuple[str, ...], unit: str, meaning: str, origin: str) -> Series:
    return Series(name, "counter", labels, unit, meaning, origin)


def _histogram(name: str, unit: str, meaning: str, origin: str) -> Series:
    return Series(name, "histogram", _ENGINE, unit, meaning, origin)


_BOTH = "scrape, else the log's statistics line: "
_COMMAND = "; else the command line of a server that `run` has discovered"
_SPEC = "scrape, else the log's `SpecDecoding metrics` line: "

NOW = Group(
    "What the engine does now",
    (
        _gauge(
            "prompt_tokens_per_second",
            _ENGINE,
            "tokens/s",
            "Prompt tokens computed per second; since vLLM 0.16 without cached ones, before it with them.",
            _BOTH + 'rate of `vllm:prompt_tokens_by_source_total{source="local_compute"}` (before 0.16 '
            "`vllm:prompt_tokens_total`) over 10 s or more, or all less cached ones; `Avg prompt throughput`",
        ),
        _gauge(
            "generation_tokens_per_second",
            _ENGINE,
            "tokens/s",
            "Tokens generated per second.",
            _BOTH + "rate of `vllm:generation_tokens_total` over 10 s or more; `Avg generation throughput`",
        ),
        _gauge(
            "requests_running",
            _ENGINE,
            "requests",
            "Requests in the running batch.",
            _BOTH + "`vllm:num_requests_running`; `Running`",
        ),
        _gauge(
            "requests_waiting",
            _ENGINE,
            "requests",
            "Requests that wait, deferred ones included.",
            _BOTH + "`vllm:num_requests_waiting`; `Waiting` (V0 `Pending`)",
        ),
        _gauge(
            "requests_deferred",
            _ENGINE,
            "requests",
            "Waiting requests that wait for something other than capacity (LoRA, KV transfer). vLLM 0.20 and later.",
            _BOTH + '`vllm:num_requests_waiting_by_reason{reason="deferred"}`; `Deferred`',
        ),
        _gauge(
            "kv_cache_usage_ratio",
            _ENGINE,
            "ratio",
            "Share of the KV cache that is in use, 1 is full.",
            _BOTH + "`vllm:kv_cache_usage_perc`, `vllm:gpu_cache_usage_perc`; `GPU KV cache usage`",
        ),
        _gauge(
            "prefix_cache_hit_ratio",
            _ENGINE,
            "ratio",
            "Share of queried prompt tokens found in the prefix cache, recently (V0: since the start).",
            _BOTH + "increase of `vllm:prefix_cache_hits_total` by `…_queries_total` over the last 10 s to 60 s in "
            "which there were queries; `Prefix cache hit rate` of up to 1000 requests",
        ),
        _gauge(
            "external_prefix_cache_hit_ratio",
            _ENGINE,
            "ratio",
            "Share of queried prompt tokens found in an external KV cache, recently.",
            _BOTH + "`vllm:external_prefix_cache_hits_total` by `…_queries_total`; `External prefix cache hit rate`",
        ),
        _gauge(
            "mm_cache_hit_ratio",
            _ENGINE,
            "ratio",
            "Share of queried multimodal items found in the multimodal cache, recently.",
            _BOTH + "`vllm:mm_cache_hits_total` by `…_queries_total`; `MM cache hit rate`",
        ),
        _gauge(
            "spec_decode_mean_acceptance_length",
            _ENGINE,
            "tokens",
            "Tokens per engine step and request with speculative decoding (MTP …), the bonus token included: 1 is no gain.",
            _SPEC + "1 + accepted tokens by drafts over the last 10 s to 60 s; `Mean acceptance length`",
        ),
        _gauge(
            "spec_decode_acceptance_ratio",
            _ENGINE,
            "ratio",
            "Share of drafted tokens that were accepted, recently (V0: since the start).",
            _SPEC + "accepted by drafted tokens; `Avg Draft acceptance rate`",
        ),
        _gauge(
            "spec_decode_position_acceptance_ratio",
            (*_ENGINE, "position"),
            "ratio",
            "Share of drafts whose token at this position was accepted, 0 is the first.",
            _SPEC + "`vllm:spec_decode_num_accepted_tokens_per_pos_total` by drafts; `Per-position acceptance rate`",
        ),
        _gauge(
            "spec_decode_accepted_tokens_per_second",
            _ENGINE,
            "tokens/s",
            "Drafted tokens accepted per second.",
            _SPEC + "rate of `vllm:spec_decode_num_accepted_tokens_total`; `Accepted throughput`",
        ),
        _gauge(
            "spec_decode_drafted_tokens_per_second",
            _ENGINE,
            "tokens/s",
            "Tokens drafted per second.",
            _SPEC + "rate of `vllm:spec_decode_num_draft_tokens_total`; `Drafted throughput`",
        ),
        _gauge(
            "last_token_timestamp_seconds",
            _ENGINE,
            "unix time",
            "When a generated token was last seen.",
            "either source, the later: a growing `vllm:generation_tokens_total`; a statistics line with tokens",
        ),
        _gauge(
            "latency_quantile_seconds",
            (*_ENGINE, "stage", "quantile"),
            "seconds",
            "Quantiles of the last minute by stage of a request, for those without Prometheus; linear within a bucket, and "
            "absent in the first one: below `latency_first_bound_seconds`.",
            "scrape: the histograms' increase over the last minute",
        ),
        _gauge(
            "latency_mean_seconds",
            (*_ENGINE, "stage"),
            "seconds",
            "Mean of the last minute by stage of a request: exact, where a quantile is an estimate within a wide bucket.",
            "scrape: the increase of the histograms' sum by that of their count over the last minute",
        ),
        _gauge(
            "latency_first_bound_seconds",
            (*_ENGINE, "stage"),
            "seconds",
            "Upper bound of the first bucket that a stage's histogram has: quantiles below it cannot be told.",
            "scrape: the histograms' buckets",
        ),
    ),
)

DONE = Group(
    "What the engine has done",
    (
        _counter(
            "prompt_tokens_total",
            _ENGINE,
            "tokens",
            "Prompt tokens processed, cached ones included.",
            "scrape: `vllm:prompt_tokens_total`",
        ),
        _counter(
            "generation_tokens_total", _ENGINE, "tokens", "Tokens generated.", "scrape: `vllm:generation_tokens_total`"
        ),
        _counter(
            "spec_decode_drafts_total",
            _ENGINE,
            "drafts",
            "Drafts made by speculative decoding.",
            "scrape: `vllm:spec_decode_num_drafts_total`",
        ),
        _counter(
            "spec_decode_draft_tokens_total",
            _ENGINE,
            "tokens",
            "Tokens drafted.",
            "scrape: `vllm:spec_decode_num_draft_tokens_total`; without a scrape the log's `Drafted`, added up",
        ),
        _counter(
            "spec_decode_accepted_tokens_total",
            _ENGINE,
            "tokens",
            "Drafted tokens accepted.",
            "scrape: `vllm:spec_decode_num_accepted_tokens_total`; without a scrape the log's `Accepted`, added up",
        ),
        _counter(
            "preemptions_total",
            _ENGINE,
            "preemptions",
            "Requests put back for want of KV cache.",
            "scrape: `vllm:num_preemptions_total`; without a scrape the Rust front end's `Preemptions`, added up (the Python "
            "server prints none)",
        ),
        _counter(
            "requests_finished_total",
            (*_ENGINE, "reason"),
            "requests",
            "Requests finished, by reason (stop, length, abort …).",
            "scrape: `vllm:request_success_total`",
        ),
        _counter(
            "admission_rejections_total",
            (*_SERVER, "model_name", "reason"),
            "requests",
            "Requests refused because the queue was full. vLLM 0.32 and later.",
            "scrape: `vllm:admission_rejections_total`",
        ),
        _counter(
            "http_requests_total",
            (*_SERVER, "method", "handler", "code"),
            "requests",
            "HTTP requests answered by the server; handlers from a closed list, others are `other`.",
            "log: uvicorn's access lines; without a log, or while the log of this server has shown no access line and the page "
            "has counted five requests, the scrape's `http_requests_total`, whose codes are classes (`2xx`)",
        ),
        _counter(
            "log_events_total",
            (*_SERVER, "event"),
            "events",
            "Failures that the log tells of, each crash once; 0 from the start for every kind. What fails while a server "
            "stops in order is none, and neither is a worker that is late before the server's first token (while it starts, "
            "and in its first five minutes).",
            "log: see the parsers' `failures` module",
        ),
        _counter(
            "server_starts_total",
            _SERVER,
            "starts",
            "Starts of the server seen since this daemon watches.",
            "log: its version line; without a log a new `process_start_time_seconds` or counters that fell",
        ),
    ),
)

LATENCY = Group(
    "How long requests take",
    (
        _histogram(
            "time_to_first_token_seconds",
            "seconds",
            "Time from a request's arrival to its first token (TTFT).",
            "scrape: `vllm:time_to_first_token_seconds`",
        ),
        _histogram(
            "inter_token_latency_seconds",
            "seconds",
            "Time between two tokens of a request (ITL).",
            "scrape: `vllm:inter_token_latency_seconds`, before 0.10.2 `vllm:time_per_output_token_seconds`",
        ),
        _histogram(
            "time_per_output_token_seconds",
            "seconds",
            "Mean time per output token of a request (TPOT).",
            "scrape: `vllm:request_time_per_output_token_seconds`, 0.11 and later",
        ),
        _histogram(
            "e2e_request_latency_seconds",
            "seconds",
            "Time from a request's arrival to its end.",
            "scrape: `vllm:e2e_request_latency_seconds`",
        ),
        _histogram(
            "queue_time_seconds", "seconds", "Time a request waited.", "scrape: `vllm:request_queue_time_seconds`"
        ),
        _histogram(
            "prefill_time_seconds",
            "seconds",
            "Time a request's prompt took.",
            "scrape: `vllm:request_prefill_time_seconds` (0.6.4 exports it as decode time)",
        ),
        _histogram(
            "decode_time_seconds",
            "seconds",
            "Time a request's generation took.",
            "scrape: `vllm:request_decode_time_seconds` (0.6.4 exports it as prefill time)",
        ),
        _histogram(
            "iteration_tokens",
            "tokens",
            "Tokens per engine step: the size of the batch.",
            "scrape: `vllm:iteration_tokens_total`",
        ),
        _histogram(
            "request_prompt_tokens", "tokens", "Prompt tokens per request.", "scrape: `vllm:request_prompt_tokens`"
        ),
        _histogram(
            "request_generation_tokens",
            "tokens",
            "Generated tokens per request.",
            "scrape: `vllm:request_generation_tokens`",
        ),
    ),
)

FACTS = Group(
    "What the server is",
    (
        _gauge(
            "server_info",
            (*_SERVER, "model_name", "version", "engine_generation"),
            "1",
            "Always 1: the server's version and engine (V0, V1); empty labels where nothing said so.",
            "log: `Initializing a V1 LLM engine (v…)`, version lines and logo",
        ),
        _gauge(
            "kv_cache_capacity_tokens",
            _ENGINE,
            "tokens",
            "Tokens that the KV cache holds.",
            "log: `GPU KV cache size` (V0: blocks by their size; with lines of all engines together their sum); else the "
            "scrape's `vllm:cache_config_info` of a lone engine, from 0.24 on or of V0",
        ),
        _gauge(
            "max_concurrency",
            _ENGINE,
            "requests",
            "Requests of full length that the KV cache holds.",
            "log: `Maximum concurrency for … tokens per request`; else the scrape's `vllm:cache_config_info`",
        ),
        _gauge(
            "max_running_requests",
            _ENGINE,
            "requests",
            "Most requests in a batch (`--max-num-seqs`), where it was given.",
            "log: the arguments line" + _COMMAND,
        ),
        _gauge(
            "max_model_len_tokens",
            _ENGINE,
            "tokens",
            "Most tokens of a request, prompt and answer.",
            "log: the engine's configuration, `Using max model len`" + _COMMAND,
        ),
        _gauge(
            "num_speculative_tokens",
            _ENGINE,
            "tokens",
            "Tokens per draft.",
            "log: the speculative configuration, V0's line on drafts" + _COMMAND,
        ),
        _gauge(
            "tensor_parallel_size",
            _ENGINE,
            "1",
            "Tensor parallel size.",
            "log: the engine's configuration" + _COMMAND,
        ),
        _gauge(
            "data_parallel_size",
            _ENGINE,
            "1",
            "Data parallel size; absent where each of several engines says that it is alone, as those of a dense model do.",
            "log: the arguments, the engine's configuration" + _COMMAND,
        ),
        _gauge(
            "model_load_seconds",
            _ENGINE,
            "seconds",
            "Time the slowest worker took to load the model.",
            "log: `Model loading took`",
        ),
        _gauge(
            "server_start_timestamp_seconds",
            _SERVER,
            "unix time",
            "When the server was started last.",
            "log: its version line, unless many lines without a time hide how old it is; else the scrape's "
            "`process_start_time_seconds`",
        ),
        _gauge(
            "slo_time_to_first_token_seconds",
            _SERVER,
            "seconds",
            "Objective for the time to first token.",
            "configuration: `slo`",
        ),
        _gauge(
            "slo_time_per_output_token_seconds",
            _SERVER,
            "seconds",
            "Objective for the time per output token.",
            "configuration: `slo`",
        ),
        _gauge(
            "slo_bound_seconds",
            (*_ENGINE, "objective"),
            "seconds",
            "What requests are judged by: the objective, or the next bound above it that vLLM's histogram has.",
            "configuration and scrape",
        ),
        _counter(
            "slo_requests_total",
            (*_ENGINE, "objective", "bound"),
            "requests",
            "Requests that an objective was judged for, by the bound they were judged by: another bound counts anew.",
            "scrape: the objective's histogram",
        ),
        _counter(
            "slo_good_requests_total",
            (*_ENGINE, "objective", "bound"),
            "requests",
            "Requests within the bound, which is `slo_bound_seconds`.",
            "scrape: the objective's histogram",
        ),
    ),
)

STATE = Group(
    "State",
    (
        _gauge(
            "engine_state",
            (*_ENGINE, "state"),
            "1",
            f"1 for the present state, 0 for the others: {', '.join(ENGINE_STATES)}.",
            "both sources: see below, and the README",
        ),
        _gauge(
            "engine_stall_info",
            (*_ENGINE, "reason"),
            "1",
            f"1, only while the engine is stalled; reason says why: {', '.join(STALL_REASONS)}.",
            "both sources: see below, and the README",
        ),
    ),
)

SOURCES = Group(
    "Sources",
    (
        _gauge(
            "source_up",
            (*_SERVER, "source"),
            "1",
            "Whether a source can be read: log, metrics; probe: whether the last one brought a token.",
            "the daemon",
        ),
        _gauge(
            "source_info",
            (*_SERVER, "source", "reason"),
            "1",
            "Always 1: why a source says what it says, or is quiet.",
            "the daemon",
        ),
        _gauge(
            "source_last_reading_timestamp_seconds",
            (*_SERVER, "source"),
            "unix time",
            "When a source last said something on the engine.",
            "the daemon",
        ),
        _gauge(
            "source_value",
            (*_ENGINE, "source", "quantity"),
            "as the quantity",
            "What each source says of the main quantities, for comparison.",
            "both sources",
        ),
        _gauge(
            "source_disagreement",
            (*_ENGINE, "quantity"),
            "1",
            "Whether log and page have told different stories for minutes: at least 6 lines, and a third of those of the "
            "last 5 min, were far from all pages around them; engine_state: the server goes on although its log "
            "said that it ended. The page is believed; look whether both are of the same server.",
            "both sources",
        ),
        _gauge(
            "required_metric_missing",
            (*_SERVER, "metric"),
            "1",
            "Whether the server's page lacks a quantity that it should have.",
            "scrape",
        ),
        _counter(
            "refused_values_total",
            (*_SERVER, "source", "quantity"),
            "values",
            "Values out of range, not believed.",
            "both sources",
        ),
        _counter(
            "unknown_field_total",
            (*_SERVER, "field"),
            "fields",
            "Fields of statistics lines that this version does not know, at most 20 different ones.",
            "log",
        ),
        _counter(
            "unparsed_stats_lines_total",
            _SERVER,
            "lines",
            "Lines from a statistics call site that were not understood.",
            "log",
        ),
        _counter(
            "continuation_lines_total",
            _SERVER,
            "lines",
            "Lines that came while a record was open: those that continue it are never read as statistics.",
            "log",
        ),
        _counter(
            "log_lines_rejected_total",
            _SERVER,
            "lines",
            "Lines that look like vLLM's own and stand where it prints none: in the rest of a record, at a call site "
            "that repeats what clients sent, behind a prefix that is not the server's. Somebody may have forged them.",
            "log",
        ),
        _counter(
            "label_values_dropped_total",
            (*_SERVER, "source"),
            "names",
            "Engines, models, fields and other names over the limits, of each line or page: their series are not shown.",
            "both sources",
        ),
        _counter(
            "scrape_long_lines_total",
            _SERVER,
            "lines",
            "Lines of the page over 16 KiB, passed over: of families that are not read (label sets of LoRA adapters).",
            "scrape",
        ),
        _counter("log_lines_total", _SERVER, "lines", "Lines read.", "log"),
        _counter("log_bytes_total", _SERVER, "bytes", "Bytes read.", "log"),
        _gauge(
            "log_lag_bytes",
            _SERVER,
            "bytes",
            "Bytes of the log that are not read yet, an unfinished line included.",
            "log",
        ),
        _counter(
            "log_truncations_total",
            _SERVER,
            "truncations",
            "Times that what had been read was gone: the file was truncated or rewritten.",
            "log",
        ),
        _counter("log_rotations_total", _SERVER, "rotations", "Times that the path named a new file.", "log"),
        _counter(
            "log_files_lost_total",
            _SERVER,
            "files",
            "Rotated files that were gone, or could not be read, before they were read to their end.",
            "log",
        ),
        _counter(
            "log_long_lines_total",
            _SERVER,
            "lines",
            "Lines dropped: over 64 KiB, or cut by a container's runtime and their beginning not known.",
            "log",
        ),
        _counter(
            "log_nul_bytes_total", _SERVER, "bytes", "NUL bytes taken out: the log's writer does not append.", "log"
        ),
        _counter(
            "log_skipped_bytes_total",
            _SERVER,
            "bytes",
            "Bytes given up unread: more than can be caught up with, lines cut off by a truncation or never finished, "
            "entries of the journal that are cut.",
            "log",
        ),
        _counter(
            "log_read_errors_total",
            _SERVER,
            "errors",
            "Times that the log was there and could not be opened or read: each look that fails counts.",
            "log",
        ),
        _gauge(
            "log_ignored_files",
            _SERVER,
            "files",
            "Matches of the log's glob that are not read: of more than 64 those written last are.",
            "log",
        ),
        _gauge(
            "log_watch_info",
            (*_SERVER, "mode"),
            "1",
            "Always 1: what makes the daemon look at the log's files. events: the kernel says that they changed; poll: only "
            "the clock, every second.",
            "the daemon",
        ),
        _gauge("scrape_duration_seconds", _SERVER, "seconds", "How long the last scrape took.", "scrape"),
        _gauge(
            "probe_success",
            _SERVER,
            "1",
            "Whether the last probe, a completion of one token, brought its token and came to its end in time.",
            "probe",
        ),
        _gauge(
            "probe_time_to_first_token_seconds",
            _SERVER,
            "seconds",
            "How long a user waits for the first token: of the last probe, connecting included; absent when it failed.",
            "probe",
        ),
    ),
)

DAEMON = Group(
    "The daemon itself",
    (
        _gauge("build_info", ("version", "python_version"), "1", "Always 1: this daemon's version.", "the daemon"),
        _gauge(
            "config_last_reload_successful",
            (),
            "1",
            "Whether the configuration was read well the last time.",
            "the daemon",
        ),
        _gauge(
            "config_last_reload_success_timestamp_seconds",
            (),
            "unix time",
            "When a configuration was last accepted.",
            "the daemon",
        ),
        _counter(
            "config_reload_failures_total",
            (),
            "reloads",
            "Reloads that were refused: the configuration before them stays.",
            "the daemon",
        ),
        _gauge(
            "checkpoint_info",
            ("reason",),
            "1",
            "Always 1: whether the checkpoint was taken over at the start (ok), or why it was not.",
            "the daemon",
        ),
        _counter(
            "checkpoint_failures_total",
            (),
            "attempts",
            "Attempts to save the checkpoint that failed: its daemon goes on, and would read again after a restart.",
            "the daemon",
        ),
        _counter(
            "collect_errors_total",
            _SERVER,
            "errors",
            "Times that a server could not be shown for a fault of this daemon: its log says which.",
            "the daemon",
        ),
        _counter(
            "internal_errors_total",
            ("part",),
            "errors",
            "Failures inside the daemon; the part that failed went on, and the daemon's log says why. Parts: "
            f"{', '.join(PARTS)}.",
            "the daemon",
        ),
        _gauge(
            "discovery_hanging_processes",
            (),
            "processes",
            "Processes that are passed over in the search for servers, since what they run cannot be learned: asking "
            f"hangs. With {MAX_HANGING} of them no server is found any more. Only without a configuration.",
            "the daemon",
        ),
        _gauge(
            "heartbeat_timestamp_seconds",
            ("thread",),
            "unix time",
            "When each of the daemon's threads last reported that it runs, by the machine's clock.",
            "the daemon",
        ),
    ),
)

GROUPS: tuple[Group, ...] = (NOW, DONE, LATENCY, FACTS, STATE, SOURCES, DAEMON)

SERIES: dict[str, Series] = {series.name: series for group in GROUPS for series in group.series}
"""All series, by name without the prefix."""
