# SPDX-License-Identifier: Apache-2.0
"""A demand in servers and GPUs, the users that a server carries, and the requests for which its memory has room."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.command_line import vllm_watch
from tests.support.load_tests import run
from tests.support.recordings import recording_path

from vllm_watch.analysis.loadtest.load_test import Capacity, Demand, Load, Memory, Report
from vllm_watch.analysis.loadtest.planning import make_plan, parse_demand, run_gpus, with_room
from vllm_watch.analysis.rendering.report_document import report_markdown, report_text


CAPACITY = Capacity(tokens_per_second=1100.0, low=1000.0, high=1200.0, basis="saturated", explanation="measured")
FOUR = {"tensor-parallel-size": "4"}


def measured(name="run", speed=0.3, **how):
    """Return a run of a server with this capacity; at speed 0.3 it has 600 tokens/s and 15.6 requests in flight."""
    return replace(run(name, speed, **how), capacity=CAPACITY)


@pytest.mark.parametrize(
    ("text", "demand"),
    [
        ("5000 tokens/s", Demand(tokens_per_second=5000.0)),
        ("5,000.5tokens/s", Demand(tokens_per_second=5000.5)),
        ("1 user", Demand(users=1.0)),
        (" 200 users ", Demand(users=200.0)),
    ],
)
def test_a_demand_is_output_or_users(text, demand):
    """A number and its unit say what is to be served."""
    assert parse_demand(text) == demand


@pytest.mark.parametrize("text", ["5000", "0 users", "many users", "5 requests/s", "-1 users", "1e3 users", ""])
def test_what_is_no_demand_is_an_error(text):
    """Anything else is refused with an example of what is expected."""
    with pytest.raises(ValueError, match=r"such as '5000 tokens/s' or '200 users', got"):
        parse_demand(text)


@pytest.mark.parametrize(
    ("demand", "servers"),
    [
        (Demand(tokens_per_second=850.0), (1, 2)),
        (Demand(tokens_per_second=8500.0), (10, 13)),
        (Demand(users=7.0), (1, 1)),
        (Demand(users=100.0), (5, 6)),
    ],
    ids=["tokens for one server at most", "tokens", "few users", "users"],
)
def test_a_demand_needs_whole_servers(demand, servers):
    """One server is planned with 700 to 850 tokens/s, and a user of its load has 38.5."""
    plan = make_plan([measured(config=FOUR)], demand)

    assert (plan.servers_low, plan.servers_high, plan.gpus) == (*servers, 4)


def test_a_server_carries_users_as_they_were_seen():
    """Of several loads the one whose output is nearest to what is planned shows what a user takes."""
    plan = make_plan([measured("light", 0.05), measured("near", 0.39), measured("heavy", 0.6)], None)

    assert (plan.run, plan.low, plan.high) == ("near", 700.0, 850.0)
    assert plan.user_tokens_per_second == pytest.approx(2000 / 15.6 * 0.39)
    assert (plan.users_low, plan.users_high) == (14, 17)
    assert plan.demand is plan.servers_low is None


def test_an_objective_limits_the_plan():
    """With an objective a server is planned with no more than the heaviest load that was within it."""
    loads = [measured("kept", 0.2, goodput=3.98), measured("heavier", 0.4, goodput=7.0)]
    loads = [replace(each, result=replace(each.result, goodput=replace(each.result.goodput, ratio=ratio)))
             for each, ratio in zip(loads, (0.995, 0.7), strict=True)]  # fmt: skip

    plan = make_plan(loads, None)
    assert (plan.low, plan.high, plan.run) == (400.0, 400.0, "kept")
    assert make_plan(loads[1:], Demand(users=5.0)).problem.startswith("no load is known that was within the objective")
    assert make_plan(loads[1:], None) is None


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([run()], "The maximum is not known: the results of the benchmark do not show it."),
        ([measured(), replace(measured(), capacity=replace(CAPACITY, low=900.0))], "the runs show several maxima"),
        ([measured(e2el_ms=None)], "What a user takes is not known"),
    ],
    ids=["unknown", "several", "no latency"],
)
def test_without_a_capacity_or_a_user_there_is_no_plan(runs, problem):
    """Why nothing can be planned is said, as it is of the capacity itself."""
    plan = make_plan(runs, Demand(users=200.0))

    assert plan.problem.startswith(problem)
    assert plan.servers_low is None


@pytest.mark.parametrize(
    ("config", "hardware", "gpus"),
    [
        ({}, {}, None),
        ({"model": "m"}, {}, 1),
        ({"tensor-parallel-size": "2", "pipeline-parallel-size": "3", "data-parallel-size": "4"}, {}, 24),
        ({"tensor-parallel-size": "two"}, {}, None),
        ({"model": "m"}, {"device": "cpu"}, None),
    ],
    ids=["no flags known", "one", "several", "no number", "on CPUs"],
)
def test_gpus_are_counted_by_flags(config, hardware, gpus):
    """A server's GPUs are the product of its parallel sizes, 1 where a flag is not given; unknown without flags."""
    assert run_gpus(replace(run(config=config), hardware=hardware)) == gpus


def test_the_cache_has_room_for_requests():
    """Requests of the load's mean length and of the longest fit into all tokens of the KV cache so many times."""
    load = Load(mean_input_tokens=900.4, mean_output_tokens=100.0)
    memory = Memory(weights_gib=16.0, kv_cache_gib=40.0, kv_bytes_per_token=65536.0, kv_cache_tokens=655_360)
    found = with_room(replace(run(load=load, config={"max-model-len": "32768"}), memory=memory)).memory

    assert [(room.tokens, room.requests) for room in found.room] == [(1000, 655), (32768, 20)]


@pytest.mark.parametrize("render", [report_text, report_markdown])
def test_the_plan_and_the_memory_are_told(render):
    """The answer to what was asked stands at the top; the memory sum is among what the server can carry."""
    memory = Memory(weights_gib=16.0, kv_cache_gib=40.0, kv_bytes_per_token=65536.0, kv_cache_tokens=655_360)
    given = with_room(replace(measured(config=FOUR), memory=memory))
    plan = make_plan([given], Demand(users=100.0))
    text = " ".join(render(Report(runs=(given,), plan=plan)).split())

    assert "100 users: plan 5 to 6 servers, 20 to 24 GPUs." in text
    assert (
        "Plan a server (4 GPUs) with 700 to 850 output tokens/s: 18 to 22 users at once who have 38.5 tokens/s" in text
    )
    assert "a token's KV cache on each GPU (KiB)" in text.replace("\\", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"), [("queue", "5,000 output tokens/s: plan 9 to 11 servers."), ("busy", "The maximum is not known")]
)
def test_report_plans_by_a_recording(name, text):
    """A recorded overload shows what is needed; of a light load it is said why it is not known."""
    done = vllm_watch("report", recording_path(name), "--plan", "5000 tokens/s")

    assert done.returncode == 0
    assert text in " ".join(done.stdout.split())
