# SPDX-License-Identifier: Apache-2.0
"""
Near saturation a few runs tell nothing of TTFT: whether requests queue differs from run to run.

Which loads are that is decided by what the runs show: how many requests ran, how many waited, and how many have room.
"""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, called_different, row, runs, side

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import METRICS, Side
from vllm_watch.analysis.comparison.estimate import is_near_saturation
from vllm_watch.analysis.loadtest.load_test import Phase, ServerUse


TTFT = [metric.name for metric in METRICS if metric.latency == "ttft_ms"]
REASON = (
    "Near saturation a few runs tell nothing of TTFT, for some have a queue and others do not. Test at a lower rate, "
    "or with a fixed number of users (--max-concurrency)."
)
QUIET = ServerUse(running=9.0, waiting=0.0)
FULL = ServerUse(running=20.0, waiting=0.0)
WAITING = ServerUse(running=9.0, waiting=1.0)


def near(use, load=OPEN, **config):
    """Return whether a run with such a use, of a server with 32 places, was near saturation."""
    found = side("a", 1, load=load, use=use, config={"max-num-seqs": "32", **config}).runs[0]
    return is_near_saturation(found)


def compared(*uses, number=3, speed=1.5, load=OPEN):
    """Return two sides, the second much faster; each run of the first has one of the uses, the others the first one."""
    ours = side("a", number, load=load, use=uses[0])
    with_uses = [replace(run, use=uses[at % len(uses)]) for at, run in enumerate(ours.runs)]
    return Side(name="a", runs=tuple(with_uses)), side("b", number, speed=speed, load=load, use=uses[0])


@pytest.mark.parametrize(
    ("use", "load", "config", "expected"),
    [
        ({"running": 13.5}, OPEN, {}, False),
        ({"running": 13.6}, OPEN, {}, True),
        ({"running": 32.0}, LOAD, {}, False),
        ({"running": 32.0, "waiting": 1.0}, LOAD, {}, True),
        ({"running": 9.0, "waiting": 0.1}, OPEN, {}, False),
        ({"running": 9.0, "waiting": 1.0}, OPEN, {}, True),
        ({"running": 9.0, "kv_cache_usage_ratio": 0.5}, OPEN, {"max-num-seqs": "256"}, True),
        ({"running": 9.0, "kv_cache_usage_ratio": 0.1}, OPEN, {"max-num-seqs": "256"}, False),
        ({"running": 75.0}, OPEN, {"max-num-seqs": "?"}, False),
        ({"running": 90.0}, OPEN, {"max-num-seqs": "?"}, True),
        ({"waiting": None}, OPEN, {}, None),
    ],
)
def test_what_is_near_saturation(use, load, config, expected):
    """
    At a rate the mean number of requests and five of its square roots have to fit: into the batch, or the KV cache.

    Without the flag there are 128 places, vLLM's lowest default; users do not come by chance; more than 2 % waiting is
    near saturation anyway; and a result alone tells nothing.
    """
    assert near(ServerUse(**{"waiting": 0.0, **use}), load, **config) is expected


@pytest.mark.parametrize(("engines", "running", "expected"), [(1, 20.0, True), (2, 27.1, False), (2, 27.2, True)])
def test_each_engine_has_room_of_its_own(engines, running, expected):
    """Requests that two engines of 32 places share are near saturation where half as many are for one."""
    found = side("a", 1, load=OPEN, use=ServerUse(running=running, waiting=0.0), config={"max-num-seqs": "32"}).runs[0]

    assert is_near_saturation(replace(found, max_running_requests=32 * engines)) is expected


@pytest.mark.parametrize("uses", [[FULL], [QUIET, FULL], [WAITING], [QUIET, QUIET, WAITING]])
def test_one_run_near_saturation_is_enough(uses):
    """If any run was near saturation, no statistic of TTFT has an interval or a grade, and each says why."""
    found = compare_pair(*compared(*uses))

    for name in TTFT:
        ttft = row(found, name)
        assert (ttft.grade, ttft.reason, ttft.low, ttft.high) == ("not_decided", REASON, None, None)
        assert ttft.a > ttft.b
        assert ttft.percent < 0
    assert {"tpot_ms.mean", "e2el_ms.mean"} <= set(called_different(found))


def test_a_quiet_server_has_its_grades():
    """Where the batch had room, TTFT is compared as before, and so it is where users wait for their answers."""
    for sides in (compared(QUIET), compared(FULL, load=LOAD), compared(WAITING, load=LOAD)):
        found = compare_pair(*sides)
        assert [row(found, name).low is None for name in TTFT] == [False] * len(TTFT)
        assert row(found, "ttft_ms.p50").grade == "shown"


def test_results_alone_do_not_exclude_it():
    """At a rate a result file does not tell whether requests queued: TTFT is likely at most, and why is said."""
    found = compare_pair(*compared(ServerUse()))

    assert {row(found, name).grade for name in TTFT} == {"likely"}
    assert row(found, "ttft_ms.mean").reason.startswith("Whether the load was near saturation")
    assert (row(found, "tpot_ms.mean").grade, row(found, "tpot_ms.mean").is_better) == ("shown", True)


def test_a_queue_that_grows_is_not_left_to_chance():
    """A server that does not keep up has a long queue in each run: against one that does, TTFT is compared."""
    ours = [replace(run, phases=(Phase(phase="saturated", start=0, end=90),)) for run in runs("a", 3, load=OPEN)]
    theirs = side("b", 3, speed=20.0, load=OPEN, use=QUIET)

    assert row(compare_pair(Side(name="a", runs=tuple(ours)), theirs), "ttft_ms.p50").grade == "shown"
