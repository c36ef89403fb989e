# SPDX-License-Identifier: Apache-2.0
"""
What a server has counted since its last start, from one source: counts of two sources are never mixed.

If /metrics is configured, only /metrics is used, even while it cannot be read. Otherwise the log is used.
"""

from __future__ import annotations

from collections.abc import Iterable

from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.state.engine_values import (
    counters_by_label,
    counters_of_log,
    counters_of_scrape,
    finished_of,
    histograms_of,
    prompt_tokens_of,
)
from vllm_watch.daemon.state.kv_values import kv_counters, pushed
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import EngineTotals, Reading
from vllm_watch_parsers.scrape import EngineKey


def counted_scrape(sources: ServerSources) -> ScrapeSource | None:
    """
    Return the scrapes that counters are taken from: also the last ones of a server that is gone.

    Prometheus reads them later than the daemon; what was counted just before the end would be lost otherwise. They
    last until the next life has been scraped, or is ready and has not been scraped yet.
    """
    scrape, log = sources.scrape, sources.log
    if scrape is None or scrape.read_at is None:
        return None
    has_next = log is not None and log.life.phase == "ready" and (log.life.started_at or 0.0) > scrape.read_at
    return None if has_next else scrape


def engine_totals(sources: ServerSources, key: EngineKey) -> EngineTotals:
    """Return what an engine has counted."""
    ahead, name = sources.ahead, sources.name_in_log(key)
    if sources.scrape is None:
        logged = counters_of_log(sources.log, name, ahead=ahead) if sources.log else {}
        moved = kv_counters(sources.log, None, key, name, ahead=ahead)
        return EngineTotals(key, logged, {}, {}, {}, pushed(moved, sources.flags))
    scrape = counted_scrape(sources)
    if scrape is None:
        return EngineTotals(key, {}, {}, {}, {})
    return EngineTotals(
        key,
        counters_of_scrape(scrape, key, ahead=ahead),
        finished_of(scrape, key, ahead=ahead),
        prompt_tokens_of(scrape, key, ahead=ahead),
        histograms_of(scrape, key, sources.version, ahead=ahead),
        pushed(kv_counters(None, scrape, key, name, ahead=ahead), sources.flags),
        counters_by_label(scrape, key, ahead=ahead),
    )


def former_totals(sources: ServerSources, present: Iterable[EngineKey]) -> tuple[EngineTotals, ...]:
    """Return the totals of engines in the last scrape that are not among the present ones."""
    scrape, shown = counted_scrape(sources), set(present)
    reading = scrape.reading if scrape else None
    return tuple(engine_totals(sources, key) for key in (reading.engines if reading else ()) if key not in shown)


def admission_rejections(sources: ServerSources) -> dict[tuple[str, str], Reading]:
    """Return the requests that the server has rejected at its door, by model and reason."""
    scrape = counted_scrape(sources)
    newest = scrape.window.newest if scrape else None
    if newest is None:
        return {}
    rejections = newest.reading.admission_rejections
    return {key: Reading(value, newest.at + sources.ahead, "metrics") for key, value in rejections.items()}


def values_out_of_range(sources: ServerSources) -> dict[tuple[SourceName, str], int]:
    """Return how many values of each source were out of range, by quantity."""
    counts: dict[tuple[SourceName, str], int] = {}
    if sources.log is not None:
        counts.update({("log", quantity): count for quantity, count in sources.log.totals.out_of_range.items()})
    if sources.scrape is not None:
        counts.update({("metrics", quantity): count for quantity, count in sources.scrape.out_of_range.items()})
    return counts


def label_values_dropped(sources: ServerSources) -> dict[SourceName, int]:
    """Return how many names (engines, models, values of labels) of each source were over the limit."""
    counts: dict[SourceName, int] = {}
    if sources.log is not None:
        counts["log"] = sources.log.totals.dropped
    if sources.scrape is not None:
        counts["metrics"] = sources.scrape.dropped
    return counts
