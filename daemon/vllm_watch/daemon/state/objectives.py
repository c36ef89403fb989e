# SPDX-License-Identifier: Apache-2.0
"""Requests that met a latency objective, counted exactly: at a bound of vLLM's own buckets, never interpolated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.state.snapshot import HistogramReading
from vllm_watch_parsers.scrape import Histogram


_HISTOGRAMS = {
    "slo_time_to_first_token_seconds": ("time_to_first_token", "time_to_first_token_seconds"),
    "slo_time_per_output_token_seconds": ("time_per_output_token", "time_per_output_token_seconds"),
}


class Attainment(NamedTuple):
    """
    How an objective was met since the server's start.

    Args:
        objective: The latency that it is about.
        bound: The bucket's bound that decides, in seconds: the objective, or the next bound above it.
        good: Requests within the bound.
        requests: All requests.
        at: The time of the counts.
    """

    objective: str
    bound: float
    good: float
    requests: float
    at: float


def attainments(slo: Mapping[str, float], histograms: Mapping[str, HistogramReading]) -> list[Attainment]:
    """Return how each configured objective was met, where there is a histogram for it."""
    found = []
    for name, seconds in slo.items():
        objective, histogram_name = _HISTOGRAMS[name]
        reading = histograms.get(histogram_name)
        if reading is not None:
            bound, good = _within(reading.histogram, seconds)
            found.append(Attainment(objective, bound, good, reading.histogram.observations, reading.at))
    return found


def _within(histogram: Histogram, seconds: float) -> tuple[float, float]:
    """Return the first bound that is not below an objective, and how many observations are within it."""
    return next(
        (bound, count) for bound, count in zip(histogram.bounds, histogram.counts, strict=True) if bound >= seconds
    )
