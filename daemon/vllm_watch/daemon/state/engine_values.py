# SPDX-License-Identifier: Apache-2.0
"""
One engine's values from each source, under the names of their series (without the prefix).

`ahead` is how many seconds the wall clock is ahead of the sources' times: readings have the wall clock's.
"""

from __future__ import annotations

import math
import re

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch.daemon.state.engine_log import EngineLog
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.snapshot import HistogramReading, Reading
from vllm_watch.daemon.state.step_times import StepClass, StepTime, StepTimes
from vllm_watch.daemon.state.window import QUANTILES, STAGES, coarse_bounds, estimate_quantile
from vllm_watch_parsers.events import EngineStats, SpecDecoding
from vllm_watch_parsers.metric_names import CACHE_SOURCES, PROMPT_SOURCES, WATERMARKED
from vllm_watch_parsers.scrape import EngineKey, EngineReading


# Series of histograms are named as the quantities are; these are shown.
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "queue_time_seconds",
    "prefill_time_seconds",
    "decode_time_seconds",
    "inference_time_seconds",
    "iteration_tokens",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_computed_prompt_tokens",
    "request_max_tokens",
    "request_max_generation_tokens",
    "request_params_n",
    "request_params_best_of",
    "request_preemptions",
    "kv_block_lifetime_seconds",
    "kv_block_idle_before_evict_seconds",
    "kv_block_reuse_gap_seconds",
)

_QUANTILE_KEYS = {stage: tuple((stage, quantile) for quantile in QUANTILES) for stage in STAGES}
"""The keys of a stage's quantiles: the same objects for all engines, of which there are hundreds."""

_COUNTERS = {
    "prompt_tokens": "prompt_tokens_total",
    "generation_tokens": "generation_tokens_total",
    "preemptions": "preemptions_total",
    "drafts": "spec_decode_drafts_total",
    "drafted_tokens": "spec_decode_draft_tokens_total",
    "accepted_tokens": "spec_decode_accepted_tokens_total",
    "corrupted_requests": "corrupted_requests_total",
    "committed_tokens": "diffusion_committed_tokens_total",
    "denoising_steps": "diffusion_denoising_steps_total",
    "canvas_positions": "diffusion_canvas_positions_total",
}

_BY_LABEL = {
    **{name: ("prompt_tokens_cached_by_source_total", source) for source, name in CACHE_SOURCES.items()},
    **{name: ("watermark_requests_total", status) for status, name in WATERMARKED.items()},
}
"""Counters that are series of one name, with the values of its last label."""

_RATIOS = {
    "prefix_cache_hit_ratio": ("prefix_cache_hits", "prefix_cache_queries"),
    "external_prefix_cache_hit_ratio": ("external_prefix_cache_hits", "external_prefix_cache_queries"),
    "mm_cache_hit_ratio": ("mm_cache_hits", "mm_cache_queries"),
    "spec_decode_acceptance_ratio": ("accepted_tokens", "drafted_tokens"),
}
_RATES = {
    "generation_tokens_per_second": "generation_tokens",
    "spec_decode_accepted_tokens_per_second": "accepted_tokens",
    "spec_decode_drafted_tokens_per_second": "drafted_tokens",
    "diffusion_committed_tokens_per_second": "committed_tokens",
}
_WORK = {
    "achieved_flops_per_second": ("estimated_flops",),
    "achieved_read_bytes_per_second": ("estimated_read_bytes",),
    "achieved_write_bytes_per_second": ("estimated_write_bytes",),
    "achieved_memory_bytes_per_second": ("estimated_read_bytes", "estimated_write_bytes"),
}
"""Rates of sums of counters that are 0 for ever where vLLM does not estimate its work."""
_LIFETIME = {
    "prefix_cache_hit_ratio": "prefix_cache_hit_ratio_lifetime",
    "spec_decode_acceptance_ratio": "acceptance_ratio_lifetime",
    "cpu_prefix_cache_hit_ratio": "cpu_prefix_cache_hit_ratio_lifetime",
    "spec_decode_system_efficiency_ratio": "system_efficiency_lifetime",
}
_NOW = (
    "requests_running",
    "requests_waiting",
    "requests_deferred",
    "requests_swapped",
    "kv_cache_usage_ratio",
    "cpu_kv_cache_usage_ratio",
)

