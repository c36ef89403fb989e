# SPDX-License-Identifier: Apache-2.0
"""How much a server can carry is known where it was seen, or can be drawn on from what was seen; else the reason is."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import MadeUpServer, recorded

from vllm_watch.analysis.loadtest.load_test import Capacity
from vllm_watch.analysis.loadtest.loads import find_loads
from vllm_watch.analysis.loadtest.phases import find_phases
from vllm_watch.analysis.loadtest.run_capacity import Estimate, server_capacity, unless_exceeded
from vllm_watch.analysis.loadtest.runs import server_runs


ALPHA, BETA = 0.02, 0.0005
"""The seconds of a step, and those that each request adds to it."""


def throughput(running):
    """Return the tokens per second with a number of requests at once."""
    return running / (ALPHA + BETA * running)


def estimate(server, facts=None):
    """Return what a made-up server is said to sustain."""
    loads = find_loads(server.points)
    return server_capacity(
        server.points, find_phases(server.points, loads, None), facts or {"max_running_requests": 24}
    )


def climbing(*steps, seconds=120, kv=0.0, curve=throughput):
    """Return a server that was loaded with ever more requests at once."""
    server = MadeUpServer().idle(40)
    for running in steps:
        server.work(seconds, running, tokens_per_second=curve(running), kv=kv * running).idle(40)
    return server


@pytest.mark.parametrize(
    ("seconds", "running", "kv", "reason"),
    [
        (50, 24, 0.0, "the longest saturated phase is 46 s, and a measurement needs 1 min; an estimate"),
        (120, 12, 0.0, "requests waited for 1 min 56 s, but not because a known limit was reached; an estimate"),
    ],
    ids=["less than a minute", "neither batch nor KV cache full"],
)
def test_waiting_alone_is_no_capacity(seconds, running, kv, reason):
    """A short queue, or one whose requests wait for something else, shows no maximum, and the reason is said."""
    server = MadeUpServer().idle(40).work(seconds, running, waiting=10, tokens_per_second=700, kv=kv).idle(40)

    found = estimate(server)
    assert found.capacity is None
    assert reason in found.reason


def test_more_requests_than_answers_are_an_overload():
    """A queue that grows all the time shows the maximum also where the limits are not known, if less exactly."""
    server = MadeUpServer().idle(40)
    for waiting in range(1, 60):
        server.work(2, 12, waiting=4 * waiting, tokens_per_second=100)
        gauges = {**server.points[-1].gauges, "requests_running": 12.0, "requests_waiting": 4.0 * waiting}
        server.points[-1] = server.points[-1]._replace(state="saturated", gauges=gauges)
    capacity = estimate(server, {"model_load_seconds": 1.0}).capacity

    assert capacity.basis == "bench"
    assert capacity.tokens_per_second == pytest.approx(100, rel=0.05)
    assert "requests came in a second and" in capacity.explanation


def test_the_curve_is_drawn_on_to_the_limit():
    """From up to 20 of 24 requests at once the throughput of 24 is estimated; the truth is between its bounds."""
    capacity = estimate(climbing(1, 2, 4, 8, 16, 20)).capacity

    assert capacity.basis == "curve"
    assert capacity.low == pytest.approx(throughput(20), rel=0.02)
    assert capacity.low <= throughput(24) <= 1.01 * capacity.high
    assert capacity.tokens_per_second == pytest.approx((capacity.low + capacity.high) / 2)


REFUSED = {
    "few windows": (climbing(1, 2, 4, 8, 16, seconds=30), None, "an estimate needs 5 min of work"),
    "few batch sizes": (
        climbing(16, 16, 16, 16),
        None,
        "at 1 of them. Record several loads in turn, such as 2, 4, 8, 16 requests at once, each for 1",
    ),
    "far from the limit": (
        climbing(1, 2, 4, 8, 16),
        {"max_running_requests": 256},
        "256 fit: record a load of 197 or more",
    ),
    "no limit known": (climbing(1, 2, 4, 8, 16), {"model_load_seconds": 1.0}, "how many requests run at most"),
    "no curve": (climbing(1, 2, 4, 8, 20, curve=lambda n: 50 * n), None, "throughput still grows in proportion"),
    "facts contradict what was seen": (
        climbing(1, 2, 4, 8, 16, kv=0.02),
        {"kv_cache_capacity_tokens": 25 * 400},
        "by its size the KV cache holds 400 of these requests, by what was used of it 50",
    ),
}


@pytest.mark.parametrize(("server", "facts", "reason"), REFUSED.values(), ids=REFUSED)
def test_without_its_conditions_there_is_no_curve(server, facts, reason):
    """What was seen does not show the maximum: the reason is said in a sentence."""
    found = estimate(server, facts)

    assert found.capacity is None
    assert found.reason.startswith("The maximum is not known: ")
    assert found.reason.endswith(".")
    assert reason in found.reason


def test_a_recorded_overload_shows_its_capacity():
    """A server that is overloaded for minutes by max-num-seqs has shown what it sustains."""
    run = max(server_runs(recorded("queue")), key=lambda each: each.end - each.start)

    assert run.capacity.basis == "saturated"
    assert "4 of at most 4" in run.capacity.explanation
    assert run.capacity.low < run.use.generation_tokens_per_second * 1.5


def test_a_load_above_the_capacity_refutes_it():
    """Where a whole load had more output than the estimate allows, the estimate is not told, but why."""
    known = Estimate(Capacity(tokens_per_second=1360.0, low=1290.0, high=1430.0, basis="saturated", explanation="x"))

    assert unless_exceeded(known, 1430.0) == known
    assert unless_exceeded(known, 5360.0) == Estimate(
        None,
        "The maximum is not known: a load had 5,360 output tokens/s, more than the 1,430 that the rest of the history "
        "shows.",
    )
