# SPDX-License-Identifier: Apache-2.0
"""
Every series that vllm-watch shows: its name, type, labels, unit, help and where its value comes from.

Names are given without the prefix; counters with their ``_total``. `daemon/METRICS.md`, the labels that a configuration
may not use and what `vllm-watch check` says of missing series are made from this table; a test holds that nothing else
is ever shown.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from vllm_watch.catalog.limits import MAX_HANGING_PROCESSES
from vllm_watch.catalog.parts import PARTS
from vllm_watch.catalog.reasons import STALL_REASONS
from vllm_watch.catalog.states import ENGINE_STATES


PREFIX = "vllm_watch_"

SeriesType = Literal["gauge", "counter", "histogram"]

Origin = Literal["metrics", "log", "probe", "command line", "configuration", "daemon"]
"""Where a value comes from: a source, under its name in the label `source`, or the daemon and what it was given."""

Combination = Literal["first", "latest", "each", "all"]
"""
How the sources of a series make its value.

first: the first that has it. latest: the newest of them. each: whichever there are, each by itself or in one judgement.
all: only where all of them are there.
"""

Feature = Literal["slo", "speculative decoding"]
"""What must be configured or used for a series to be there."""

_ENGINE = ("server", "model_name", "engine")
_SERVER = ("server",)


class Source(NamedTuple):
    """One source of a series, and what it reads there; `what` is empty where that needs no words."""

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


def _configuration(what: str) -> Source:
    return Source("configuration", what)


_COMMAND_LINE = Source("command line", "of a server that `run` discovered")


_gauge = partial(Series, type="gauge")
_counter = partial(Series, type="counter")
_histogram = partial(Series, type="histogram", labels=_ENGINE)


NOW = Group(
    "What the engine does now",
    (
        _gauge(
            "prompt_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Prompt tokens computed per second; since vLLM 0.16 without cached ones, before it with them.",
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
            help="Requests that wait, deferred ones included.",
            sources=(_scrape("`vllm:num_requests_waiting`"), _log("`Waiting` (V0 `Pending`)")),
        ),
        _gauge(
            "requests_deferred",
            labels=_ENGINE,
            unit="requests",
            help="Waiting requests that wait for something other than capacity (LoRA, KV transfer). vLLM 0.20 and later.",
            sources=(_scrape('`vllm:num_requests_waiting_by_reason{reason="deferred"}`'), _log("`Deferred`")),
        ),
        _gauge(
            "kv_cache_usage_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of the KV cache that is in use, 1 is full.",
            sources=(_scrape("`vllm:kv_cache_usage_perc`, `vllm:gpu_cache_usage_perc`"), _log("`GPU KV cache usage`")),
        ),
        _gauge(
            "prefix_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried prompt tokens found in the prefix cache, recently (V0: since the start).",
            sources=(
                _scrape(
                    "increase of `vllm:prefix_cache_hits_total` by `…_queries_total` over the last 10 s to 60 s in which "
                    "there were queries"
                ),
                _log("`Prefix cache hit rate` of up to 1000 requests"),
            ),
        ),
        _gauge(
            "external_prefix_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried prompt tokens found in an external KV cache, recently.",
            sources=(
                _scrape("`vllm:external_prefix_cache_hits_total` by `…_queries_total`"),
                _log("`External prefix cache hit rate`"),
            ),
        ),
        _gauge(
            "mm_cache_hit_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of queried multimodal items found in the multimodal cache, recently.",
            sources=(_scrape("`vllm:mm_cache_hits_total` by `…_queries_total`"), _log("`MM cache hit rate`")),
        ),
        _gauge(
            "spec_decode_mean_acceptance_length",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens per engine step and request with speculative decoding (MTP …), the bonus token included: 1 is no gain.",
            sources=(
                _scrape("1 + accepted tokens by drafts over the last 10 s to 60 s"),
                _log("`SpecDecoding metrics`, `Mean acceptance length`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_acceptance_ratio",
            labels=_ENGINE,
            unit="ratio",
            help="Share of drafted tokens that were accepted, recently (V0: since the start).",
            sources=(
                _scrape("accepted by drafted tokens"),
                _log("`SpecDecoding metrics`, `Avg Draft acceptance rate`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_position_acceptance_ratio",
            labels=(*_ENGINE, "position"),
            unit="ratio",
            help="Share of drafts whose token at this position was accepted, 0 is the first.",
            sources=(
                _scrape("`vllm:spec_decode_num_accepted_tokens_per_pos_total` by drafts"),
                _log("`SpecDecoding metrics`, `Per-position acceptance rate`"),
            ),
            feature="speculative decoding",
        ),
        _gauge(
            "spec_decode_accepted_tokens_per_second",
            labels=_ENGINE,
            unit="tokens/s",
            help="Drafted tokens accepted per second.",
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
            help="Tokens drafted per second.",
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
            help="When a generated token was last seen.",
            sources=(_scrape("a growing `vllm:generation_tokens_total`"), _log("a statistics line with tokens")),
            combine="latest",
        ),
        _gauge(
            "latency_quantile_seconds",
            labels=(*_ENGINE, "stage", "quantile"),
            unit="seconds",
            help=(
                "Quantiles of the last minute by stage of a request, for those without Prometheus; linear within a bucket, and "
                "absent in the first one: below `latency_first_bound_seconds`."
            ),
            sources=(_scrape("the histograms' increase over the last minute"),),
        ),
        _gauge(
            "latency_mean_seconds",
            labels=(*_ENGINE, "stage"),
            unit="seconds",
            help="Mean of the last minute by stage of a request: exact, where a quantile is an estimate within a wide bucket.",
            sources=(_scrape("the increase of the histograms' sum by that of their count over the last minute"),),
        ),
        _gauge(
            "latency_first_bound_seconds",
            labels=(*_ENGINE, "stage"),
            unit="seconds",
            help="Upper bound of the first bucket that a stage's histogram has: quantiles below it cannot be told.",
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
            help="Prompt tokens processed, cached ones included.",
            sources=(_scrape("`vllm:prompt_tokens_total`"),),
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
            help="Tokens drafted.",
            sources=(_scrape("`vllm:spec_decode_num_draft_tokens_total`"), _log("sum of `Drafted`")),
            feature="speculative decoding",
        ),
        _counter(
            "spec_decode_accepted_tokens_total",
            labels=_ENGINE,
            unit="tokens",
            help="Drafted tokens accepted.",
            sources=(_scrape("`vllm:spec_decode_num_accepted_tokens_total`"), _log("sum of `Accepted`")),
            feature="speculative decoding",
        ),
        _counter(
            "preemptions_total",
            labels=_ENGINE,
            unit="preemptions",
            help="Requests put back for want of KV cache.",
            sources=(
                _scrape("`vllm:num_preemptions_total`"),
                _log("sum of the Rust front end's `Preemptions` (the Python server prints none)"),
            ),
        ),
        _counter(
            "requests_finished_total",
            labels=(*_ENGINE, "reason"),
            unit="requests",
            help="Requests finished, by reason (stop, length, abort …).",
            sources=(_scrape("`vllm:request_success_total`"),),
        ),
        _counter(
            "admission_rejections_total",
            labels=(*_SERVER, "model_name", "reason"),
            unit="requests",
            help="Requests refused because the queue was full. vLLM 0.32 and later.",
            sources=(_scrape("`vllm:admission_rejections_total`"),),
        ),
        _counter(
            "http_requests_total",
            labels=(*_SERVER, "method", "handler", "code"),
            unit="requests",
            help="HTTP requests answered by the server; handlers from a closed list, others are `other`.",
            sources=(
                _log("uvicorn's access lines"),
                _scrape(
                    "without a log, or while the log of this server has shown no access line and the page has counted five "
                    "requests: `http_requests_total`, whose codes are classes (`2xx`)"
                ),
            ),
        ),
        _counter(
            "log_events_total",
            labels=(*_SERVER, "event"),
            unit="events",
            help=(
                "Failures that the log tells of, each crash once; 0 from the start for every kind. What fails while a server "
                "stops in order is none, and neither is a worker that is late before the server's first token (while it starts, "
                "and in its first five minutes)."
            ),
            sources=(_log("see the parsers' `failures` module"),),
        ),
        _counter(
            "server_starts_total",
            labels=_SERVER,
            unit="starts",
            help="Starts of the server seen since this daemon watches.",
            sources=(_log("its version line"), _scrape("a new `process_start_time_seconds` or counters that fell")),
        ),
    ),
)

LATENCY = Group(
    "How long requests take",
    (
        _histogram(
            "time_to_first_token_seconds",
            unit="seconds",
            help="Time from a request's arrival to its first token (TTFT).",
            sources=(_scrape("`vllm:time_to_first_token_seconds`"),),
        ),
        _histogram(
            "inter_token_latency_seconds",
            unit="seconds",
            help="Time between two tokens of a request (ITL).",
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
            help="Time from a request's arrival to its end.",
            sources=(_scrape("`vllm:e2e_request_latency_seconds`"),),
        ),
        _histogram(
            "queue_time_seconds",
            unit="seconds",
            help="Time a request waited.",
            sources=(_scrape("`vllm:request_queue_time_seconds`"),),
        ),
        _histogram(
            "prefill_time_seconds",
            unit="seconds",
            help="Time a request's prompt took.",
            sources=(_scrape("`vllm:request_prefill_time_seconds` (0.6.4 exports it as decode time)"),),
        ),
        _histogram(
            "decode_time_seconds",
            unit="seconds",
            help="Time a request's generation took.",
            sources=(_scrape("`vllm:request_decode_time_seconds` (0.6.4 exports it as prefill time)"),),
        ),
        _histogram(
            "iteration_tokens",
            unit="tokens",
            help="Tokens per engine step: the size of the batch.",
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
    ),
)

FACTS = Group(
    "What the server is",
    (
        _gauge(
            "server_info",
            labels=(*_SERVER, "model_name", "version", "engine_generation"),
            unit="1",
            help="Always 1: the server's version and engine (V0, V1); empty labels where nothing said so.",
            sources=(_log("`Initializing a V1 LLM engine (v…)`, version lines and logo"),),
        ),
        _gauge(
            "kv_cache_capacity_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens that the KV cache holds.",
            sources=(
                _log("`GPU KV cache size` (V0: blocks by their size; with lines of all engines together their sum)"),
                _scrape("`vllm:cache_config_info` of a lone engine, from 0.24 on or of V0"),
            ),
        ),
        _gauge(
            "max_concurrency",
            labels=_ENGINE,
            unit="requests",
            help="Requests of full length that the KV cache holds.",
            sources=(_log("`Maximum concurrency for … tokens per request`"), _scrape("`vllm:cache_config_info`")),
        ),
        _gauge(
            "max_running_requests",
            labels=_ENGINE,
            unit="requests",
            help="Most requests in a batch (`--max-num-seqs`), where it was given.",
            sources=(_log("the arguments line"), _COMMAND_LINE),
        ),
        _gauge(
            "max_model_len_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Most tokens of a request, prompt and answer.",
            sources=(_log("the engine's configuration, `Using max model len`"), _COMMAND_LINE),
        ),
        _gauge(
            "num_speculative_tokens",
            labels=_ENGINE,
            unit="tokens",
            help="Tokens per draft.",
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
            help="Data parallel size; absent where each of several engines says that it is alone, as those of a dense model do.",
            sources=(_log("the arguments, the engine's configuration"), _COMMAND_LINE),
        ),
        _gauge(
            "model_load_seconds",
            labels=_ENGINE,
            unit="seconds",
            help="Time the slowest worker took to load the model.",
            sources=(_log("`Model loading took`"),),
        ),
        _gauge(
            "server_start_timestamp_seconds",
            labels=_SERVER,
            unit="unix time",
            help="When the server was started last.",
            sources=(
                _log("its version line, unless many lines without a time hide how old it is"),
                _scrape("`process_start_time_seconds`"),
            ),
        ),
        _gauge(
            "slo_time_to_first_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Objective for the time to first token.",
            sources=(_configuration("`slo`"),),
            feature="slo",
        ),
        _gauge(
            "slo_time_per_output_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="Objective for the time per output token.",
            sources=(_configuration("`slo`"),),
            feature="slo",
        ),
        _gauge(
            "slo_bound_seconds",
            labels=(*_ENGINE, "objective"),
            unit="seconds",
            help="What requests are judged by: the objective, or the next bound above it that vLLM's histogram has.",
            sources=(_configuration("`slo`"), _scrape("buckets of the objective's histogram")),
            combine="all",
            feature="slo",
        ),
        _counter(
            "slo_requests_total",
            labels=(*_ENGINE, "objective", "bound"),
            unit="requests",
            help="Requests that an objective was judged for, by the bound they were judged by: another bound counts anew.",
            sources=(_scrape("the objective's histogram"),),
            feature="slo",
        ),
        _counter(
            "slo_good_requests_total",
            labels=(*_ENGINE, "objective", "bound"),
            unit="requests",
            help="Requests within the bound, which is `slo_bound_seconds`.",
            sources=(_scrape("the objective's histogram"),),
            feature="slo",
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
            help=f"1 for the present state, 0 for the others: {', '.join(ENGINE_STATES)}.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _gauge(
            "engine_stall_info",
            labels=(*_ENGINE, "reason"),
            unit="1",
            help=f"1, only while the engine is stalled; reason says why: {', '.join(STALL_REASONS)}.",
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
            help="Whether a source can be read: log, metrics; probe: whether the last one brought a token.",
        ),
        _gauge(
            "source_info",
            labels=(*_SERVER, "source", "reason"),
            unit="1",
            help="Always 1: why a source says what it says, or is quiet.",
        ),
        _gauge(
            "source_last_reading_timestamp_seconds",
            labels=(*_SERVER, "source"),
            unit="unix time",
            help="When a source last said something on the engine.",
        ),
        _gauge(
            "source_value",
            labels=(*_ENGINE, "source", "quantity"),
            unit="as the quantity",
            help="What each source says of the main quantities, for comparison.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _gauge(
            "source_disagreement",
            labels=(*_ENGINE, "quantity"),
            unit="1",
            help=(
                "Whether log and page have told different stories for minutes: at least 6 lines, and a third of those of the "
                "last 5 min, were far from all pages around them; engine_state: the server goes on although its log "
                "said that it ended. The page is believed; look whether both are of the same server."
            ),
            sources=(_scrape(), _log()),
            combine="all",
        ),
        _gauge(
            "required_metric_missing",
            labels=(*_SERVER, "metric"),
            unit="1",
            help="Whether the server's page lacks a quantity that it should have.",
            sources=(_scrape(),),
        ),
        _counter(
            "refused_values_total",
            labels=(*_SERVER, "source", "quantity"),
            unit="values",
            help="Values out of range, not believed.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _counter(
            "unknown_field_total",
            labels=(*_SERVER, "field"),
            unit="fields",
            help="Fields of statistics lines that this version does not know, at most 20 different ones.",
            sources=(_log(),),
        ),
        _counter(
            "unparsed_stats_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines from a statistics call site that were not understood.",
            sources=(_log(),),
        ),
        _counter(
            "continuation_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines that came while a record was open: those that continue it are never read as statistics.",
            sources=(_log(),),
        ),
        _counter(
            "log_lines_rejected_total",
            labels=_SERVER,
            unit="lines",
            help=(
                "Lines that look like vLLM's own and stand where it prints none: in the rest of a record, at a call site "
                "that repeats what clients sent, behind a prefix that is not the server's. Somebody may have forged them."
            ),
            sources=(_log(),),
        ),
        _counter(
            "label_values_dropped_total",
            labels=(*_SERVER, "source"),
            unit="names",
            help="Engines, models, fields and other names over the limits, of each line or page: their series are not shown.",
            sources=(_scrape(), _log()),
            combine="each",
        ),
        _counter(
            "scrape_long_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines of the page over 16 KiB, passed over: of families that are not read (label sets of LoRA adapters).",
            sources=(_scrape(),),
        ),
        _counter(
            "log_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines read.",
            sources=(_log(),),
        ),
        _counter(
            "log_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help="Bytes read.",
            sources=(_log(),),
        ),
        _gauge(
            "log_lag_bytes",
            labels=_SERVER,
            unit="bytes",
            help="Bytes of the log that are not read yet, an unfinished line included.",
            sources=(_log(),),
        ),
        _counter(
            "log_truncations_total",
            labels=_SERVER,
            unit="truncations",
            help="Times that what had been read was gone: the file was truncated or rewritten.",
            sources=(_log(),),
        ),
        _counter(
            "log_rotations_total",
            labels=_SERVER,
            unit="rotations",
            help="Times that the path named a new file.",
            sources=(_log(),),
        ),
        _counter(
            "log_files_lost_total",
            labels=_SERVER,
            unit="files",
            help="Rotated files that were gone, or could not be read, before they were read to their end.",
            sources=(_log(),),
        ),
        _counter(
            "log_long_lines_total",
            labels=_SERVER,
            unit="lines",
            help="Lines dropped: over 64 KiB, or cut by a container's runtime and their beginning not known.",
            sources=(_log(),),
        ),
        _counter(
            "log_nul_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help="NUL bytes taken out: the log's writer does not append.",
            sources=(_log(),),
        ),
        _counter(
            "log_skipped_bytes_total",
            labels=_SERVER,
            unit="bytes",
            help=(
                "Bytes given up unread: more than can be caught up with, lines cut off by a truncation or never finished, "
                "entries of the journal that are cut."
            ),
            sources=(_log(),),
        ),
        _counter(
            "log_read_errors_total",
            labels=_SERVER,
            unit="errors",
            help="Times that the log was there and could not be opened or read: each look that fails counts.",
            sources=(_log(),),
        ),
        _gauge(
            "log_ignored_files",
            labels=_SERVER,
            unit="files",
            help="Matches of the log's glob that are not read: of more than 64 those written last are.",
            sources=(_log(),),
        ),
        _gauge(
            "log_watch_info",
            labels=(*_SERVER, "mode"),
            unit="1",
            help=(
                "Always 1: what makes the daemon look at the log's files. events: the kernel says that they changed; poll: only "
                "the clock, every second."
            ),
        ),
        _gauge(
            "scrape_duration_seconds",
            labels=_SERVER,
            unit="seconds",
            help="How long the last scrape took.",
            sources=(_scrape(),),
        ),
        _gauge(
            "probe_success",
            labels=_SERVER,
            unit="1",
            help="Whether the last probe, a completion of one token, brought its token and came to its end in time.",
            sources=(_probe(),),
        ),
        _gauge(
            "probe_time_to_first_token_seconds",
            labels=_SERVER,
            unit="seconds",
            help="How long a user waits for the first token: of the last probe, connecting included; absent when it failed.",
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
            help="Always 1: this daemon's version.",
        ),
        _gauge(
            "config_last_reload_successful",
            labels=(),
            unit="1",
            help="Whether the configuration was read well the last time.",
        ),
        _gauge(
            "config_last_reload_success_timestamp_seconds",
            labels=(),
            unit="unix time",
            help="When a configuration was last accepted.",
        ),
        _counter(
            "config_reload_failures_total",
            labels=(),
            unit="reloads",
            help="Reloads that were refused: the configuration before them stays.",
        ),
        _gauge(
            "checkpoint_info",
            labels=("reason",),
            unit="1",
            help="Always 1: whether the checkpoint was taken over at the start (ok), or why it was not.",
        ),
        _counter(
            "checkpoint_failures_total",
            labels=(),
            unit="attempts",
            help="Attempts to save the checkpoint that failed: its daemon goes on, and would read again after a restart.",
        ),
        _counter(
            "collect_errors_total",
            labels=_SERVER,
            unit="errors",
            help="Times that a server could not be shown for a fault of this daemon: its log says which.",
        ),
        _counter(
            "internal_errors_total",
            labels=("part",),
            unit="errors",
            help=(
                "Failures inside the daemon; the part that failed went on, and the daemon's log says why. Parts: "
                f"{', '.join(PARTS)}."
            ),
        ),
        _gauge(
            "discovery_hanging_processes",
            labels=(),
            unit="processes",
            help=(
                "Processes that are passed over in the search for servers, since what they run cannot be learned: asking "
                f"hangs. With {MAX_HANGING_PROCESSES} of them no server is found any more. Only without a configuration."
            ),
        ),
        _gauge(
            "heartbeat_timestamp_seconds",
            labels=("thread",),
            unit="unix time",
            help="When each of the daemon's threads last reported that it runs, by the machine's clock.",
        ),
    ),
)

GROUPS: tuple[Group, ...] = (NOW, DONE, LATENCY, FACTS, STATE, SOURCES, DAEMON)

SERIES: dict[str, Series] = {series.name: series for group in GROUPS for series in group.series}
"""All series, by name without the prefix."""
