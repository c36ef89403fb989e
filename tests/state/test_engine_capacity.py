# SPDX-License-Identifier: Apache-2.0
"""A server's state has the capacity of each engine: by what it did, and by a benchmark; or why there is none."""

from __future__ import annotations

import functools

from tests.support.recordings import recording

from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.capacity.tracker import measured_range
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.flags import CommandFacts


BENCH = measured_range(1000.0, 900.0, None, 500.0)


@functools.cache
def capacities(name, sources=(True, True), capacity=None, step=30.0):
    """Return the capacity of the first engine by the second of a recording."""
    has_log, has_metrics = sources
    played = recording(name)
    settings = ServerSettings(name, has_log, 5.0 if has_metrics else None, capacity=capacity)
    return {
        round(each.at - played.started): each.engines[0].capacity
        for each in run_recording(played, ServerState(settings), step)
        if each.engines
    }


def test_a_saturation_is_measured_while_it_lasts_and_forgotten_with_its_server():
    """An overload shows the capacity after a minute; the server that is started later has not shown one."""
    seen = capacities("day")
    known = [second for second, each in seen.items() if "saturated" in each.ranges]

    assert min(known) in range(240, 300)
    assert {each.unknown for second, each in seen.items() if second < min(known)} <= {
        "no_metrics",
        "too_few_loads",
        None,
    }
    assert all(second in known for second in seen if min(known) <= second <= 440)
    assert seen[max(seen)].ranges.keys() == set()


def test_a_benchmark_is_known_from_the_start():
    """What the configuration gives is there while the server is up, with its bounds; of two engines each has half."""
    of_one, of_two = (capacities(name, capacity=BENCH) for name in ("vl", "dp1"))

    assert of_one[90].ranges == {"bench": BENCH}
    assert of_one[90].unknown is None
    assert of_two[90].ranges["bench"] == (500.0, 450.0, 550.0, 250.0)


def test_a_log_alone_shows_no_capacity():
    """Statistics lines are too few and too coarse: the reason is said."""
    assert capacities("vl", (True, False))[90].unknown == "no_metrics"


def test_a_benchmark_is_of_the_engines_of_its_server():
    """With an external load balancer each server has one engine of the group, and what was measured is its own."""
    played = recording("vl")
    command = CommandFacts(flags=(("data-parallel-size", "4"),))
    state = ServerState(ServerSettings("vl", has_log=False, metrics_interval=5.0, command=command, capacity=BENCH))
    seen = [each.engines[0] for each in run_recording(played, state, 30.0) if each.engines]

    assert seen[3].facts["data_parallel_size"] == 4
    assert seen[3].capacity.ranges == {"bench": BENCH}
