# SPDX-License-Identifier: Apache-2.0
"""What speaks against comparing two sides comes before any number."""

from __future__ import annotations

import re

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, changed, latency, row, run, side

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import ConfigDifference, Side
from vllm_watch.analysis.loadtest.energy_and_cost import priced
from vllm_watch.analysis.loadtest.load_test import (
    Goodput,
    Objective,
    Phase,
    RateGrowth,
    Result,
    ServerUse,
    Steady,
)


REFUSED = {
    "model": (side("a"), changed(side("b"), model="Qwen3-32B"), "The models differ: Qwen3-8B and Qwen3-32B."),
    "concurrency": (
        side("a"),
        side("b", load=replace(LOAD, max_concurrency=32)),
        "The loads differ: 16 at once and 32 at once.",
    ),
    "rate": (
        side("a", load=OPEN),
        side("b", load=replace(OPEN, request_rate=5.0)),
        "The loads differ: 4 requests/s and 5 requests/s.",
    ),
    "ramp-up": (
        side("a", load=replace(OPEN, request_rate=None, ramp_up=RateGrowth(strategy="linear", start=1.0, end=8.0))),
        side("b", load=replace(OPEN, request_rate=None, ramp_up=RateGrowth(strategy="linear", start=1.0, end=4.0))),
        "The loads differ: 1 to 8 requests/s (linear) and 1 to 4 requests/s (linear).",
    ),
    "kind": (side("a", load=OPEN), side("b"), "The loads are of different kinds: 4 requests/s and 16 at once."),
    "benchmark": (
        side("a"),
        side("b", load=replace(LOAD, endpoint="pooling")),
        "The benchmarks are of different kinds: requests to a server and requests to a server with a pooling model.",
    ),
    "burstiness": (
        side("a", load=replace(OPEN, burstiness=1.0)),
        side("b", load=replace(OPEN, burstiness=0.5)),
        "The burstiness differs: 1 and 0.5.",
    ),
    "lengths": (
        side("a"),
        side("b", load=replace(LOAD, mean_input_tokens=400.0)),
        "The lengths differ: 200 and 400 input tokens for each request.",
    ),
    "burst": (
        side("a", load=replace(LOAD, max_concurrency=None)),
        side("b", load=replace(LOAD, max_concurrency=None, num_prompts=1000)),
        "The sides sent 2,000 and 1,000 requests: the start and the end of the load weigh more where there are fewer.",
    ),
    "dead": (side("a"), side("b", successful=0, failed=2000), "No request of b succeeded."),
    "temperature": (side("a"), side("b", load=replace(LOAD, temperature=0.7)), "The temperatures differ: 0 and 0.7."),
    "unanswered": (
        side("a"),
        side("b", successful=1500, failed=None),
        "Only 75.0 % of the requests of b succeeded: failed requests make the others faster.",
    ),
    "errors": (
        side("a"),
        side("b", successful=1500, failed=500),
        "Only 75.0 % of the requests of b succeeded: failed requests make the others faster.",
    ),
    "loads": (
        Side(name="a", runs=(run("a1"), run("a2", 1.1, load=OPEN))),
        side("b"),
        "The runs of a have different loads: 16 at once, 4 requests/s.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_comparable_has_no_grades(case):
    """There is the reason, and each metric has its values and its difference, and no grade."""
    a, b, reason = REFUSED[case]
    refused = compare_pair(a, b)

    assert not refused.comparable
    assert refused.reasons == (reason,)
    assert len(refused.metrics) > 10
    assert {("not_decided", None)} == {(each.grade, each.low) for each in refused.metrics}
    assert row(refused, "tpot_ms.mean").percent is not None
    assert refused.sentence.startswith(f"b cannot be compared with a ({reason.removesuffix('.')}): ")


SHORT = "A run of a lasts less than 1 min, so the start and the end of the load are a part of the values."
TIME = (
    "what changed with time (clocks, heat, caches) counts as a difference, so none is more than likely. Let the sides "
    "take turns."
)
DRIFT = Steady(start=0, end=90, method="m", problem="no steady state: it drifts")
DRAFTS = {"speculative-config.num_speculative_tokens": "2"}
WARNED = {
    "nothing": (side("a"), side("b"), None),
    "unknown-temperature": (
        side("a"),
        side("b", load=replace(LOAD, temperature=None)),
        "The temperature of b is not known: a result file does not hold it.",
    ),
    "unknown-model": (changed(side("a"), model=None), side("b"), "The model of a is not known."),
    "unknown-load": (
        side("a", load=replace(LOAD, request_rate=None, max_concurrency=None)),
        side("b"),
        "Whether both sides got the same load is not known.",
    ),
    "lengths": (
        side("a"),
        side("b", load=replace(LOAD, mean_input_tokens=220.0)),
        "The lengths differ: 200 and 220 input tokens for each request.",
    ),
    "prompts": (
        side("a"),
        side("b", load=replace(LOAD, num_prompts=1000)),
        "The sides sent 2,000 and 1,000 requests: the start and the end of the load weigh more where there are fewer.",
    ),
    "errors": (
        side("a", successful=1960, failed=40),
        side("b"),
        "Only 98.0 % of the requests of a succeeded: failed requests make the others faster.",
    ),
    "answers": (
        side("a"),
        side("b", load=replace(LOAD, mean_output_tokens=200.0)),
        "The lengths differ: 100 and 200 output tokens for each request.",
    ),
    "rounds": (
        side("a", successful=100, failed=None, load=replace(LOAD, num_prompts=None)),
        side("b", load=replace(LOAD, num_prompts=None)),
        (
            "A run of a has fewer than 10 requests of each user, so the start and the end of the load are a large part "
            "of it."
        ),
    ),
    "seconds": (Side(name="a", runs=(run("a1", duration_s=59.97), run("a2", 1.1))), side("b"), SHORT),
    "cache": (
        side("a", use=ServerUse(prefix_cache_hit_ratio=0.1)),
        side("b", use=ServerUse(prefix_cache_hit_ratio=0.6)),
        (
            "The shares of prompt tokens from the prefix cache differ: 10.0 % and 60.0 %. If that is not what was "
            "tested, reset the cache between runs."
        ),
    ),
    "acceptance": (
        side("a", config=DRAFTS, use=ServerUse(drafted_tokens=100, wasted_draft_tokens=20)),
        side("b", config=DRAFTS, use=ServerUse(drafted_tokens=100, wasted_draft_tokens=40)),
        "The shares of drafts that were accepted differ: 80.0 % and 60.0 %.",
    ),
    "drift": (
        side("a", 3, steady=DRIFT),
        side("b"),
        "In 3 of 3 runs of a there is no steady state: it drifts.",
    ),
    "order": (
        side("a", start=100.0),
        side("b", start=200.0),
        f"All runs of one side came before those of the other: {TIME}",
    ),
    "turns": (side("a", start=100.0), side("b", start=101.0), None),
    "no-config": (
        side("a", config={}),
        side("b"),
        "The configuration of a is not known: add its log or recording to see what differs.",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_only_doubtful_is_a_warning(case):
    """There are numbers, and the warning; two sides without anything doubtful have none."""
    a, b, warning = WARNED[case]
    found = compare_pair(a, b)

    assert found.comparable
    assert found.reasons == ()
    assert found.metrics
    assert ((warning,) if warning else ()) == found.warnings


@pytest.mark.parametrize("name", ["/data/Qwen3-8B", "Qwen/Qwen3-8B", "Qwen3-8B", "/models/Qwen/Qwen3-8B/"])
def test_a_model_is_the_last_part_of_its_name(name):
    """One model in two folders, or with its owner's name and without, is one model."""
    assert compare_pair(changed(side("a"), model=name), side("b")).comparable


@pytest.mark.parametrize("changes", [{}, {"duration_s": 101.2349, "ttft_ms": latency(80.001)}], ids=["file", "text"])
def test_the_same_run_twice_is_refused(changes):
    """A run that is given twice, as two files or as a file and the printed text, would look as if runs did not vary."""
    once = run("a1", start=5.0, duration_s=101.23)
    again = replace(once, name="a2", start=None if changes else 5.0, result=replace(once.result, **changes))
    found = compare_pair(Side(name="a", runs=(once, again)), side("b"))

    assert found.reasons == ("One run is there twice: a2 of a and a1 of a.",)


def test_runs_that_differ_in_a_flag_are_named():
    """The runs of a side are taken as one configuration, and what differs among them is a warning."""
    mixed = Side(name="a", runs=(run("a1", config={"x": "1"}), run("a2", 1.01, config={"x": "2"})))
    found = compare_pair(mixed, side("b", config={"x": "1"}))

    assert "The runs of a differ in x: they are taken as one configuration." in found.warnings
    assert found.config == (ConfigDifference(flag="x", a="1, 2", b="1"),)


def test_what_differs_comes_apart_from_what_does_not():
    """Flags, the version and the hardware that differ are listed; those alike are listed once."""
    ours = changed(side("a", config={"x": "1", "only-a": "y", "same": "s"}), hardware={"gpu": "H100"})
    theirs = changed(side("b", config={"x": "2", "same": "s"}), version="0.33.0", hardware={"gpu": "H100"})
    found = compare_pair(ours, theirs)

    assert {(each.flag, each.a, each.b) for each in found.config} == {
        ("x", "1", "2"),
        ("only-a", "y", None),
        ("version", "0.32.0", "0.33.0"),
    }
    assert found.common_config == {"gpu": "H100", "same": "s"}


@pytest.mark.parametrize("empty", [{"result": None}, {"result": None, "views": ()}])
def test_without_a_result_there_is_nothing_to_compare(empty):
    """A run without a result is named."""
    found = compare_pair(changed(side("a", 1), **empty), side("b"))

    assert (found.comparable, found.reasons) == (False, ("No result is known of a1.",))


def test_client_and_server_are_not_compared():
    """One side seen by the client only and the other by the server only have no common view; what to add is said."""
    theirs = side("b", view="server")

    (reason,) = compare_pair(side("a"), theirs).reasons
    assert reason == (
        "No result is common to all runs: give the benchmark's result with each run of b, or the server's log, a "
        "recording or a time range of a Prometheus with each run of a."
    )


class TestTraps:
    """Metrics that mean something else on the two sides."""

    def test_itl_counts_chunks(self):
        """If a chunk has three tokens on one side and five on the other, ITL is not compared and TPOT is."""
        sides = [side(name, itl_ms=latency(7.0 * tokens)) for name, tokens in (("a", 3), ("b", 5))]
        found = compare_pair(*sides)

        assert row(found, "itl_ms.mean").grade == row(found, "itl_ms.p99").grade == "not_decided"
        assert "3.0 tokens in a and 5.0 in b" in row(found, "itl_ms.mean").reason
        assert row(found, "itl_ms.mean").percent == pytest.approx(200 / 3)
        assert row(found, "tpot_ms.mean").low is not None

    def test_throughput_at_a_fixed_rate_repeats_the_rate(self):
        """At 20 requests/s a server that keeps up serves 20: that is no result, and the latencies are."""
        load = replace(OPEN, request_rate=20.0)
        found = compare_pair(side("a", load=load), side("b", load=load))

        assert row(found, "output_throughput").low is None
        assert (
            row(found, "request_throughput").reason
            == "At a fixed rate of 20 requests/s throughput only repeats the rate."
        )
        assert row(found, "tpot_ms.mean").low is not None

    def test_cost_at_a_fixed_rate_repeats_the_rate_too(self):
        """At one price the cost of a token is the throughput the other way round; energy is compared all the same."""
        load = replace(OPEN, request_rate=20.0)
        sides = (with_energy(side(name, load=load), 1.5) for name in "ab")
        found = compare_pair(*(replace(each, runs=tuple(priced(run, 2.4) for run in each.runs)) for each in sides))

        assert row(found, "cost_per_million_output_tokens").low is None
        assert row(found, "joules_per_output_token").low is not None
        assert found.cost_per_hour == {"a": (2.4,), "b": (2.4,)}

    def test_how_much_of_a_fixed_rate_was_served(self):
        """Between a server that keeps up and one that does not, the note says how much each side served."""
        load = replace(OPEN, request_rate=21.0)
        found = compare_pair(side("a", load=load), side("b", speed=1.04, load=load))

        assert row(found, "output_throughput").low is None
        assert row(found, "output_throughput").reason == (
            "At a fixed rate of 21 requests/s throughput repeats the rate, of which 95.5 % in a and 99.7 % in b was "
            "served: that may be chance."
        )

    def test_a_server_that_does_not_keep_up_has_a_throughput(self):
        """At 30 requests/s, of which 20 are served, throughput is the capacity and is compared."""
        load = replace(OPEN, request_rate=30.0)

        assert row(compare_pair(side("a", load=load), side("b", load=load)), "output_throughput").low is not None

    def test_saturated_against_not(self):
        """Latencies of a saturated server are compared with those of one that is not, and what they tell is said."""
        phases = [(Phase(phase=name, start=0, end=90),) for name in ("saturated", "steady")]
        found = compare_pair(*(changed(side(name), phases=each) for name, each in zip("ab", phases, strict=True)))

        assert any(each.startswith("The server of a was saturated and the other was not") for each in found.warnings)
        assert row(found, "ttft_ms.p50").low is not None
        assert row(found, "output_throughput").low is not None

    def test_goodput_by_other_limits(self):
        """Goodput within other limits is another metric."""
        strict = Goodput(objective=Objective(name="given", limits={"ttft_ms": 100.0}), request_goodput=3.0)
        other = changed(side("b"), result=lambda run, _: replace(run.result, goodput=strict))
        found = row(compare_pair(side("a", goodput=4.0), other), "request_goodput")

        assert (found.grade, found.reason) == ("not_decided", "The objectives of the sides differ.")


def test_runs_that_vary_too_much():
    """Runs of one configuration that vary by more than 10 % are a warning."""
    found = compare_pair(side("a", cv=0.2), side("b"))

    assert len(found.warnings) == 1
    assert re.fullmatch(
        r"The runs of a vary by \d\d\.\d % in Output \(tokens/s\): something besides the configuration may have "
        r"changed, such as other users of the machine\.",
        found.warnings[0],
    )


def test_what_is_true_of_both_sides_is_one_sentence():
    """One sentence names both sides where only the names differ; where values differ, too, each side has its own."""
    unknown = compare_pair(side("a", config={}), side("b", config={})).warnings
    drifts = compare_pair(*(side(name, steady=replace(DRIFT, problem=f"no steady state: {name}")) for name in "ab"))

    assert unknown == ("The configuration of a and b is not known: add its log or recording to see what differs.",)
    assert drifts.warnings == tuple(f"In 5 of 5 runs of {name} there is no steady state: {name}." for name in "ab")


def test_what_prevents_and_what_does_not_stay_apart():
    """A side with some errors and one with too many are two findings: one of them is a reason."""
    found = compare_pair(side("a", successful=1950, failed=50), side("b", successful=1000, failed=1000))

    assert [each for each in found.reasons if "requests of b" in each]
    assert [each for each in found.warnings if "requests of a" in each]


def with_energy(found, joules):
    """Return a side whose steady windows have their energy, a little different in each run."""

    def steady(_run, at):
        energy = Result(view="server", joules_per_output_token=joules * (1 + at / 100), mean_watts=600.0)
        return Steady(start=0.0, end=90.0, method="by hand", result=energy)

    return changed(found, steady=steady)


def test_energy_is_compared_in_whichever_view():
    """Clients know nothing of it: it is the server's, of the steady window; a side without it has no row."""
    found = compare_pair(with_energy(side("a"), 1.0), with_energy(side("b"), 1.2))
    compared = row(found, "joules_per_output_token")

    assert (found.view, compared.unit, compared.higher_is_better, compared.runs) == ("client", "J", False, (5, 5))
    assert compared.low < compared.percent < compared.high
    assert compared.percent == pytest.approx(20)
    assert not any(each.metric == "tokens_per_joule" for each in found.metrics)
    alone = compare_pair(with_energy(side("a"), 1.0), side("b"))
    assert not any(each.metric == "joules_per_output_token" for each in alone.metrics)
