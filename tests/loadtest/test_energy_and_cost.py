# SPDX-License-Identifier: Apache-2.0
"""What tokens take in energy and cost: worked out by hand, and void, with the reason, where something is not known."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import START, MadeUpServer

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds
from vllm_watch.analysis.loadtest.energy_and_cost import (
    LEAST_TOKENS,
    energy_problem,
    energy_reading,
    priced,
)
from vllm_watch.analysis.loadtest.load_test import Result, Run
from vllm_watch.analysis.loadtest.loads import find_loads
from vllm_watch.analysis.loadtest.phases import find_steady
from vllm_watch.analysis.loadtest.server_history import EnergyReading
from vllm_watch.daemon.state.gpu_report import GpuReading, ServerGpu


EVERY = 5
"""Seconds between two readings of the GPUs, which are not those between two scrapes."""

WATTS = {"GPU-1": 400.0, "GPU-2": 200.0}
MIDDLE = START + 40 + 100
"""A moment in the steady window."""


def reading(at):
    """Return what two GPUs of 400 W and 200 W had used when they were read last before a moment."""
    read_at = START + (at - START) // EVERY * EVERY
    return EnergyReading(read_at, {gpu: 7e6 + watts * (read_at - START) for gpu, watts in WATTS.items()})


def load(change=lambda _at, known: known, seconds=180, tokens=400.0):
    """Return the load of a server that generates 400 tokens a second and computes 800 of prompts."""
    server = MadeUpServer().idle(40)
    for step in range(seconds // 2):
        server.work(2, 8, tokens_per_second=tokens * (1 + 0.02 * (-1) ** step))
        gauges = {**server.points[-1].gauges, "requests_running": 8.0}
        server.points[-1] = server.points[-1]._replace(state="serving", gauges=gauges)
    server.idle(40)
    (found,) = find_loads([point._replace(energy=change(point.at, reading(point.at))) for point in server.points])
    return found


def test_energy_is_that_of_all_gpus_by_their_counters():
    """600 W, 400 tokens/s generated and 1,200 computed, whenever the readings are."""
    found = find_steady(load(seconds=240))
    seconds = found.end - found.start

    assert found.result.mean_watts == pytest.approx(600)
    assert found.result.energy_joules == pytest.approx(600 * seconds)
    assert found.result.joules_per_output_token == pytest.approx(1.5, rel=0.01)
    assert found.result.tokens_per_joule == pytest.approx(2, rel=0.01)


UNREAD = "not all its GPUs were read all the time, or count their energy"


def _changed(**changes):
    return lambda at, known: known._replace(joules={**known.joules, **changes}) if at > MIDDLE else known


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_changed(**{"GPU-2": 12.0}), "a counter was reset: a GPU's driver was loaded again"),
        (_changed(**{"GPU-2": None}), UNREAD),
        (_changed(**{"GPU-3": 12.0}), UNREAD),
        (
            lambda at, known: known._replace(unsplit=frozenset({"GPU-1"} if at == MIDDLE else ())),
            "GPU-1 is divided or used by another server, too",
        ),
        (lambda at, _known: reading(min(at, MIDDLE)), UNREAD),
        (lambda at, known: known if at > MIDDLE else None, UNREAD),
    ],
    ids=["reset", "one is lost", "one more", "shared", "stale", "late"],
)
def test_what_is_not_whole_has_no_energy(change, problem):
    """The reason is said, and everything else of the window is known all the same."""
    whole = load(change)
    found = find_steady(whole)

    assert (found.result.mean_watts, found.result.energy_joules, found.result.joules_per_output_token) == (None,) * 3
    assert found.result.output_throughput == pytest.approx(400, rel=0.02)
    assert energy_problem(whole.points, found) == problem


def _gpu(name, mig="0", *, is_shared=False, **values):
    shown = {(key,): value for key, value in values.items()}
    known = GpuReading(name, 0, "H", "0000:01:00", "570", "nvidia", mig, "ok", shown, ())
    return ServerGpu(name, "pid", is_shared, None, known)


def test_a_reading_says_what_is_missing():
    """A GPU that is not read, or does not count, has no number; one that is not the server's alone is named."""
    gpus = (
        _gpu("GPU-1", gpu_energy_joules_total=5.0),
        _gpu("GPU-2", is_shared=True, gpu_energy_joules_total=6.0),
        _gpu("GPU-3", mig="1", gpu_power_watts=90.0),
        _gpu("GPU-4")._replace(reading=None),
    )

    assert energy_reading(3.0, gpus) == EnergyReading(
        3.0, {"GPU-1": 5.0, "GPU-2": 6.0, "GPU-3": None, "GPU-4": None}, frozenset({"GPU-2", "GPU-3"})
    )


def test_the_rules_ask_for_as_many_tokens():
    """What is too few for a report is too few for a recorded series, too."""
    assert float(shipped_thresholds()["quotient_tokens"]) == LEAST_TOKENS


def _result(**known):
    return Result(
        view="client", **{"duration_s": 100.0, "total_input_tokens": 90_000, "total_output_tokens": 10_000, **known}
    )


def _costs(result):
    return (
        result.cost_per_million_input_tokens,
        result.cost_per_million_output_tokens,
        result.cost_per_million_tokens,
    )


def test_cost_is_the_price_of_the_time_by_each_count_of_tokens():
    """3.6 an hour are 0.1 in 100 s: by 90,000, 10,000 and 100,000 tokens; in each view by its own time."""
    client, server = _result(), _result(duration_s=50.0)
    run = priced(Run(source=("a",), name="a", result=client, views=(client, server)), 3.6)

    assert run.cost_per_hour == 3.6
    assert _costs(run.result) == _costs(run.views[0]) == pytest.approx((10 / 9, 10.0, 1.0))
    assert _costs(run.views[1]) == pytest.approx((5 / 9, 5.0, 0.5))


@pytest.mark.parametrize(
    ("known", "costs"),
    [
        ({"total_input_tokens": None}, (None, 10.0, None)),
        ({"total_output_tokens": 999}, (10 / 9, None, 0.1 / 90_999 * 1e6)),
        ({"total_output_tokens": 1000}, (10 / 9, 100.0, 0.1 / 91_000 * 1e6)),
        ({"duration_s": None}, (None, None, None)),
    ],
)
def test_what_is_not_known_has_no_cost(known, costs):
    """Tokens or a time that are not known, or fewer than 1,000 tokens, give no quotient."""
    run = priced(Run(source=("a",), name="a", result=_result(**known)), 3.6)

    assert _costs(run.result) == tuple(None if cost is None else pytest.approx(cost) for cost in costs)
