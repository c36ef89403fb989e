# SPDX-License-Identifier: Apache-2.0
"""How sure the difference of each metric is."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, called_different, changed, latency, row, run, runs, side, single

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import FAMILY, Side
from vllm_watch.analysis.comparison.pair import Pair, headline_metric, measured
from vllm_watch.analysis.comparison.verdicts import FALSE, HEADLINE, others_confidence
from vllm_watch.analysis.loadtest.load_test import Bounds, Goodput, Objective


BURST = replace(LOAD, max_concurrency=None, num_prompts=200)


@pytest.mark.parametrize("headline", ["tpot_ms.mean", "request_throughput"])
def test_the_chance_of_a_false_difference_is_five_per_cent(headline):
    """What the headline leaves of the 5 % is for the others; if it is shown, they share the 5 %."""
    others = len(set(FAMILY) - {headline})

    assert 1 - HEADLINE + others * (1 - others_confidence(headline, is_passed=False)) == pytest.approx(FALSE)
    assert others * (1 - others_confidence(headline, is_passed=True)) == pytest.approx(FALSE)


def test_a_large_difference_is_shown():
    """Five runs a side, 20 % faster: throughput and latencies are better, and the other way round they are worse."""
    there, back = compare_pair(side("a"), side("b", speed=1.2)), compare_pair(side("b", speed=1.2), side("a"))
    throughput = row(there, "output_throughput")

    assert {name for name in FAMILY if name not in {"request_goodput", "duration_s"}} == set(called_different(there))
    assert {True} == {row(there, name).is_better for name in called_different(there)}
    assert {False} == {row(back, name).is_better for name in called_different(back)}
    assert (throughput.runs, throughput.confidence, throughput.needed_runs) == ((5, 5), HEADLINE, None)
    assert throughput.low < throughput.percent < throughput.high
    assert throughput.difference == pytest.approx(throughput.b - throughput.a)
    assert throughput.percent == pytest.approx(throughput.difference / throughput.a * 100)


def test_an_objective_that_cannot_be_judged_is_not_the_headline():
    """Goodput without a value in any run leaves the first place to the next metric."""
    unknown = Goodput(objective=Objective(name="given", limits={"ttft_ms": 100.0}))
    sides = [
        changed(side(name, speed=speed), result=lambda run, _: replace(run.result, goodput=unknown))
        for name, speed in (("a", 1.0), ("b", 1.2))
    ]

    assert headline_metric(Pair(*(measured(each, "client") for each in sides), "client")) == "output_throughput"


def test_what_is_likely_says_how_many_runs_would_show_it():
    """Three runs of each that hardly overlap: likely, and so many runs of each as would show a difference like it."""
    ours, theirs = (
        Side(name=name, runs=tuple(run(f"{name}{at}", speed) for at, speed in enumerate(speeds)))
        for name, speeds in (("a", (1.0, 1.1, 1.2)), ("b", (0.81, 0.91, 0.99)))
    )
    comparison = compare_pair(ours, theirs)
    found = row(comparison, "output_throughput")

    assert (found.grade, found.is_better) == ("likely", False)
    assert found.low < 0 < found.high
    assert found.needed_runs == 7
    assert comparison.sentence == (
        "b is slower: output 1,800 against 2,190 tokens/s, -18 % (likely; four more runs of each would show it)."
    )


def test_more_runs_than_anyone_makes_are_not_named():
    """Where a thousand runs of each would not show the difference, no number is named."""
    sides = [
        Side(name=name, runs=tuple(run(f"{name}{at}", speed) for at, speed in enumerate(speeds)))
        for name, speeds in (("a", (1.0, 1.3, 1.1)), ("b", (1.001, 1.302, 1.099)))
    ]
    found = row(compare_pair(*sides), "output_throughput")

    assert (found.grade, found.needed_runs) == ("not_decided", None)
    assert found.reason == "Not even 1,000 runs of each would show so small a difference."


def test_what_does_not_matter_is_said():
    """A shown difference of 1 % is shown, and that it hardly matters is said; one that is not shown says it, too."""
    shown = row(compare_pair(side("a", cv=0.001), side("b", speed=1.01, cv=0.001)), "output_throughput")
    equal = row(compare_pair(side("a", cv=0.005), side("c", cv=0.005)), "output_throughput")

    assert (shown.grade, shown.note) == ("shown", "It is below 2 %, which hardly matters.")
    assert equal.reason == "If there is a difference, it is below 2 %, which hardly matters."


def test_metrics_outside_the_family_are_never_more_than_likely():
    """TPOT's P90 is far lower: likely, by an interval of 90 %, and why it is not more is said."""
    found = row(compare_pair(side("a"), side("b", speed=1.3)), "tpot_ms.p90")

    assert (found.grade, found.confidence) == ("likely", 0.90)
    assert found.high < 0
    assert found.reason.startswith("It is not one of the metrics that are tested together")


