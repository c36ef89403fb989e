# SPDX-License-Identifier: Apache-2.0
"""
One engine's gauges by its scrapes, under the names of their series (without the prefix).

`ahead` is how many seconds the wall clock is ahead of the scrapes' times: readings have the wall clock's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.kv_transfer import KvKey
from vllm_watch_parsers.readings import EngineReading


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


def gauges_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[str, Reading | None]:
    """
    Return an engine's gauges by the last scrapes.

    A quantity that they have, but that has no value at present (a hit ratio without a query), is `None`; one that they
    do not have, or that takes more scrapes than there were so far, is left out.
    """
    at, engine = scrape.window.at + ahead, scrape.window.engine(key)
    if engine is None:
        return {}
    values: dict[str, float | None] = {name: engine.gauges[name] for name in _NOW if name in engine.gauges}
    values.update({name: engine.gauges[gauge] for name, gauge in _LIFETIME.items() if gauge in engine.gauges})
    if scrape.window.has_span(key):
        values.update(_changes(scrape, key, engine))
    return {name: None if value is None else Reading(value, at, "metrics") for name, value in values.items()}


def _changes(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
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


def gauges_of_traffic(engine: EngineReading) -> Iterator[str]:
    """Yield the gauges that an engine will have once there is traffic, by the counters and histograms that it has."""
    known = engine.counters.keys() | engine.histograms.keys()
    yield from (name for name, counter in _RATES.items() if counter in known)
    yield from (name for name, parts in _RATIOS.items() if known >= set(parts))
    if not known.isdisjoint({"prompt_tokens", "prompt_tokens_computed"}):
        yield "prompt_tokens_per_second"
    if known >= {"accepted_tokens", "drafts"}:
        yield "spec_decode_mean_acceptance_length"
    if known >= {"iteration_tokens", "inter_token_latency_seconds", "time_to_first_token_seconds"}:
        yield "decode_step_seconds"


def _work(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
    """Return the work done per second, if vLLM estimates it: what was never counted is not known."""
    values: dict[str, float | None] = {}
    for name, counters in _WORK.items():
        if any(engine.counters.get(counter) for counter in counters):
            rates = [scrape.window.rate(key, counter) for counter in counters]
            values[name] = sum(rate or 0.0 for rate in rates) if None not in rates else None
    return values


def _prompt_rate(scrape: ScrapeSource, key: EngineKey, engine: EngineReading) -> dict[str, float | None]:
    """Return prompt tokens computed per second; before 0.16 cached ones cannot be distinguished from them."""
    window, name = scrape.window, "prompt_tokens_per_second"
    if "prompt_tokens_computed" in engine.counters:
        return {name: window.rate(key, "prompt_tokens_computed")}
    if "prompt_tokens" not in engine.counters:
        return {}
    every, cached = window.rate(key, "prompt_tokens"), window.rate(key, "prompt_tokens_cached")
    return {name: every if every is None or cached is None else max(every - cached, 0.0)}


def positions_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> tuple[Reading, ...] | None:
    """Return the recent share of drafts accepted at each position; `None` if /metrics does not have positions."""
    engine = scrape.window.engine(key)
    if engine is None or not engine.position_accepted or not scrape.window.has_span(key):
        return None
    return tuple(Reading(ratio, scrape.window.at + ahead, "metrics") for ratio in scrape.window.position_ratios(key))


def kv_gauges_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[KvKey, Reading]:
    """Return what an engine's KV connectors do by the last scrape."""
    engine = scrape.window.engine(key)
    if engine is None:
        return {}
    return {key: Reading(value, scrape.window.at + ahead, "metrics") for key, value in engine.kv.gauges.items()}
