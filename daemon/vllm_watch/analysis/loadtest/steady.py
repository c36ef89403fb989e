# SPDX-License-Identifier: Apache-2.0
"""The steady window of a load by the server's own values, and what was measured in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from vllm_watch.analysis.loadtest.energy_and_cost import energy_values, mean_powers, with_energy
from vllm_watch.analysis.loadtest.load_test import Objective, Steady
from vllm_watch.analysis.loadtest.loads import LoadSpan
from vllm_watch.analysis.loadtest.server_history import GENERATED, Growth, Point, rate
from vllm_watch.analysis.loadtest.server_result import (
    HISTOGRAMS,
    MILLISECONDS,
    arrivals,
    finished,
    server_result,
    server_use,
)
from vllm_watch.daemon.statistics.steady_window import METHOD, find_steady_window


DRIFT = "no steady state"
"""How the problem of a window begins that has no mean."""

BLOCKS = 10
_FEWER_BLOCKS = 5
_POINTS_PER_BLOCK = 2
_P99 = 0.99


def find_steady(load: LoadSpan, objective: Objective | None = None) -> Steady | None:
    """
    Return the steady window of a load, `None` if it has too few points to find one.

    A window that drifts has no numbers: what rises or falls has no mean.
    """
    inside = [point for point in load.points if load.start <= point.at <= load.end and point.is_fresh]
    window = find_steady_window(
        [point.at for point in inside],
        {
            "time per output token": [time_per_token(old, new) for old, new in pairwise([load.points[0], *inside])],
            "running requests": [point.gauges.get("requests_running") for point in inside],
        },
        _issued(load.points),
        _p99_latency(load.points),
    )
    if window is None:
        return None
    points = [point for point in inside if window.start <= point.at <= window.end]
    has_drift = window.problem is not None and window.problem.startswith(DRIFT)
    seconds = window.end - window.start
    result = None
    if not has_drift and seconds > 0:
        result = with_energy(server_result(points, seconds, objective), points, seconds)
    return Steady(
        start=window.start,
        end=window.end,
        method=METHOD,
        problem=window.problem,
        result=result,
        use=server_use(points),
        blocks={} if has_drift else blocks(points),
    )


def time_per_token(old: Point, new: Point) -> float | None:
    """
    Return the mean time per output token in an interval, in seconds.

    It is that of the requests that were finished, by /metrics. A log has none: there it is the interval's time divided
    by the tokens of each request that ran.
    """
    growth = Growth((old, new))
    observed = growth.histogram(HISTOGRAMS["tpot_ms"])
    if observed is not None:
        return observed.mean
    if HISTOGRAMS["tpot_ms"] in new.histograms:
        return None
    running = (old.gauges.get("requests_running", 0.0) + new.gauges.get("requests_running", 0.0)) / 2
    tokens = growth.counter(GENERATED) or 0.0
    return running * (new.at - old.at) / tokens if tokens > 0 and running > 0 else None


def blocks(points: Sequence[Point]) -> Mapping[str, tuple[float, ...]]:
    """
    Return the values of consecutive equal parts of a window, by metric, as many as its points allow.

    A metric that any part does not have is left out.
    """
    count = next((n for n in (BLOCKS, _FEWER_BLOCKS) if len(points) > n * _POINTS_PER_BLOCK), None)
    if count is None:
        return {}
    edges = [round(part * (len(points) - 1) / count) for part in range(count + 1)]
    parts = [_block(points[first : last + 1]) for first, last in pairwise(edges)]
    powers = mean_powers(points, [points[edge].at for edge in edges])
    for (first, last), part, watts in zip(pairwise(edges), parts, powers, strict=False):
        part.update(energy_values(watts, points[first : last + 1]))
    shared = set.intersection(*(set(part) for part in parts))
    return {name: tuple(part[name] for part in parts) for name in sorted(shared)}


def _block(points: Sequence[Point]) -> dict[str, float]:
    growth = Growth(points)
    values: dict[str, float | None] = {
        "output_throughput": rate(growth.counter(GENERATED), growth.seconds),
        "request_throughput": rate(finished(growth), growth.seconds),
    }
    for name, series in HISTOGRAMS.items():
        histogram = growth.histogram(series)
        mean = histogram.mean if histogram else None
        values[f"{name}.mean"] = None if mean is None else mean * MILLISECONDS
    return {name: value for name, value in values.items() if value is not None}


def _issued(points: Sequence[Point]) -> tuple[float, float] | None:
    """Return when the first and the last request came, to an interval; `None` if that is not known."""
    came = [(old.at, new.at) for old, new in pairwise(points) if (arrivals((old, new), Growth((old, new))) or 0) > 0]
    return (came[0][0], came[-1][1]) if came else None


def _p99_latency(points: Sequence[Point]) -> float | None:
    """Return the upper bound of the P99 of a request's whole latency, in seconds."""
    observed = Growth(points).histogram(HISTOGRAMS["e2el_ms"])
    if observed is None:
        return None
    buckets = zip(observed.bounds[:-1], observed.counts[:-1], strict=True)
    return next((bound for bound, count in buckets if count >= _P99 * observed.observations), None)