_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})")
_FIRST_WITHOUT_CACHED = (0, 16)
_RELEASE_WITH_SWAPPED_TIMES = "0.6.4"
_SWAPPED = {"prefill_time_seconds": "decode_time_seconds", "decode_time_seconds": "prefill_time_seconds"}

_HELD_WHILE_IDLE = ("prompt_tokens_per_second", "generation_tokens_per_second", *_NOW)
_LOGGED = (
    *_HELD_WHILE_IDLE,
    "prefix_cache_hit_ratio",
    "cpu_prefix_cache_hit_ratio",
    "external_prefix_cache_hit_ratio",
    "mm_cache_hit_ratio",
)
"""The fields of a statistics line that are series of the same names."""

_LOGGED_DRAFTS = {
    "spec_decode_mean_acceptance_length": "mean_acceptance_length",
    "spec_decode_acceptance_ratio": "acceptance_ratio",
    "spec_decode_accepted_tokens_per_second": "accepted_tokens_per_second",
    "spec_decode_drafted_tokens_per_second": "drafted_tokens_per_second",
    "spec_decode_system_efficiency_ratio": "system_efficiency",
}
_of_idle: Callable[[EngineStats], tuple[float | None, ...]] = attrgetter(*_HELD_WHILE_IDLE)
_of_stats: Callable[[EngineStats], tuple[float | None, ...]] = attrgetter(*_LOGGED)
_of_drafts: Callable[[SpecDecoding], tuple[float | None, ...]] = attrgetter(*_LOGGED_DRAFTS.values())


def gauges_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[str, Reading | None]:
    """
    Return an engine's gauges by the last scrapes.

    A quantity that they have, but that has no value at present (a hit ratio without a query), is `None`; one that they
    do not have, or that takes more scrapes than there were so far, is left out.
    """
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, engine = newest.at + ahead, newest.engine
    values: dict[str, float | None] = {name: engine.gauges[name] for name in _NOW if name in engine.gauges}
    values.update({name: engine.gauges[gauge] for name, gauge in _LIFETIME.items() if gauge in engine.gauges})
    if scrape.window.has_span(key):
        values.update(_changes(scrape, key, engine))
    return {name: None if value is None else Reading(value, at, "metrics") for name, value in values.items()}


