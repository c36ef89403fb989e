# SPDX-License-Identifier: Apache-2.0
"""What a server counted over some points: growth across restarts, rates, failures, and requests within an objective."""

from __future__ import annotations

import math

import pytest

from tests.loadtest.histories import recorded

from vllm_watch.analysis.loadtest.load_test import QUANTILES, Bounds, Objective, parse_objective
from vllm_watch.analysis.loadtest.runs import server_runs
from vllm_watch.analysis.loadtest.server_history import Growth, Point
from vllm_watch.analysis.loadtest.server_result import latencies, server_use
from vllm_watch_parsers.scrape import Histogram


def points(*counters, name="generation_tokens_total"):
    """Return points with these values of one counter; `None` where nothing was read."""
    return [
        Point(float(at), "serving", {}, {} if value is None else {name: float(value), "other": 1.0}, {})
        for at, value in enumerate(counters)
    ]


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ((5, 7, 12), 7),
        ((5, 7, 2, 4), 6),
        ((None, 5, 9), 4),
        ((5, None, 9), 4),
        ((5,), None),
        ((None, None), None),
        ((3, 3), 0),
    ],
)
def test_a_counter_grows(values, grown):
    """A fall is a reset; what was there before the first point that has it is not counted."""
    assert Growth(points(*values)).counter("generation_tokens_total") == grown


def test_a_counter_that_appears_later_counts_from_zero():
    """Where other counters are there already, a new one has counted from 0."""
    first, last = points(1, 1)
    last = last._replace(counters={**last.counters, "new": 4.0})

    assert Growth([first, last]).counter("new") == 4


def test_a_histogram_is_what_was_observed_between():
    """Counts and sums are differences, and after a reset what was counted since."""
    bounds = (1.0, math.inf)

    def at(*histogram):
        return Point(0.0, "serving", {}, {"x": 1.0}, {"h": Histogram(bounds, *histogram)})

    grown = Growth([at((1.0, 2.0), 5.0), at((3.0, 5.0), 9.0), at((0.0, 1.0), 2.0)]).histogram("h")

    assert grown == Histogram(bounds, (2.0, 4.0), 6.0)
    assert Growth([at((1.0, 2.0), 5.0), at((1.0, 2.0), 5.0)]).histogram("h") is None


def test_a_ratio_is_at_most_one():
    """Counters are read one after the other: hits may be ahead of queries."""
    first = Point(0.0, "serving", {}, {"hits": 0.0, "queries": 0.0}, {})

    assert Growth([first, first._replace(counters={"hits": 11.0, "queries": 10.0})]).ratio("hits", "queries") == 1
    assert Growth([first, first]).ratio("hits", "queries") is None


def test_no_mean_of_estimated_sums():
    """A histogram whose sum Ray has estimated has no mean, whatever it is added to."""
    bounds = (1.0, math.inf)
    points = [
        Point(at, "serving", {}, {"x": 1.0}, {"h": Histogram(bounds, (0.0, count), count, is_estimate=True)})
        for at, count in ((0.0, 5.0), (10.0, 9.0))
    ]
    growth = Growth(points).histogram("h")

    assert (growth.observations, growth.is_estimate, growth.mean) == (4, True, None)
    assert growth._replace(is_estimate=False).mean == 1.0


def _points(counters, gauges):
    return [Point(at, "serving", gauges, counters, {}) for at in (0.0, 2.0)]


def test_a_rate_of_zero_is_known():
    """Where tokens are counted and none came, the rate is 0: a rate of the time before is not used."""
    counters = {"prompt_tokens_computed": 500.0, "generation_tokens_total": 70.0}
    gauges = {"prompt_tokens_per_second": 5000.0, "generation_tokens_per_second": 900.0}
    use = server_use(_points(counters, gauges))

    assert (use.prompt_tokens_per_second, use.generation_tokens_per_second) == (0.0, 0.0)


def test_rates_that_nobody_counts_are_those_of_the_log():
    """Without counters the rates are means of what the log's lines say."""
    gauges = {"prompt_tokens_per_second": 5000.0, "generation_tokens_per_second": 900.0}
    use = server_use(_points({}, gauges))

    assert (use.prompt_tokens_per_second, use.generation_tokens_per_second) == (5000.0, 900.0)


