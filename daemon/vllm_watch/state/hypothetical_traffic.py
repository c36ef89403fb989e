# SPDX-License-Identifier: Apache-2.0
"""Example reports, made from real ones, that show what a quiet server's sources will report once there is traffic."""

from __future__ import annotations

from vllm_watch.reading.log_reader import LogBatch, TimedEvent
from vllm_watch.state.log_source import LogSource
from vllm_watch_parsers.events import EngineStats, SpecDecoding
from vllm_watch_parsers.scrape import DEFAULT_ENGINE, EngineReading, Histogram, MetricsReading


LATER = 15.0
"""Seconds until the scrape that is made up: long enough for rates."""

_MORE = 1000.0


def scrape_with_traffic(reading: MetricsReading) -> MetricsReading:
    """Return the same reading after some traffic: what is in it has grown, what is not is still absent."""
    return reading._replace(engines={key: _engine_with_traffic(engine) for key, engine in reading.engines.items()})


def lines_with_traffic(log: LogSource, at: float) -> LogBatch:
    """Return a log's next statistics: the quantities of every release, and drafts if the server makes some."""
    events: list[TimedEvent] = []
    for name in list(log.engines) or [DEFAULT_ENGINE]:
        if name not in log.engines:
            events.append(
                TimedEvent(at, EngineStats(name, 1.0, 1.0, 1, 0, kv_cache_usage_ratio=0.5, prefix_cache_hit_ratio=0.5))
            )
        if log.facts.num_speculative_tokens and (name not in log.engines or log.engines[name].spec is None):
            events.append(TimedEvent(at, SpecDecoding(name, 2.0, 1.0, 2.0, 10, 20, 0.5)))
    return LogBatch(tuple(events), {}, len(events), 0, at, 0)


def _engine_with_traffic(engine: EngineReading) -> EngineReading:
    return engine._replace(
        counters={name: value + _MORE for name, value in engine.counters.items()},
        histograms={name: _with_observations(histogram) for name, histogram in engine.histograms.items()},
    )


def _with_observations(histogram: Histogram) -> Histogram:
    return histogram._replace(counts=tuple(count + _MORE for count in histogram.counts), sum=histogram.sum + _MORE)