@pytest.mark.parametrize(
    ("load", "how", "expected"),
    [
        (LOAD, {}, "output_throughput"),
        (OPEN, {}, "tpot_ms.mean"),
        (OPEN, {"goodput": 3.5}, "request_goodput"),
        (OPEN, {"tpot_ms": None}, "e2el_ms.mean"),
        (LOAD, {"output_throughput": None}, "total_token_throughput"),
    ],
    ids=["closed", "open", "objective", "open without TPOT", "no output"],
)
def test_the_headline_is_chosen_by_what_was_sent(load, how, expected):
    """Output tokens per second at equal load, TPOT at a fixed rate, goodput with an objective; it comes first."""
    found = compare_pair(side("a", load=load, **how), side("b", load=load, **how))

    assert [expected] == [each.metric for each in found.metrics if each.is_headline]
    assert expected == found.metrics[0].metric


def test_a_percentile_of_few_requests_is_marked():
    """P99 of 200 requests is judged as all others, by how it varies between runs, and its note says what it is."""
    few = latency(80.0, count=200)
    found = compare_pair(side("a", ttft_ms=few), side("b", ttft_ms=replace(few, p99=400.0)))

    assert row(found, "ttft_ms.p99").note == "P99 of fewer than 299 requests in a run may be below the true one."
    assert row(found, "ttft_ms.p99").percent == pytest.approx(100.0)
    assert row(found, "ttft_ms.p95").note is None


def with_goodput(name, *values):
    """Return a side whose runs have these goodputs."""
    runs = (run(f"{name}{at}", goodput=value, start=2 * at + (name == "b")) for at, value in enumerate(values))
    return Side(name=name, runs=tuple(runs))


@pytest.mark.parametrize(
    ("a", "b", "grade", "said"),
    [
        ((4.0, 5.0, 4.2), (0.0,) * 3, "shown", "worse: goodput 0 against 4.38 1/s, -100 % (shown)."),
        ((0.0,) * 3, (4.0, 5.0, 4.2), "shown", "better: goodput 4.38 against 0 1/s (shown)."),
        ((4.0, 5.0), (0.0,) * 3, "likely", "worse: goodput 0 against 4.47 1/s, -100 % (likely; three runs of"),
        ((4.0, 5.0), (0.0,) * 2, "not_decided", "worse in these runs: goodput 0 against 4.47 1/s, -100 % (not decided"),
        ((4.0,), (0.0,), "in_these_two_runs", "worse in these two runs: goodput 0 against 4.00 1/s, -100 % ("),
        ((4.0, 5.0), (0.0, 3.0), "not_decided", "not shown to differ from a: goodput 1.50 against 4.47 1/s, -66 %"),
    ],
)
def test_a_value_of_zero_has_a_grade_without_a_ratio(a, b, grade, said):
    """All runs of one side have 0 by chance in so many cases at most; a zero among other values decides nothing."""
    found = compare_pair(with_goodput("a", *a), with_goodput("b", *b))
    goodput = row(found, "request_goodput")

    assert (goodput.grade, goodput.is_headline) == (grade, True)
    assert found.sentence.startswith(f"b is {said}")
    assert goodput.high == (-100 if grade == "shown" and not any(b) else None)


def test_a_metric_of_one_side_only():
    """A metric that one side does not have has no difference; it is left out unless it is one of those tested."""
    found = compare_pair(side("a", itl_ms=None, ttft_ms=None), side("b"))

    assert not [each for each in found.metrics if each.metric.startswith("itl_ms")]
    assert {"ttft_ms.mean", "ttft_ms.p50", "ttft_ms.p99"} == {
        each.metric for each in found.metrics if each.metric.startswith("ttft_ms")
    }
    assert row(found, "ttft_ms.p50").reason == "No value is known of a."
    assert (row(found, "ttft_ms.p50").grade, row(found, "ttft_ms.p50").percent) == ("not_decided", None)


def test_runs_that_are_all_the_same():
    """Copies do not tell how runs vary: there is a difference, and no interval."""
    sides = [
        Side(name=name, runs=tuple(run(f"{name}{at}", speed, start=float(at)) for at in range(3)))
        for name, speed in (("a", 1.0), ("b", 1.1))
    ]
    found = row(compare_pair(*sides), "output_throughput")

    assert (found.grade, found.percent, found.low) == ("not_decided", pytest.approx(10), None)
    assert found.reason == "All runs of a side have the same value, so nothing is known of how they vary."


