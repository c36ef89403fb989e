# SPDX-License-Identifier: Apache-2.0
"""What /metrics has about a whole server, rather than about its engines: values and histograms, by series."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.catalog.series import SERIES
from vllm_watch.state.precedence import shown_scrape
from vllm_watch.state.server_sources import ServerSources
from vllm_watch.state.snapshot import HistogramReading, Reading
from vllm_watch.state.totals import counted_scrape
from vllm_watch_parsers.server_families import ServerSeries


def server_values(sources: ServerSources, now: float, *, is_present: bool) -> Mapping[ServerSeries, Reading]:
    """Return the values: gauges only while they are recent and the server is there, counters like all others."""
    shown, counted = shown_scrape(sources, now), counted_scrape(sources)
    newest = counted.window.newest if counted else None
    if newest is None:
        return {}
    at = newest.at + sources.ahead
    return {
        series: Reading(value, at, "metrics")
        for series, value in newest.reading.server_values.items()
        if (is_present and shown is not None) or SERIES[series.name].type == "counter"
    }


def server_histograms(sources: ServerSources) -> Mapping[ServerSeries, HistogramReading]:
    """Return the histograms."""
    counted = counted_scrape(sources)
    newest = counted.window.newest if counted else None
    if newest is None:
        return {}
    at = newest.at + sources.ahead
    return {series: HistogramReading(histogram, at) for series, histogram in newest.reading.server_histograms.items()}
