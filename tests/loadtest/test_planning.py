# SPDX-License-Identifier: Apache-2.0
"""A demand in servers and GPUs, the users that a server carries, and the requests for which its memory has room."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.command_line import vllm_watch
from tests.support.load_tests import latency, run
from tests.support.recordings import recording_path

from vllm_watch.analysis.loadtest.load_test import (
    Capacity,
    Demand,
    Goodput,
    Load,
    Memory,
    Objective,
    Report,
    ServerUse,
)
from vllm_watch.analysis.loadtest.planning import make_plan, parse_demand, with_room
from vllm_watch.analysis.loadtest.runs import history_gpus
from vllm_watch.analysis.loadtest.server_history import ServerHistory
from vllm_watch.analysis.rendering.report_document import report_markdown, report_text


CAPACITY = Capacity(tokens_per_second=1100.0, low=1000.0, high=1200.0, basis="saturated", explanation="measured")


def measured(name="run", speed=0.3, **how):
    """Return a run on four GPUs with this capacity; at speed 0.3 it has 600 tokens/s and 15.6 requests in flight."""
    return replace(run(name, speed, **how), capacity=CAPACITY, gpus=4)


def judged(name, speed, limit, ratio):
    """Return a run of whose requests so many were within a limit of TTFT."""
    goodput = Goodput(objective=Objective(name="given", limits={"ttft_ms": limit}), ratio=ratio)
    given = measured(name, speed)
    return replace(given, result=replace(given.result, goodput=goodput))


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
    plan = make_plan([measured()], demand)

    assert (plan.servers_low, plan.servers_high, plan.gpus) == (*servers, 4)


def test_servers_carry_all_users():
    """Whole users fit into a server: twelve at most, so that 200 need 17 of them."""
    plan = make_plan([measured(speed=0.425, e2el_ms=latency(1482.0))], Demand(users=200.0))

    assert (plan.users_high, plan.servers_low) == (12, 17)


def test_a_server_carries_users_as_they_were_seen():
    """Of several loads the heaviest one below what is planned shows what a user takes."""
    plan = make_plan([measured("light", 0.05), measured("near", 0.39), measured("heavy", 0.6)], None)

    assert (plan.run, plan.low, plan.high) == ("near", 700.0, 850.0)
    assert plan.user_tokens_per_second == pytest.approx(2000 / 15.6 * 0.39)
    assert (plan.users_low, plan.users_high) == (14, 17)
    assert plan.demand is plan.servers_low is None


@pytest.mark.parametrize("queue", [2.0, 100.0])
def test_overload_does_not_say_what_a_user_takes(queue):
    """Where requests waited the queue would make users: a load without one is taken, else it is said that none is."""
    waited = measured("waited", 0.39, use=ServerUse(running=8.0, waiting=queue))
    lighter = replace(measured("lighter", 0.2, use=ServerUse(running=10.4, waiting=0.0)), capacity=None)

    assert make_plan([waited, lighter], None).run == "lighter"
    assert "no load without a queue and with at most 850" in make_plan([waited], Demand(users=9.0)).problem
    assert make_plan([measured(speed=0.6)], None).users_low is None
    assert make_plan([waited, replace(lighter, config={"max-num-seqs": "64"})], None).users_low is None


def test_an_objective_limits_the_plan():
    """With an objective a server is planned with no more than the heaviest load that was within it."""
    loads = [measured("kept", 0.2, goodput=3.98), measured("heavier", 0.4, goodput=7.0)]
    loads = [replace(each, result=replace(each.result, goodput=replace(each.result.goodput, ratio=ratio)))
             for each, ratio in zip(loads, (0.995, 0.7), strict=True)]  # fmt: skip

    plan = make_plan(loads, None)
    assert (plan.low, plan.high, plan.run) == (400.0, 400.0, "kept")
    assert make_plan(loads[1:], Demand(users=5.0)).problem.startswith("no load is known that was within the objective")
    assert make_plan(loads[1:], None) is None


def test_only_one_objective_is_planned_with():
    """Results of two objectives are not mixed, and a run that has none is held against that of the others."""
    strict, loose = judged("strict", 0.2, 100.0, 0.99), judged("loose", 0.4, 1000.0, 0.99)
    without = measured("without", 0.2)

    problem = make_plan([strict, loose], Demand(tokens_per_second=1.0)).problem
    assert problem == "the objectives of the runs differ; give one with --objective."
    for runs in ([without, strict], [strict, without]):
        plan = make_plan([replace(each, result=replace(each.result, ttft_ms=latency(30.0))) for each in runs], None)
        assert (plan.objective, plan.high) == (strict.result.goodput.objective, 400.0)


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([run()], "The maximum is not known: one result of a benchmark does not show it."),
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
    ("config", "are_all_known", "gpus"),
    [
        ({"block-size": "16"}, False, None),
        ({"tensor-parallel-size": "2"}, False, None),
        ({"model": "m"}, True, 1),
        ({"tensor-parallel-size": "2", "prefill-context-parallel-size": "2"}, True, 4),
        ({"tensor-parallel-size": "2", "pipeline-parallel-size": "3", "data-parallel-size": "4"}, True, 24),
        ({"tensor-parallel-size": "two"}, True, None),
    ],
    ids=["/metrics alone", "one of the sizes", "none given", "two", "three", "no number"],
)
def test_gpus_are_counted_by_flags(config, are_all_known, gpus):
    """A server's GPUs are the product of its parallel sizes; only where all flags are known is a missing one 1."""
    history = ServerHistory("log", "name", None, None, config, {}, (), are_all_flags_known=are_all_known)

    assert history_gpus(history) == gpus
    assert history_gpus(history._replace(hardware={"device": "cpu"})) == 0


def test_the_cache_has_room_for_requests():
    """Requests of the load's mean length and of the longest fit into all tokens of the KV cache so many times."""
    load = Load(mean_input_tokens=900.4, mean_output_tokens=100.0)
    memory = Memory(weights_gib=16.0, kv_cache_gib=40.0, kv_bytes_per_token=65536.0, kv_cache_tokens=655_360)
    found = with_room(replace(run(load=load, config={"max-model-len": "32768"}), memory=memory)).memory

    assert [(room.tokens, room.requests) for room in found.room] == [(1000, 655), (32768, 20)]
    blocks = with_room(replace(run(load=load, config={"block-size": "128"}), memory=memory)).memory
    assert [(room.tokens, room.requests) for room in blocks.room] == [(1000, 640)]


@pytest.mark.parametrize("render", [report_text, report_markdown])
def test_the_plan_and_the_memory_are_told(render):
    """The answer to what was asked stands at the top; the memory sum is among what the server can carry."""
    memory = Memory(weights_gib=16.0, kv_cache_gib=40.0, kv_bytes_per_token=65536.0, kv_cache_tokens=655_360)
    given = with_room(replace(measured(), memory=memory))
    plan = make_plan([given], Demand(users=100.0))
    text = " ".join(render(Report(runs=(given,), plan=plan)).split())

    assert "100 users: plan 5 to 6 servers, 20 to 24 GPUs." in text
    assert (
        "Plan a server (4 GPUs) with 700 to 850 output tokens/s: 18 to 22 users at once who have 38.5 tokens/s" in text
    )
    unknown = " ".join(render(Report(runs=(given,), plan=replace(plan, gpus=None))).split())
    assert "100 users: plan 5 to 6 servers. How many GPUs each has is not known" in unknown
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