def test_one_run_against_five():
    """A side of one run is taken to vary as the other, and the row says so."""
    found = row(compare_pair(side("a"), Side(name="b", runs=runs("b", 1, 1.3))), "output_throughput")

    assert (found.grade, found.runs) == ("shown", (5, 1))
    assert found.note == "A side of one run is taken to vary as the other does."


def test_one_run_of_each_is_a_hint_and_never_more():
    """At whatever difference: the client's own numbers, the difference, no interval, and how many runs would tell."""
    comparison = compare_pair(single("a"), single("b", speed=0.75))
    found = row(comparison, "output_throughput")

    assert (found.a, found.b, found.percent) == (2000.0, 1500.0, -25.0)
    assert (found.low, found.high, found.needed_runs) == (None, None, 3)
    assert {"in_these_two_runs"} == {each.grade for each in comparison.metrics}
    assert comparison.sentence == (
        "b is slower in these two runs: output 1,500 against 2,000 tokens/s, -25 % "
        "(two more of each show it if runs vary by 5 %)."
    )


@pytest.mark.parametrize("load", [BURST, replace(LOAD, max_concurrency=256, num_prompts=200)])
def test_a_burst_is_compared(load):
    """All requests at once: makespan, throughput and TPOT are judged; TTFT and E2EL are those of the queue."""
    found = compare_pair(side("a", load=load, successful=200), side("b", speed=1.2, load=load, successful=200))

    assert found.comparable
    assert {"output_throughput", "duration_s", "tpot_ms.mean"} <= set(called_different(found))
    assert "queue of a burst" in row(found, "ttft_ms.mean").note
    assert "queue of a burst" in row(found, "e2el_ms.mean").note
    assert row(found, "tpot_ms.mean").note is None
    assert any("(a burst)" in each for each in found.warnings)


def test_a_run_as_long_as_its_slowest_request_is_a_burst():
    """If P99 of E2EL is nearly the whole run, all requests were there at once, whatever the load is called."""
    sides = [side(name, e2el_ms=latency(36_000.0)) for name in "ab"]

    assert row(compare_pair(*sides), "duration_s").percent is not None
    assert not [each for each in compare_pair(side("a"), side("b")).metrics if each.metric == "duration_s"]


def test_a_drift_is_never_more_than_likely():
    """If all runs of one side came first, no difference is shown, however large: runs in turns would show it."""
    found = compare_pair(side("a", start=100.0), side("b", speed=1.3, start=200.0))

    assert called_different(found) == []
    assert row(found, "output_throughput").grade == "likely"
    assert row(found, "output_throughput").reason == "All runs of one side came first, so a drift may look like this."
    assert "runs of each, in turns, would show it" in found.sentence


class TestBuckets:
    """Percentiles from buckets are different only if their bounds do not overlap."""

    @staticmethod
    def compared(ours, theirs):
        """Return the row of P50 of sides with these bounds."""

        def bounded(found, bounds):
            p50 = {"p50": Bounds(low=bounds[0], high=bounds[1])}
            return changed(
                found, result=lambda run, _: replace(run.result, ttft_ms=replace(run.result.ttft_ms, bounds=p50))
            )

        sides = Side(name="a", runs=runs("a", 5, 1.0)), Side(name="b", runs=runs("b", 5, 0.5))
        return row(compare_pair(bounded(sides[0], ours), bounded(sides[1], theirs)), "ttft_ms.p50")

    def test_overlapping_bounds_decide_nothing(self):
        """Buckets of 50 to 150 ms on both sides hide a factor of two."""
        found = self.compared((50.0, 150.0), (50.0, 150.0))

        assert (found.grade, found.low, found.high) == ("not_decided", None, None)
        assert found.reason == "The buckets that the values are in overlap."
        assert found.note == "From buckets: 50 to 150 and 50 to 150 ms."

    def test_bounds_apart_show_a_difference(self):
        """Buckets of 50 to 100 and of 100 to 250 ms touch; of 50 to 99 and 120 to 250 they do not."""
        assert self.compared((50.0, 100.0), (100.0, 250.0)).grade == "not_decided"
        assert self.compared((50.0, 99.0), (120.0, 250.0)).grade == "shown"

    def test_open_bounds_are_open(self):
        """The highest bucket has no upper bound, and the difference has none either."""
        found = self.compared((50.0, 99.0), (120.0, None))

        assert (found.grade, found.high) == ("shown", None)
        assert found.low == pytest.approx((120 / 99 - 1) * 100)
