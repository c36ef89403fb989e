# SPDX-License-Identifier: Apache-2.0
"""Example reports, made from real ones, that show what a quiet server's sources will report once there is traffic."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_watch.daemon.reading.log_reader import LogBatch, TimedEvent
from vllm_watch.daemon.state.engine_log import DEFAULT_INTERVAL
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.step_times import MIN_MEASURED
from vllm_watch_parsers.events import EngineStats, SpecDecoding
from vllm_watch_parsers.scrape import DEFAULT_ENGINE, EngineReading, Histogram


_SECONDS = 15.0
"""Seconds from one scrape that is made up to the next: long enough for rates."""

_MORE = 1000.0


def add_traffic(sources: ServerSources, now: float, *, has_statistics: bool) -> float:
    """
    Let a server's sources report some traffic after now, and return when it ends.

    Nothing is made up for a source that cannot be read. Values are kept whatever their age.

    Args:
        sources: The sources.
        now: The moment.
        has_statistics: Whether the log will ever have statistics.
    """
    sources.settings = sources.settings._replace(keeps_stale=True)
    log, scrape = sources.log, sources.scrape
    for number in range(1, MIN_MEASURED + 1):  # As many scrapes as the time of a step takes.
        if scrape is not None and scrape.last is not None and scrape.last.reading is not None:
            reading = scrape.last.reading
            engines = {key: _engine_with_traffic(engine) for key, engine in reading.engines.items()}
            scrape.apply(scrape.last._replace(at=now + _SECONDS * number, reading=reading._replace(engines=engines)))
    end = now + _SECONDS * MIN_MEASURED
    if log is not None and sources.log_status.is_up and has_statistics:
        log.apply(_lines_with_traffic(log, end))
    return end


def _lines_with_traffic(log: LogSource, at: float) -> LogBatch:
    """Return a log's statistics until then: the quantities of every release, and drafts if the server makes some."""
    events: list[TimedEvent] = []
    for number in range(MIN_MEASURED, -1, -1):
        moment = at - DEFAULT_INTERVAL * number
        for name in list(log.engines) or [DEFAULT_ENGINE]:
            events.extend(TimedEvent(moment, event) for event in _lines_of(log, name))
    return LogBatch(tuple(events), {}, len(events), 0, at, 0)


def _lines_of(log: LogSource, name: str) -> Iterator[EngineStats | SpecDecoding]:
    """Yield the next statistics of an engine that decodes one request."""
    known = log.engines.get(name)
    last = EngineStats(name, 1.0, 1.0, 1, 0, kv_cache_usage_ratio=0.5, prefix_cache_hit_ratio=0.5)
    if known is not None:
        last = known.stats
    rate = last.generation_tokens_per_second
    yield last._replace(
        prompt_tokens_per_second=0.0 if last.prompt_tokens_per_second is not None else None,
        generation_tokens_per_second=1.0 if rate is not None else None,
        requests_running=1,
    )
    if known is not None and known.spec is not None:
        yield known.spec
    elif log.facts.num_speculative_tokens:
        yield SpecDecoding(name, 2.0, 1.0, 2.0, 10, 20, 0.5)


def _engine_with_traffic(engine: EngineReading) -> EngineReading:
    """Return an engine after requests whose outputs are as many as its counters and histograms say."""
    more = {"generation_tokens": 3 * _MORE, "preemptions": 0.0}  # Accepted drafts, first outputs, and others.
    if "accepted_tokens" not in engine.counters:
        more["generation_tokens"] = 2 * _MORE
    gauges = {**engine.gauges}
    if "requests_running" in gauges:
        gauges["requests_running"] = max(gauges["requests_running"], 1.0)
    return engine._replace(
        gauges=gauges,
        counters={name: value + more.get(name, _MORE) for name, value in engine.counters.items()},
        histograms={name: _with_observations(histogram) for name, histogram in engine.histograms.items()},
    )


def _with_observations(histogram: Histogram) -> Histogram:
    return histogram._replace(counts=tuple(count + _MORE for count in histogram.counts), sum=histogram.sum + _MORE)