def _changes(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
    """Return the values that take two scrapes."""
    window = scrape.window
    values: dict[str, float | None] = {
        name: window.rate(key, counter) for name, counter in _RATES.items() if counter in engine.counters
    }
    values.update(_prompt_rate(scrape, key, engine))
    values.update(_work(scrape, key, engine))
    for name, (part, whole) in _RATIOS.items():
        if part in engine.counters and whole in engine.counters:
            share = window.ratio(key, part, whole)
            # Counters are read one after the other while they grow: a part may be ahead of the whole.
            values[name] = None if share is None else min(share, 1.0)
    if "drafts" in engine.counters:
        accepted = window.ratio(key, "accepted_tokens", "drafts")
        values["spec_decode_mean_acceptance_length"] = None if accepted is None else 1 + accepted
    if "committed_tokens" in engine.counters:
        values["diffusion_tokens_per_step"] = window.ratio(key, "committed_tokens", "denoising_steps")
    return values


def _work(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
    """Return the work done per second, if vLLM estimates it: what was never counted is not known."""
    values: dict[str, float | None] = {}
    for name, counters in _WORK.items():
        if any(engine.counters.get(counter) for counter in counters):
            rates = [scrape.window.rate(key, counter) for counter in counters]
            values[name] = sum(rate or 0.0 for rate in rates) if None not in rates else None
    return values


def flops_utilization(gauges: Mapping[str, Reading], peak: float | None) -> dict[str, Reading]:
    """Return the share of a device's peak that is achieved, if both are known."""
    achieved = gauges.get("achieved_flops_per_second")
    if achieved is None or peak is None:
        return {}
    return {"flops_utilization_ratio": achieved._replace(value=achieved.value / peak)}


def _prompt_rate(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
    """Return prompt tokens computed per second; before 0.16 cached ones cannot be distinguished from them."""
    window, name = scrape.window, "prompt_tokens_per_second"
    if "prompt_tokens_computed" in engine.counters:
        return {name: window.rate(key, "prompt_tokens_computed")}
    if "prompt_tokens" not in engine.counters:
        return {}
    every, cached = window.rate(key, "prompt_tokens"), window.rate(key, "prompt_tokens_cached")
    return {name: every if every is None or cached is None else max(every - cached, 0.0)}


def excludes_cached(
    reading: Reading | None, scrape: ScrapeSource | None, key: EngineKey, version: str | None
) -> bool | None:
    """Return whether prompt tokens per second are without cached ones, `None` if that is not known."""
    if reading is None:
        return None
    if reading.source == "log":
        found = _RELEASE.match(version or "")
        return (int(found[1]), int(found[2])) >= _FIRST_WITHOUT_CACHED if found else None
    newest = scrape.window.newest_of(key) if scrape else None
    return newest is not None and not newest.engine.counters.keys().isdisjoint(
        {"prompt_tokens_computed", "prompt_tokens_cached"}
    )


def gauges_of_log(
    log: LogSource, engine: EngineLog, now: float, *, keeps_stale: bool, ahead: float
) -> dict[str, Reading]:
    """Return an engine's gauges by its last lines: fresh ones, and those that the silence of an idle engine implies."""
    is_fresh = engine.is_fresh(now) or keeps_stale
    at = engine.stats_at + ahead
    if is_fresh:
        readings = _readings(_LOGGED, _of_stats(engine.stats), at)
    else:
        readings = _readings(_HELD_WHILE_IDLE, _of_idle(engine.stats), at) if engine.ended_idle() else {}
    if log.hides_prefix_hit_ratio:
        readings.pop("prefix_cache_hit_ratio", None)
    # An idle or a hanging engine prints no line on drafts; the last one is not about the present.
    if engine.spec is not None and (keeps_stale or (is_fresh and engine.spec_at >= engine.stats_at)):
        readings.update(_readings(_LOGGED_DRAFTS, _of_drafts(engine.spec), engine.spec_at + ahead))
    for line in engine.companions.values():
        if keeps_stale or (is_fresh and line.at >= engine.stats_at):
            readings.update({name: Reading(value, line.at + ahead, "log") for name, value in line.values.items()})
    return readings


def _readings(names: Iterable[str], values: Iterable[float | None], at: float) -> dict[str, Reading]:
    """Return the values that a line has, by series."""
    pairs = zip(names, values, strict=True)
    return {name: Reading(float(value), at, "log") for name, value in pairs if value is not None}


def positions_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> tuple[Reading, ...] | None:
    """Return the recent share of drafts accepted at each position; `None` if /metrics does not have positions."""
    newest = scrape.window.newest_of(key)
    if newest is None or not newest.engine.position_accepted or not scrape.window.has_span(key):
        return None
    return tuple(Reading(ratio, newest.at + ahead, "metrics") for ratio in scrape.window.position_ratios(key))


def positions_of_log(engine: EngineLog, now: float, *, keeps_stale: bool, ahead: float) -> tuple[Reading | None, ...]:
    """
    Return the share of drafts accepted at each position, by the last line on drafts if it is about the present.

    A position that the line prints as ``nan`` is `None`.
    """
    spec = engine.spec
    if spec is None or not (keeps_stale or (engine.is_fresh(now) and engine.spec_at >= engine.stats_at)):
        return ()
    ratios = spec.position_acceptance_ratio or ()
    if all(ratio is None for ratio in ratios):
        return ()
    return tuple(None if ratio is None else Reading(ratio, engine.spec_at + ahead, "log") for ratio in ratios)


def counters_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[str, Reading]:
    """Return an engine's counters as vLLM has them."""
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, engine = newest.at + ahead, newest.engine
    return {
        name: Reading(engine.counters[counter], at, "metrics")
        for counter, name in _COUNTERS.items()
        if counter in engine.counters
    }


def counters_of_log(log: LogSource, engine: str, *, ahead: float) -> dict[str, Reading]:
    """
    Return the sums of what lines print as whole counts.

    These are drafted and accepted tokens, what a diffusion model did, and the Rust front end's preemptions: the Python
    logger resets its own before it prints them.
    """
    at = log.last_line_at
    if at is None:
        return {}
    accepted, drafted = log.totals.draft_tokens.get(engine, (None, None))
    committed, steps, positions = log.totals.diffusion.get(engine, (None, None, None))
    counts = {
        "spec_decode_draft_tokens_total": drafted,
        "spec_decode_accepted_tokens_total": accepted,
        "spec_decode_emitted_tokens_total": log.totals.emitted_tokens.get(engine),
        "preemptions_total": log.totals.preemptions.get(engine),
        "diffusion_committed_tokens_total": committed,
        "diffusion_denoising_steps_total": steps,
        "diffusion_canvas_positions_total": positions,
    }
    return {name: Reading(count, at + ahead, "log") for name, count in counts.items() if count is not None}


def finished_of(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[str, Reading]:
    """Return the requests that an engine has finished, by reason."""
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, engine = newest.at + ahead, newest.engine
    return {reason: Reading(value, at, "metrics") for reason, value in engine.requests_finished.items()}


def prompt_tokens_of(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[str, Reading]:
    """Return the prompt tokens that an engine has processed, by source; nothing before 0.16."""
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, counters = newest.at + ahead, newest.engine.counters
    return {
        source: Reading(counters[name], at, "metrics") for source, name in PROMPT_SOURCES.items() if name in counters
    }


def counters_by_label(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[tuple[str, str], Reading]:
    """Return an engine's counters that have a label of their own, by series and its value."""
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, counters = newest.at + ahead, newest.engine.counters
    return {place: Reading(counters[name], at, "metrics") for name, place in _BY_LABEL.items() if name in counters}


def _histogram_name(name: str, version: str | None) -> str:
    """Return the name of a histogram in /metrics: 0.6.4 exports two of them under each other's name."""
    return _SWAPPED.get(name, name) if version == _RELEASE_WITH_SWAPPED_TIMES else name


def histograms_of(
    scrape: ScrapeSource, key: EngineKey, version: str | None, *, ahead: float
) -> Mapping[str, HistogramReading]:
    """Return the histograms of an engine of this version as vLLM has them."""
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    at, engine = newest.at + ahead, newest.engine
    names = {name: _histogram_name(name, version) for name in HISTOGRAMS}
    known = {name: engine.histograms[source] for name, source in names.items() if source in engine.histograms}
    return {name: HistogramReading(histogram, at) for name, histogram in known.items()}


class Latencies(NamedTuple):
    """
    How long a request's stages have taken in the last minute, in seconds.

    `quantiles` are by stage and quantile; one in the first bucket of its histogram is left out: all that is known is
    that it is below the bucket's bound, which `first_bounds` has for every stage in /metrics. `quantile_bounds` has the
    bounds of the buckets of those that are coarse: of a wide one they are all that is known (`is_wide`).
    """

    quantiles: Mapping[tuple[str, float], Reading] = MappingProxyType({})
    means: Mapping[str, Reading] = MappingProxyType({})
    first_bounds: Mapping[str, Reading] = MappingProxyType({})
    quantile_bounds: Mapping[tuple[str, float], tuple[float, float]] = MappingProxyType({})


def latencies_of(scrape: ScrapeSource, key: EngineKey, version: str | None, *, ahead: float) -> Latencies:
    """Return the latencies of the last minute, by the histograms of an engine of this version."""
    quantiles: dict[tuple[str, float], Reading] = {}
    means: dict[str, Reading] = {}
    first_bounds: dict[str, Reading] = {}
    quantile_bounds: dict[tuple[str, float], tuple[float, float]] = {}
    histograms = histograms_of(scrape, key, version, ahead=ahead)
    for stage, name in STAGES.items():
        shown = histograms.get(name)
        if shown is None:
            continue
        if math.isfinite(shown.histogram.bounds[0]):
            first_bounds[stage] = Reading(shown.histogram.bounds[0], shown.at, "metrics")
        recent = scrape.window.recent(key, _histogram_name(name, version))
        if recent is None:
            continue
        if recent.mean is not None:
            means[stage] = Reading(recent.mean, shown.at, "metrics")
        for key_of_quantile in _QUANTILE_KEYS[stage]:
            _, quantile = key_of_quantile
            seconds = estimate_quantile(recent, quantile)
            if seconds is not None:
                quantiles[key_of_quantile] = Reading(seconds, shown.at, "metrics")
            bounds = coarse_bounds(recent, quantile)
            if bounds is not None:
                quantile_bounds[key_of_quantile] = bounds
    return Latencies(quantiles, means, first_bounds, quantile_bounds)


def step_times_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[StepClass, StepTime]:
    """Return the times of an engine's decode steps in the minutes before the last scrape."""
    return _step_times(scrape.step_times.get(key), scrape.read_at, ahead)


def step_times_of_log(
    engine: EngineLog, now: float, *, keeps_stale: bool, ahead: float
) -> Mapping[StepClass, StepTime]:
    """Return the times of an engine's decode steps in the minutes before its last line, if that is fresh."""
    return _step_times(engine.step_times, engine.stats_at, ahead) if keeps_stale or engine.is_fresh(now) else {}


def _step_times(known: StepTimes | None, at: float | None, ahead: float) -> Mapping[StepClass, StepTime]:
    recent = known.recent(at) if known is not None and at is not None else {}
    if not ahead:
        return recent
    return {of_class: time._replace(at=time.at + ahead) for of_class, time in recent.items()}


def facts_of(
    log: LogSource | None, scrape: ScrapeSource | None, of_flags: Mapping[str, float], engine: str
) -> dict[str, float]:
    """Return what an engine was started with, by the log where it has it, else by /metrics or the flags."""
    facts: dict[str, float | None] = {**of_flags}
    reading = scrape.reading if scrape else None
    if reading is not None:
        facts["kv_cache_capacity_tokens"] = reading.kv_cache_tokens.get(engine)
        facts["max_concurrency"] = reading.max_concurrency.get(engine)
    if log is not None:
        logged = _facts_of_log(log, engine)
        facts.update({name: value for name, value in logged.items() if value is not None})
        if (
            "data_parallel_size" not in facts
            and log.facts.is_believed_alone()
            and (reading is None or len(reading.engines) < 2)
        ):
            facts["data_parallel_size"] = 1
    return {name: value for name, value in facts.items() if value is not None}


def startup_seconds_of(log: LogSource | None, engine: str) -> Mapping[str, float]:
    """Return how long the phases of an engine's start took, by phase."""
    own = log.facts.of_engine(engine) if log is not None else None
    return own.startup_seconds if own is not None else {}


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else round(gib * 2**30)


def _facts_of_log(log: LogSource, engine: str) -> dict[str, float | None]:
    """Return the facts by series; `None` where the log does not have one."""
    facts = log.facts
    own = facts.of_engine(engine)
    return {
        "kv_cache_capacity_tokens": facts.capacity_tokens(engine),
        "max_concurrency": own.max_concurrency if own else None,
        "model_load_seconds": own.model_load_seconds if own else None,
        "model_weights_bytes": _bytes(own.model_load_gib) if own else None,
        "kv_cache_bytes": _bytes(own.kv_cache_memory_gib) if own else None,
        "max_running_requests": facts.max_num_seqs,
        "max_model_len_tokens": facts.max_model_len,
        "num_speculative_tokens": facts.num_speculative_tokens,
        "tensor_parallel_size": facts.tensor_parallel_size,
        "data_parallel_size": facts.data_parallel_size,
        "api_servers": facts.api_server_count,
    }
