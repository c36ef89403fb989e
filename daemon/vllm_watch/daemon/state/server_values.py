# SPDX-License-Identifier: Apache-2.0
"""What /metrics has about a whole server, rather than about its engines: values and histograms, by series."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.state.engine_state import server_state
from vllm_watch.daemon.state.precedence import shown_scrape
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import HistogramReading, Reading
from vllm_watch.daemon.state.totals import counted_scrape
from vllm_watch_parsers.server_families import ServerSeries


def server_values(sources: ServerSources, now: float) -> Mapping[ServerSeries, Reading | HistogramReading]:
    """Return them: gauges only while they are recent and the server is there, all others like those of its engines."""
    counted = counted_scrape(sources)
    newest = counted.window.newest if counted else None
    if newest is None:
        return {}
    at, reading = newest.at + sources.ahead, newest.reading
    has_gauges = _has_gauges(sources, now)
    values = {
        series: Reading(value, at, "metrics")
        for series, value in reading.server_values.items()
        if has_gauges or SERIES[series.name].type == "counter"
    }
    histograms = {series: HistogramReading(histogram, at) for series, histogram in reading.server_histograms.items()}
    return {**values, **histograms}


def _has_gauges(sources: ServerSources, now: float) -> bool:
    """Return whether the last scrape is about the present of a server that is there."""
    if sources.settings.keeps_stale:
        return True
    is_gone = server_state(sources.log, sources.scrape, now) in {"down", "starting"}
    return shown_scrape(sources, now) is not None and not is_gone
