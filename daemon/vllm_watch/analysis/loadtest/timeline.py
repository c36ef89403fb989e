# SPDX-License-Identifier: Apache-2.0
"""A server's history as series for plots, thinned so that peaks survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from vllm_watch.analysis.loadtest.growth import Growth
from vllm_watch.analysis.loadtest.history import Point
from vllm_watch.analysis.loadtest.model import Timeline
from vllm_watch.analysis.loadtest.usage import COMPUTED, GENERATED


MAX_TIMES = 600
_GAUGES = (
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
    "prefix_cache_hit_ratio",
    "spec_decode_mean_acceptance_length",
    "spec_decode_acceptance_ratio",
)
_RATES = {"generation_tokens_per_second": GENERATED, "prompt_tokens_per_second": COMPUTED}
"""Series that are computed from counters where these are known: the gauges are means over ten seconds."""

Value = float | None


def timeline(points: Sequence[Point]) -> Timeline:
    """Return the series of some points; each value is that of the interval before its time."""
    times = [point.at for point in points[1:]]
    values: dict[str, list[Value]] = {name: [point.gauges.get(name) for point in points[1:]] for name in _GAUGES}
    for name, counter in _RATES.items():
        values[name] = [_rate(old, new, name, counter) for old, new in pairwise(points)]
    known = {name: each for name, each in values.items() if any(value is not None for value in each)}
    if len(times) <= MAX_TIMES:
        return Timeline(times=tuple(times), values={name: tuple(each) for name, each in known.items()})
    return _thinned(times, known)


def _rate(old: Point, new: Point, name: str, counter: str) -> Value:
    growth = Growth((old, new))
    grown = growth.counter(counter)
    return grown / growth.seconds if grown is not None and growth.seconds > 0 else new.gauges.get(name)


def _thinned(times: Sequence[float], values: dict[str, list[Value]]) -> Timeline:
    """Return two times for each stretch of the series: at the first is its lowest value, at the second its highest."""
    stretches = MAX_TIMES // 2
    edges = [round(part * len(times) / stretches) for part in range(stretches + 1)]
    parts = list(pairwise(edges))
    return Timeline(
        times=tuple(times[at] for first, last in parts for at in (first, last - 1)),
        values={
            name: tuple(pick(each[first:last]) for first, last in parts for pick in (_lowest, _highest))
            for name, each in values.items()
        },
    )


def _picked(values: Sequence[Value], pick: Callable[[Sequence[float]], float]) -> Value:
    known = [value for value in values if value is not None]
    return pick(known) if known else None


def _lowest(values: Sequence[Value]) -> Value:
    return _picked(values, min)


def _highest(values: Sequence[Value]) -> Value:
    return _picked(values, max)
