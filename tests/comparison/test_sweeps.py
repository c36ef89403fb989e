# SPDX-License-Identifier: Apache-2.0
"""Sides that are loads of one configuration are a sweep, in the order of their loads."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, changed, latency, run, side

from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.load_test import Latency, Objective


OBJECTIVE = Objective(name="given", limits={"ttft_ms": 300.0})
SPEEDS = {1: 0.1, 4: 0.4, 16: 0.97, 32: 1.0, 64: 1.01}


def at_load(users, speed=1.0, **more):
    """Return a side of one run with so many users."""
    return Side(name=f"c{users}", runs=(run(f"c{users}", speed, load=replace(LOAD, max_concurrency=users), **more),))


def sweep(*sides, objective=None):
    """Return what is found in the sides."""
    return compare_sides(sides, objective=objective).sweeps


def test_sides_are_in_the_order_of_their_loads():
    """The lowest load is the baseline, whatever order the sides were given in, and each row is in that order."""
    found = compare_sides([at_load(users) for users in (64, 1, 16)])

    assert [each.name for each in found.matrix] == ["c1", "c16", "c64"]
    assert found.baseline == "c1"


def test_the_knee_is_the_first_load_within_a_twentieth_of_the_most():
    """Where throughput stops growing is said, or that it still grows; the most that was seen is 'at least'."""
    full = [at_load(users, speed) for users, speed in SPEEDS.items()]
    (found,), (growing,) = sweep(*full), sweep(*full[:3])
    (short,) = sweep(*(at_load(users, duration_s=20.0) for users in SPEEDS))

    assert (found.stops_growing_at, found.loads[-1]) == ("16 at once", "64 at once")
    assert (
        found.sentence
        == "Output stops growing at 16 at once with 1,940 tokens/s: at least 2,020 tokens/s, at 64 at once. "
        "There is one run of each load."
    )
    assert growing.stops_growing_at is None
    assert short.warnings[0].startswith("A run of c1, c4, c16, c32 and c64 lasts less than 1 min")
    assert growing.sentence.startswith("Output still grows at the highest load, 16 at once: at least 1,940 tokens/s.")


def test_output_that_falls_and_grows_again_has_no_knee():
    """Where a higher load has a tenth less before the most, it varies too much to say where it stops growing."""
    sides = [
        at_load(users, speed) for users, speed in ((1, 0.1), (4, 0.4), (12, 0.8), (16, 0.58), (24, 1.0), (32, 0.9))
    ]
    (found,), (falling,) = sweep(*sides), sweep(*sides[:4])

    assert found.stops_growing_at is None
    assert found.sentence.startswith(
        "Where output stops growing cannot be said: it falls by 27.5 % from 12 at once to 16 at once, and then grows "
        "again; at least 2,000 tokens/s, at 24 at once."
    )
    assert falling.stops_growing_at == "12 at once"


def test_an_objective_holds_up_to_a_load():
    """The last load whose P99 is within the limit holds it; the first with a lower percentile beyond it fails it."""
    sides = [at_load(users, ttft_ms=latency(mean)) for users, mean in ((1, 50.0), (4, 100.0), (16, 250.0), (32, 900.0))]
    (found,) = sweep(*sides, objective=OBJECTIVE)

    assert (found.last_within_objective, found.first_beyond_objective) == ("4 at once", "16 at once")
    assert found.sentence.endswith(
        "The last load that holds the objective is 4 at once; the first that fails it is 16 at once."
    )


@pytest.mark.parametrize(
    "failing",
    [
        {"successful": 200, "failed": 200},
        {"successful": 1910, "failed": 90, "ttft_ms": latency(130.0)},
        {"successful": 1000, "failed": None},
        {"ttft_ms": Latency(median=400.0)},
        {"successful": 0, "failed": 400, "ttft_ms": None},
        {"successful": 0, "failed": 400, "ttft_ms": None, "output_throughput": None},
    ],
    ids=[
        "half failed",
        "some failed and some are late",
        "half without an answer",
        "late by the median",
        "dead",
        "dead and unmeasured",
    ],
)
def test_a_load_fails_an_objective_by_all_its_requests(failing):
    """A load holds an objective only if 95 % of all requests, also the failed ones, are within it; a dead one fails."""
    sides = [at_load(1), at_load(4), at_load(16, **failing), at_load(32)]
    (found,) = sweep(*sides, objective=OBJECTIVE)

    assert (found.last_within_objective, found.first_beyond_objective) == ("4 at once", "16 at once")


def test_a_few_failed_requests_leave_an_objective_undecided_or_held():
    """With 1 % failed P99 still shows that 95 % are within; with 4.5 % failed nothing decides it."""
    held, unsure = (
        sweep(*(at_load(users, successful=2000 - failed, failed=failed) for users in (1, 4, 16)), objective=OBJECTIVE)
        for failed in (20, 90)
    )

    assert held[0].sentence.endswith("The objective holds up to 16 at once, the highest load.")
    assert "is not known" in unsure[0].sentence


def test_what_is_not_known_of_an_objective_is_said():
    """Without a percentile that decides, the list of requests is what is lacking."""
    unknown = [at_load(users, ttft_ms=replace(latency(100.0), p95=None, p99=None)) for users in (1, 4, 16)]

    assert "not known: write the requests with --save-detailed" in sweep(*unknown, objective=OBJECTIVE)[0].sentence


def test_other_differences_are_no_sweep():
    """Two sides, one load, or sides with other flags are compared, and have no knee."""
    mixed = [changed(at_load(users), config={"seed": str(users)}) for users in (1, 4, 16)]
    models = [changed(at_load(users), model=f"model-{users}") for users in (1, 4, 16)]
    lengths = [
        changed(at_load(users), load=lambda run, _: replace(run.load, mean_input_tokens=100.0 * int(run.name[1:])))
        for users in (1, 4, 16)
    ]

    assert sweep(at_load(1), at_load(4)) == sweep(side("a"), side("b"), side("c")) == sweep(*mixed) == ()
    assert sweep(*models) == sweep(*lengths) == ()
