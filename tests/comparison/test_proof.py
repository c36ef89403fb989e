# SPDX-License-Identifier: Apache-2.0
"""
The verdicts are right so often as they claim, on simulated servers whose truth is known.

All seeds are fixed. A configuration's runs differ in their arrivals and lengths, and in speed by 2 or 3 %. From them
pairs of sides are drawn again and again; each pair is compared in full, as `compare` does it.
"""

from __future__ import annotations

import functools
import random

from itertools import pairwise
from statistics import fmean, median

import pytest

from tests.support.batching import Server, noisy_run, simulate
from tests.support.load_tests import called_different
from tests.support.samples import sample

from vllm_watch.comparison.compare import compare_pair
from vllm_watch.comparison.metrics import FAMILY, METRICS, metric_value
from vllm_watch.comparison.model import Side
from vllm_watch.statistics.autocorrelation import autocorrelation
from vllm_watch.statistics.blocks import block_interval
from vllm_watch.statistics.ratio import geometric_mean, ratio_interval


SERVER = Server()
EFFECT = 1.1
REQUESTS = 600
LOADS = {
    "half": {"rate": SERVER.capacity * 0.5},
    "near saturation": {"rate": SERVER.capacity * 0.8},
    "closed": {"users": 16},
}
"""Poisson arrivals at 50 % and at 80 % of what the server can do, and sixteen users."""
BLOCK_METRICS = ("output_throughput", "tpot_ms.mean", "e2el_ms.mean")
POOL = sample(30, 100)
"""Runs of each configuration."""
PAIRS = sample(60, 200)

pytestmark = pytest.mark.slow


@functools.cache
def pool(load, cv, speed=1.0):
    """Return the runs of a configuration, by load, variation between runs, and speed."""
    seed = round(speed * 1000)
    return tuple(
        noisy_run(seed * POOL + at, SERVER.faster_by(speed), cv, REQUESTS, **LOADS[load]) for at in range(POOL)
    )


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
    means = [geometric_mean([metric_value(metric, run.result) for run in runs]) for runs in (runs_a, runs_b)]
    return (means[1] / means[0] - 1) * 100


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("load", LOADS)
def test_equal_configurations_are_not_called_different(load, number):
    """A/A: of 200 pairs (60 without --whole) of one configuration at most 5 % have any metric called different."""
    runs = pool(load, 0.02)
    found = [compare_pair(*sides) for sides in drawn(number, runs, runs, number)]

    assert all(each.metrics for each in found)
    assert sum(bool(called_different(each)) for each in found) <= 0.05 * PAIRS


@pytest.mark.parametrize("load", ["half", "closed"])
def test_an_effect_of_ten_percent_is_found(load):
    """A/B: with five runs a side the headline shows 10 % more speed in at least 88 % of the pairs, and never less."""
    found = [compare_pair(*sides) for sides in drawn(7, pool(load, 0.03), pool(load, 0.03, EFFECT), 5)]
    headlines = [row for each in found for row in each.metrics if row.is_headline]

    assert len(headlines) == PAIRS
    assert sum(row.verdict == "better" for row in headlines) >= 0.88 * PAIRS
    assert not [row for row in headlines if row.verdict == "worse"]


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("load", LOADS)
def test_intervals_cover_the_truth(load, number):
    """The 95 % intervals of the family hold the true difference in 90 to 98.5 %, all metrics together."""
    runs = pool(load, 0.02), pool(load, 0.02, EFFECT)
    known = {metric.name: truth(metric, *runs) for metric in METRICS if metric.name in FAMILY and has(metric, runs[0])}
    held = [
        row.low <= known[row.metric] <= row.high
        for sides in drawn(20 + number, *runs, number)
        for row in compare_pair(*sides).metrics
        if row.metric in known and row.low is not None
    ]

    assert len(held) >= 3 * PAIRS
    assert 0.90 <= fmean(held) <= 0.985


@pytest.mark.parametrize("load", LOADS)
def test_intervals_of_one_run_cover_the_truth(load):
    """With one run a side the true difference is held in at least 90 %; where runs do not vary, by the blocks alone."""
    runs = pool(load, 0.0), pool(load, 0.0, EFFECT)
    known = {name: block_mean(name, runs[1]) / block_mean(name, runs[0]) for name in BLOCK_METRICS}
    found = [
        (block_interval(*(side.runs[0].steady.blocks[name] for side in sides), cv_between_runs=0.0), known[name])
        for sides in drawn(31, *runs, 1)
        for name in BLOCK_METRICS
    ]

    assert len(found) == 3 * PAIRS
    assert fmean(interval.low <= ratio <= interval.high for interval, ratio in found) >= 0.90


def test_intervals_of_one_run_are_of_use():
    """Where users wait for each other's answers, half of the intervals of throughput and TPOT are within ±11 %."""
    found = [
        row
        for sides in drawn(32, pool("closed", 0.02), pool("closed", 0.02), 1)
        for row in compare_pair(*sides).metrics
        if row.metric in {"output_throughput", "tpot_ms.mean"}
    ]

    assert median((row.high - row.low) / 2 for row in found) < 11


def test_tests_over_requests_are_wrong():
    """What the method avoids: t over the requests of two equal runs calls TPOT different in most pairs."""
    generator = random.Random(41)
    values = []
    for _ in range(sample(16, 40)):
        requests = simulate(generator, SERVER, REQUESTS, **LOADS["half"])[60:-60]
        values.append([(each.last - each.first) / (each.tokens - 1) for each in requests])
    found = [ratio_interval(a, b) for a, b in pairwise(values)]

    assert fmean(autocorrelation(each) for each in values) > 0.5
    assert fmean(each.is_different for each in found) > 0.5


def block_mean(name, runs):
    """Return the mean of a metric's blocks over all runs."""
    return fmean(fmean(run.steady.blocks[name]) for run in runs)


def has(metric, runs):
    """Return whether runs have a metric."""
    return metric_value(metric, runs[0].result) is not None
