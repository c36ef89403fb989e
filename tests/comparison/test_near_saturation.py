# SPDX-License-Identifier: Apache-2.0
"""
Near saturation a few runs tell nothing of TTFT: whether requests queue differs from run to run.

Which loads are that is decided by what the runs show: how many requests ran, how many waited, and how many have room.
"""

from __future__ import annotations

import json

import pytest

from msgspec.structs import replace
from tests.rendering.pages import comparisons_markdown, comparisons_table
from tests.support.load_tests import LOAD, OPEN, called_different, row, runs, side

from vllm_watch.analysis.comparison.compare_arguments import check_rule, parse_rule
from vllm_watch.analysis.comparison.compare_sides import compare_pair, compare_sides
from vllm_watch.analysis.comparison.comparison_model import METRICS, Side
from vllm_watch.analysis.comparison.pair import is_near_saturation
from vllm_watch.analysis.loadtest.load_test import Phase, ServerUse
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.json_output import comparisons_json


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
    return is_near_saturation(found, found.result)


def compared(*uses, number=3, speed=1.5, load=OPEN):
    """Return two sides, the second much faster; each run of the first has one of the uses, the others the first one."""
    ours = side("a", number, load=load, use=uses[0])
    with_uses = [replace(run, use=uses[at % len(uses)]) for at, run in enumerate(ours.runs)]
    return Side(name="a", runs=tuple(with_uses)), side("b", number, speed=speed, load=load, use=uses[0])


@pytest.mark.parametrize(
    ("running", "expected"), [(0.5, False), (9.0, False), (13.5, False), (13.6, True), (20.0, True), (32.0, True)]
)
def test_there_must_be_room_for_five_deviations(running, expected):
    """At a rate it is near saturation if the mean number of requests and five of its square roots exceed 32 places."""
    assert near(ServerUse(running=running, waiting=0.0)) is expected


def test_users_do_not_come_by_chance():
    """Where users wait for their answers, a full batch has no queue if none waited."""
    assert near(ServerUse(running=32.0, waiting=0.0), LOAD) is False
    assert near(ServerUse(running=32.0, waiting=1.0), LOAD) is True


def test_requests_that_waited_are_near_saturation():
    """More than 2 % of the requests waiting is near saturation, however much room there is."""
    assert near(ServerUse(running=9.0, waiting=0.1)) is False
    assert near(WAITING) is True


@pytest.mark.parametrize(
    ("engines", "running", "expected"), [(1, 20.0, True), (2, 20.0, False), (2, 27.1, False), (2, 27.2, True)]
)
def test_each_engine_has_room_of_its_own(engines, running, expected):
    """Requests that two engines of 32 places share are near saturation where half as many are for one."""
    found = side("a", 1, load=OPEN, use=ServerUse(running=running, waiting=0.0), config={"max-num-seqs": "32"}).runs[0]
    shared = replace(found, max_running_requests=32 * engines)

    assert is_near_saturation(shared, shared.result) is expected


def test_the_kv_cache_is_room_too():
    """Nine requests in half of the KV cache have room for eighteen, though the batch has 256 places."""
    assert near(ServerUse(running=9.0, waiting=0.0, kv_cache_usage_ratio=0.5), **{"max-num-seqs": "256"}) is True
    assert near(ServerUse(running=9.0, waiting=0.0, kv_cache_usage_ratio=0.1), **{"max-num-seqs": "256"}) is False


def test_without_the_flag_there_are_as_many_places_as_the_lowest_default():
    """If --max-num-seqs is not known, there are 128 places at least, for so many is vLLM's lowest default."""
    assert near(ServerUse(running=75.0, waiting=0.0), **{"max-num-seqs": "?"}) is False
    assert near(ServerUse(running=90.0, waiting=0.0), **{"max-num-seqs": "?"}) is True


def test_what_the_server_did_must_be_known():
    """At a rate a result alone does not exclude a queue; nor do phases, which need not show a short one."""
    quiet = replace(side("a", 1, load=OPEN).runs[0], phases=(Phase(phase="steady", start=0, end=100),))

    assert near(ServerUse()) is None
    assert is_near_saturation(quiet, quiet.result) is None


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


@pytest.mark.parametrize("number", [2, 3, 5, 20])
def test_more_runs_do_not_help(number):
    """Also of twenty runs too many intervals would not hold the truth, so there is none."""
    assert row(compare_pair(*compared(FULL, number=number)), "ttft_ms.p99").reason == REASON


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


def test_every_format_gives_the_reason():
    """The table, Markdown, the page and JSON have the values and the reason, and no interval."""
    found = compare_sides(compared(FULL))
    data = {each["metric"]: each for each in json.loads(comparisons_json(found))["metrics"]}
    shown = row(found.pairs[0], "ttft_ms.p99")

    for text in (comparisons_table(found), comparisons_markdown(found), comparisons_html(found)):
        assert "ttft" in text.lower()
    assert data["ttft_ms.p99"]["reason"] == REASON
    assert (data["ttft_ms.p99"]["a"], data["ttft_ms.p99"]["b"]) == (shown.a, shown.b)
    assert not {"low", "high"} & set(data["ttft_ms.p99"])
    assert {"percent", "low", "high"} <= set(data["e2el_ms.p99"])


def test_a_gate_fails_nothing_by_it():
    """A rule on TTFT says that it cannot be told, and why."""
    found = check_rule(parse_rule("ttft_ms.p99 > +10%"), compare_pair(*compared(FULL, speed=0.5)))

    assert found.exit_status == 3
    assert found.text.startswith("cannot be told: ttft_ms.p99 > +10%")
    assert found.text.endswith(REASON)


def test_nobody_wins_by_it():
    """Of three configurations near saturation none has the lowest TTFT, however far apart their values are."""
    speeds = {"a": 1.0, "b": 2.0, "c": 3.0}
    sides = [Side(name=name, runs=runs(name, 3, speed, load=OPEN, use=FULL)) for name, speed in speeds.items()]
    found = {each.criterion: each for each in compare_sides(sides).decisions}["lowest TTFT"]

    assert found.winner is None
    assert "is not decided" in found.note
