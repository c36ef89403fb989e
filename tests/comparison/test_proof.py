# SPDX-License-Identifier: Apache-2.0
"""
The verdicts are right so often as they claim, on simulated servers whose truth is known.

All seeds are fixed. A configuration's runs differ in their arrivals and lengths, and in speed by 0 to 3 %. From them
pairs of sides are drawn again and again; each pair is compared in full, as `compare` does it.
"""

from __future__ import annotations

import functools
import math
import random

from statistics import fmean

import pytest

from tests.comparison.batching import Server, noisy_run
from tests.support.load_tests import called_different
from tests.support.samples import number_of, sample

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, Side, metric_value
from vllm_watch.analysis.loadtest.load_test import QUANTILES
from vllm_watch.daemon.statistics.ratio import coefficient_of_variation, geometric_mean, ratio_interval


SERVER = Server()
EFFECT = 1.1
REQUESTS = 600
LOADS = ("half", "near saturation", "closed")
SENT = {
    "half": {"rate": SERVER.capacity * 0.5},
    "near saturation": {"rate": SERVER.capacity * 0.8},
    "closed": {"users": 16},
    "queue of users": {"users": 34},
}
"""Poisson arrivals at 50 % and at 80 % of what the server can do, sixteen users, and more users than have room."""
LATENCIES = [f"{name}.{statistic}" for name in ("tpot_ms", "e2el_ms") for statistic in ("mean", *QUANTILES)]
TTFT = [f"ttft_ms.{statistic}" for statistic in ("mean", *QUANTILES)]
WITH_INTERVALS = {
    "half": {*LATENCIES, *TTFT},
    "near saturation": {*LATENCIES},
    "closed": {*LATENCIES, *TTFT, "output_throughput", "request_throughput"},
}
"""At a rate throughput repeats it, and near saturation TTFT is that of a queue that some runs have."""
POOL = number_of(60, 200, "VLLM_WATCH_RUNS")
"""Runs of each configuration; half of the processor's time is to simulate them."""
PAIRS = sample(60, 200)
DRAWN = {
    2: number_of(150, 1_500, "VLLM_WATCH_PAIRS"),
    3: number_of(150, 1_000, "VLLM_WATCH_PAIRS"),
    5: number_of(150, 1_000, "VLLM_WATCH_PAIRS"),
}
"""
Pairs of which the share that holds the truth is counted, by runs a side.
"""
STANDARD_ERRORS = sample(3, 2)
"""How many a share may be beyond its limits: 4 points with few pairs, half a point with many."""

pytestmark = pytest.mark.slow


@functools.cache
def pool(load, cv, speed=1.0):
    """Return the runs of a configuration, by load, variation between runs, and speed."""
    seed = round(speed * 1000)
    return tuple(noisy_run(seed * POOL + at, SERVER.faster_by(speed), cv, REQUESTS, **SENT[load]) for at in range(POOL))


def drawn(seed, runs_a, runs_b, number):
    """Yield pairs of sides with so many runs each; a run is on one side only."""
    generator = random.Random(seed)
    for _ in range(PAIRS):
        if runs_a is runs_b:
            chosen = generator.sample(runs_a, 2 * number)
            ours, theirs = chosen[:number], chosen[number:]
        else:
            ours, theirs = generator.sample(runs_a, number), generator.sample(runs_b, number)
        yield Side(name="a", runs=tuple(ours)), Side(name="b", runs=tuple(theirs))


def truth(metric, runs_a, runs_b):
    """Return the difference in per cent between all runs of both configurations."""
    means = [geometric_mean(values(metric, runs)) for runs in (runs_a, runs_b)]
    return (means[1] / means[0] - 1) * 100


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("load", LOADS)
def test_equal_configurations_are_not_called_different(load, number):
    """A/A: of pairs of one configuration 5 % have any metric called different, but for what chance does to 200."""
    runs = pool(load, 0.02)
    found = [compare_pair(*sides) for sides in drawn(number, runs, runs, number)]

    assert all(each.metrics for each in found)
    assert sum(bool(called_different(each)) for each in found) <= 0.05 * PAIRS + 3 * math.sqrt(0.05 * 0.95 * PAIRS)


@pytest.mark.parametrize(("load", "cv", "speed"), [("half", 0.0138, 1.069), ("closed", 0.028, EFFECT)])
def test_an_effect_of_ten_percent_is_found(load, cv, speed):
    """A/B: five runs a side that vary by 3 % show a headline better by 10 % in at least 90 % of the pairs."""
    runs = pool(load, cv), pool(load, cv, speed)
    found = [compare_pair(*sides) for sides in drawn(7, *runs, 5)]
    headlines = [row for each in found for row in each.metrics if row.is_headline]
    metric = BY_NAME[headlines[0].metric]
    factor = 1 + truth(metric, *runs) / 100

    assert len(headlines) == PAIRS
    assert 0.027 <= fmean(coefficient_of_variation(values(metric, each)) for each in runs) <= 0.033
    assert max(factor, 1 / factor) == pytest.approx(1.10, abs=0.01)
    assert sum(row.grade == "shown" and row.is_better for row in headlines) >= 0.90 * PAIRS
    assert not [row for row in headlines if row.grade == "shown" and not row.is_better]


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("load", LOADS)
def test_intervals_cover_the_truth(load, number):
    """Of each metric that has an interval, that of 95 % holds the true difference in 90 to 98 %."""
    shares = covered(sorted(WITH_INTERVALS[load]), load, number)

    assert outside(shares, number) == {}
    assert 0.90 <= fmean(shares.values()) <= 0.98


def values(metric, runs):
    """Return a metric's value in each run."""
    return [metric_value(metric, run.result) for run in runs]


def covered(names, load, number):
    """Return for each metric in which share of drawn pairs its interval holds the true difference."""
    runs = pool(load, 0.02), pool(load, 0.02, EFFECT)
    return {name: held(*(values(BY_NAME[name], each) for each in runs), number) for name in names}


def held(known_a, known_b, number):
    """Return in which share of pairs of sides, drawn from all values, the interval holds the ratio of all of them."""
    generator = random.Random(number)
    true = geometric_mean(known_b) / geometric_mean(known_a)
    intervals = (
        ratio_interval(generator.sample(known_a, number), generator.sample(known_b, number))
        for _ in range(DRAWN[number])
    )
    return fmean(found.low <= true <= found.high for found in intervals)


def outside(shares, number):
    """Return the shares that are below 90 % or above 98 %, by more than what so many pairs leave open."""
    more = {name: STANDARD_ERRORS * math.sqrt(share * (1 - share) / DRAWN[number]) for name, share in shares.items()}
    return {name: share for name, share in shares.items() if not 0.90 - more[name] <= share <= 0.98 + more[name]}