def test_failed_requests_are_not_within_the_objective():
    """Of 271 requests 6 were rejected: with limits that every answer meets, 265 of 271 are within them."""
    (run,) = server_runs(recorded("rejections"), (), parse_objective("ttft=10s,tpot=5s"))
    goodput = run.result.goodput

    assert (run.result.successful, run.result.failed) == (265, 6)
    assert goodput.ratio == pytest.approx(265 / 271)
    assert goodput.request_goodput == pytest.approx(run.result.request_throughput)


def test_of_aborted_requests_answers_do_not_count():
    """Three requests were aborted after their first token: half of the six is the most that can be within limits."""
    runs = server_runs(recorded("pause"), (), parse_objective("ttft=1h"))
    run = next(run for run in runs if run.result.failed)

    assert (run.result.successful, run.result.failed) == (3, 3)
    assert run.result.goodput.bounds.high == 0.5


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=300ms,tpot=40ms", {"ttft_ms": 300.0, "tpot_ms": 40.0}),
        ("e2el = 5s", {"e2el_ms": 5000.0}),
        ("time_to_first_token=300ms,time_per_output_token=40ms", {"ttft_ms": 300.0, "tpot_ms": 40.0}),
        ("tpot=1ms, ttft=1h", {"tpot_ms": 1.0, "ttft_ms": 3_600_000.0}),
    ],
)
def test_limits_are_given_with_units(text, limits):
    """Each latency of a whole request may have a limit, in any order."""
    assert parse_objective(text) == Objective(name="given", limits=limits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected chat, batch or limits such as ttft=300ms,tpot=40ms,e2el=5s, got ""'),
        ("fast", 'expected chat, batch or limits such as .*, got "fast"'),
        ("itl=5ms", "expected chat, batch"),
        ("ttft=300", '"300" needs a unit: 300ms or 300s'),
        ("ttft=", 'expected a duration such as 5s, 500ms or 2m, got ""'),
        ("ttft=0.5ms", 'expected a limit from 1ms to 1h, got "0.5ms"'),
        ("ttft=2h", 'expected a limit from 1ms to 1h, got "2h"'),
        ("ttft=1s,ttft=2s", 'ttft has two limits in "ttft=1s,ttft=2s"'),
    ],
)
def test_what_is_no_objective_is_rejected(text, message):
    """The message says what is expected, and repeats what was written."""
    with pytest.raises(ValueError, match=message):
        parse_objective(text)


def test_the_first_token_is_at_no_percentile_after_the_last():
    """A best figure is in what the buckets of both latencies allow, whichever of them is the narrower."""
    first = Histogram((10.0, 160.0, 640.0, math.inf), (0.0, 90.0, 100.0, 100.0), 9000.0)
    whole = Histogram((10.0, 120.0, 240.0, math.inf), (0.0, 60.0, 100.0, 100.0), 10_000.0)
    found = latencies({"ttft_ms": first, "e2el_ms": whole})
    ttft, e2el = found["ttft_ms"], found["e2el_ms"]

    for name in QUANTILES:
        assert getattr(ttft, name) <= getattr(e2el, name)
        assert ttft.bounds[name].low <= getattr(ttft, name) <= ttft.bounds[name].high <= e2el.bounds[name].high
    assert ttft.bounds["p99"] == Bounds(low=160_000.0, high=240_000.0)


def test_a_mean_bounds_percentiles():
    """Where nearly all values are far below their bucket's bound, the exact mean says so: half are at most twice it."""
    queue = latencies({"queue_ms": Histogram((0.3, math.inf), (990.0, 1000.0), 2.0)})["queue_ms"]

    assert queue.bounds["p50"] == Bounds(low=0.0, high=pytest.approx(4.0))
    assert queue.p50 <= 4.0
    assert queue.bounds["p99"] == Bounds(low=0.0, high=pytest.approx(200.0))


@pytest.mark.parametrize("name", ["queue", "busy", "stall", "longprompt"])
def test_queue_first_token_and_last_token_are_in_order(name):
    """Of the same requests no percentile of the queue is above that of TTFT, and none of TTFT above that of E2EL."""
    for run in server_runs(recorded(name)):
        for quantile in QUANTILES:
            values = [getattr(getattr(run.result, each), quantile) for each in ("queue_ms", "ttft_ms", "e2el_ms")]
            assert values == sorted(values)
