# SPDX-License-Identifier: Apache-2.0
"""The points of a server's history as samples of its load, all engines together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.loadtest.history import Point
from vllm_watch.analysis.loadtest.snapshot_point import ACCEPTED
from vllm_watch.analysis.loadtest.usage import COMPUTED, DRAFTS, GENERATED
from vllm_watch.daemon.capacity.windows import LoadSample


_RATES = {GENERATED: "generation_tokens_per_second", COMPUTED: "prompt_tokens_per_second"}
"""What a history has where tokens are not counted."""


def load_samples(points: Sequence[Point]) -> Iterator[LoadSample]:
    """Yield a sample for each point that has values of its own."""
    added = dict.fromkeys(_RATES, 0.0)
    last: float | None = None
    for point in points:
        gauges = point.gauges
        if not point.is_fresh or "requests_running" not in gauges:
            continue
        seconds = 0.0 if last is None else point.at - last
        for counter, rate in _RATES.items():
            added[counter] += gauges.get(rate, 0.0) * seconds
        last = point.at
        tokens = {
            counter: point.counters.get(counter, added[counter] if _RATES[counter] in gauges else None)
            for counter in _RATES
        }
        yield _sample(point, tokens)


def _sample(point: Point, tokens: Mapping[str, float | None]) -> LoadSample:
    gauges, counters, histograms = point.gauges, point.counters, point.histograms
    prompts, answers = histograms.get("request_prompt_tokens"), histograms.get("request_generation_tokens")
    return LoadSample(
        at=point.at,
        running=gauges["requests_running"],
        queued=gauges.get("requests_waiting", 0.0) - gauges.get("requests_deferred", 0.0),
        kv_cache_usage=gauges.get("kv_cache_usage_ratio"),
        generated=tokens[GENERATED],
        computed=tokens[COMPUTED],
        preemptions=counters.get("preemptions_total"),
        prefix_queries=counters.get("prefix_cache_queries"),
        prefix_hits=counters.get("prefix_cache_hits"),
        drafts=counters.get(DRAFTS),
        accepted=counters.get(ACCEPTED),
        prompted=None if prompts is None or prompts.is_estimate else prompts.sum,
        answered=None if answers is None or answers.is_estimate else answers.sum,
        measured=None if prompts is None else prompts.observations,
    )
