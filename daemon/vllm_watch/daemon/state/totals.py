# SPDX-License-Identifier: Apache-2.0
"""
What a server has counted since its last start, from one source: counts of two sources are never mixed.

If /metrics is configured, only /metrics is used, even while it cannot be read. Otherwise the log is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.state.engine_state import server_state
from vllm_watch.daemon.state.latencies import histograms_of
from vllm_watch.daemon.state.log_source import LogTotals
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import EngineTotals, HistogramReading, Reading
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.kv_transfer import KvKey
from vllm_watch_parsers.metric_names import CACHE_SOURCES, PROMPT_SOURCES, WATERMARKED, ServerSeries


K = TypeVar("K")

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

GIVEN_UP = ServerSeries("requests_given_up_total")

_CONNECTOR_FLAG = "kv-transfer-config.kv_connector"
_PUSHES = "NixlPushConnector"
_PULLED, _PUSHED = ("nixl", "in"), ("nixl", "out")


def engine_totals(sources: ServerSources, key: EngineKey) -> EngineTotals:
    """Return what an engine has counted."""
    totals = EngineTotals(key, {}, {}, {}, {})
    scrape, log = sources.counted_scrape, sources.log
    engine = scrape.window.engine(key) if scrape else None
    if scrape is not None and engine is not None:
        at = scrape.window.at + sources.ahead
        counters = {name: Reading(count, at, "metrics") for name, count in engine.counters.items()}
        totals = EngineTotals(
            key,
            counters={series: counters[name] for name, series in _COUNTERS.items() if name in counters},
            requests_finished=_readings(engine.requests_finished, at),
            # They are not known before 0.16.
            prompt_tokens={source: counters[name] for source, name in PROMPT_SOURCES.items() if name in counters},
            histograms=histograms_of(scrape, key, sources.version, ahead=sources.ahead),
            kv=_readings(engine.kv.counters, at),
            by_label={place: counters[name] for name, place in _BY_LABEL.items() if name in counters},
        )
    elif sources.scrape is None and log is not None and log.last_line_at is not None:
        at, name = log.last_line_at + sources.ahead, sources.name_in_log(key)
        totals = totals._replace(counters=log.totals.counters(name, at), kv=log.totals.kv_counters(name, at))
    if totals.kv and sources.flags.value(_CONNECTOR_FLAG) == _PUSHES:
        return totals._replace(kv=_pushed(totals.kv))
    return totals


def _readings(counts: Mapping[K, float], at: float) -> dict[K, Reading]:
    return {key: Reading(count, at, "metrics") for key, count in counts.items()}


def _pushed(counters: Mapping[KvKey, Reading]) -> Mapping[KvKey, Reading]:
    """Return counters with the direction of NIXL's transfers where it sends: its other connectors read."""
    return {KvKey(key.series, _PUSHED) if key.labels == _PULLED else key: reading for key, reading in counters.items()}


def former_totals(sources: ServerSources, present: Iterable[EngineKey]) -> tuple[EngineTotals, ...]:
    """Return the totals of engines in the last scrape that are not among the present ones."""
    scrape, shown = sources.counted_scrape, set(present)
    reading = scrape.reading if scrape else None
    return tuple(engine_totals(sources, key) for key in (reading.engines if reading else ()) if key not in shown)


def admission_rejections(sources: ServerSources) -> dict[tuple[str, str], Reading]:
    """Return the requests that the server has rejected at its door, by model and reason."""
    scrape = sources.counted_scrape
    if scrape is None or scrape.reading is None:
        return {}
    return _readings(scrape.reading.admission_rejections, scrape.window.at + sources.ahead)


def values_out_of_range(sources: ServerSources) -> dict[tuple[SourceName, str], int]:
    """Return how many values of each source were out of range, by quantity."""
    return {
        (name, quantity): count
        for name, source in _counting(sources)
        for quantity, count in source.out_of_range.items()
    }


def label_values_dropped(sources: ServerSources) -> dict[SourceName, int]:
    """Return how many names (engines, models, values of labels) of each source were over the limit."""
    return {name: source.dropped for name, source in _counting(sources)}


def _counting(sources: ServerSources) -> Iterator[tuple[SourceName, LogTotals | ScrapeSource]]:
    if sources.log is not None:
        yield "log", sources.log.totals
    if sources.scrape is not None:
        yield "metrics", sources.scrape


def server_values(sources: ServerSources, now: float) -> Mapping[ServerSeries, Reading | HistogramReading]:
    """Return them: gauges only while they are recent and the server is there, all others like those of its engines."""
    scrape = sources.counted_scrape
    if scrape is None or scrape.reading is None:
        return {}
    at, reading = scrape.window.at + sources.ahead, scrape.reading
    has_gauges = _has_gauges(sources, now)
    values = {
        series: Reading(value, at, "metrics")
        for series, value in reading.server_values.items()
        if has_gauges or SERIES[series.name].type == "counter"
    }
    histograms = {series: HistogramReading(histogram, at) for series, histogram in reading.server_histograms.items()}
    given_up = scrape.given_up.count
    if given_up is not None:
        values[GIVEN_UP] = Reading(given_up, at, "metrics")
    return {**values, **histograms}


def _has_gauges(sources: ServerSources, now: float) -> bool:
    if sources.settings.keeps_stale:
        return True
    is_gone = server_state(sources.log, sources.scrape, now) in {"down", "starting"}
    return sources.shown_scrape(now) is not None and not is_gone
