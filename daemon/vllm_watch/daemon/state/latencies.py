# SPDX-License-Identifier: Apache-2.0
"""
How long requests took, by the histograms of /metrics: since the start, in the last minute, and by the objectives.

Series of histograms are named as the quantities are. `ahead` is how many seconds the wall clock is ahead of the
scrapes' times: readings have the wall clock's.
"""

from __future__ import annotations

import math

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.snapshot import HistogramReading, Latencies, Reading
from vllm_watch.daemon.state.window import QUANTILES, STAGES
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.readings import Histogram


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

_RELEASE_WITH_SWAPPED_TIMES = "0.6.4"
_SWAPPED = {"prefill_time_seconds": "decode_time_seconds", "decode_time_seconds": "prefill_time_seconds"}

COARSE_FACTOR = 2.0
"""From this factor between its bounds on an estimate within a bucket is only roughly right."""

WIDE_FACTOR = 4.0
"""From this factor on a bucket is too wide to estimate within it: nobody may have waited so long."""


def _histogram_name(name: str, version: str | None) -> str:
    """Return the name of a histogram in /metrics: 0.6.4 exports two of them under each other's name."""
    return _SWAPPED.get(name, name) if version == _RELEASE_WITH_SWAPPED_TIMES else name


def histograms_of(
    scrape: ScrapeSource, key: EngineKey, version: str | None, *, ahead: float
) -> Mapping[str, HistogramReading]:
    """Return the histograms of an engine of this version as vLLM has them."""
    at, engine = scrape.window.at + ahead, scrape.window.engine(key)
    if engine is None:
        return {}
    names = {name: _histogram_name(name, version) for name in HISTOGRAMS}
    known = {name: engine.histograms[source] for name, source in names.items() if source in engine.histograms}
    return {name: HistogramReading(histogram, at) for name, histogram in known.items()}


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
        for quantile in QUANTILES:
            seconds = estimate_quantile(recent, quantile)
            if seconds is not None:
                quantiles[stage, quantile] = Reading(seconds, shown.at, "metrics")
            bounds = coarse_bounds(recent, quantile)
            if bounds is not None:
                quantile_bounds[stage, quantile] = bounds
    return Latencies(quantiles, means, first_bounds, quantile_bounds)


def is_wide(bounds: tuple[float, float | None]) -> bool:
    """Return whether all that is known of a quantile is that it is above the lower of these bounds of its bucket."""
    low, high = bounds
    return high is None or high >= WIDE_FACTOR * low


def coarse_bounds(histogram: Histogram, quantile: float) -> tuple[float, float] | None:
    """
    Return the bounds of the bucket that a quantile lies in, if that is a coarse one.

    The upper one may be infinite. Of the first bucket nothing is returned: it has no lower bound.
    """
    place = bisect_left(histogram.counts, quantile * histogram.observations)
    if not 0 < place < len(histogram.bounds):
        return None
    low, high = histogram.bounds[place - 1], histogram.bounds[place]
    return (low, high) if high >= COARSE_FACTOR * low else None


def estimate_quantile(histogram: Histogram, quantile: float) -> float | None:
    """
    Estimate a quantile as PromQL's `histogram_quantile` does: linear within its bucket.

    In the first bucket there is nothing to interpolate from: the result is `None`. A quantile in the infinite bucket is
    the highest finite bound: it is at least that.
    """
    rank = quantile * histogram.observations
    if histogram.counts[0] >= rank:
        return None
    bounds, counts = histogram.bounds, histogram.counts
    place = bisect_left(counts, rank)  # More than the bucket before has: the first one has less.
    if math.isinf(bounds[place]):
        return bounds[place - 1]
    low_bound, low_count = bounds[place - 1], counts[place - 1]
    return low_bound + (bounds[place] - low_bound) * (rank - low_count) / (counts[place] - low_count)


_OBJECTIVES = {
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
    """Return how each configured objective was met: counted at a bound of vLLM's own buckets, never interpolated."""
    found = []
    for name, seconds in slo.items():
        objective, histogram_name = _OBJECTIVES[name]
        reading = histograms.get(histogram_name)
        if reading is not None:
            bound, good = _within(reading.histogram, seconds)
            found.append(Attainment(objective, bound, good, reading.histogram.observations, reading.at))
    return found


def _within(histogram: Histogram, seconds: float) -> tuple[float, float]:
    return next(
        (bound, count) for bound, count in zip(histogram.bounds, histogram.counts, strict=True) if bound >= seconds
    )
