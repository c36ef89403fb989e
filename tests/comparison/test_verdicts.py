# SPDX-License-Identifier: Apache-2.0
"""The verdict on each metric of two sides."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, called_different, changed, latency, row, run, runs, side, single

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, FAMILY, METRICS, Side, family_weights
from vllm_watch.analysis.loadtest.load_test import Bounds, Phase, ServerUse


def test_the_list_of_metrics_is_whole():
    """Each name is there once, each of the family is a metric, and the weights of the family make 1."""
    assert len(METRICS) == len(BY_NAME) == 30
    assert set(FAMILY) == {metric.name for metric in METRICS if metric.in_family}
    assert sum(family_weights("tpot_ms.mean").values()) == pytest.approx(1)
    assert family_weights("tpot_ms.mean")["tpot_ms.mean"] == 0.5


def test_a_large_difference_is_better_or_worse():
    """Five runs a side, 20 % faster: throughput and latencies are better, and the other way round they are worse."""
    there, back = compare_pair(side("a"), side("b", speed=1.2)), compare_pair(side("b", speed=1.2), side("a"))
    throughput = row(there, "output_throughput")

    assert {"output_throughput", "ttft_ms.p50", "tpot_ms.mean", "ttft_ms.p99", "e2el_ms.mean"} == set(
        called_different(there)
    )
    assert {"better"} == {row(there, name).verdict for name in called_different(there)}
    assert {"worse"} == {row(back, name).verdict for name in called_different(back)}
    assert throughput.n == (5, 5)
    assert throughput.low < throughput.percent < throughput.high
    assert throughput.difference == pytest.approx(throughput.b - throughput.a)
    assert throughput.percent == pytest.approx(throughput.difference / throughput.a * 100)


def test_equal_sides_show_no_difference():
    """Runs of one configuration: no difference is shown, and the smallest that would have been found is told."""
    found = row(compare_pair(side("a", cv=0.05), side("b", cv=0.05)), "output_throughput")

    assert found.verdict == "no_difference_shown"
    assert found.low < 0 < found.high
    assert 5 < found.detectable_percent < 25


def test_what_does_not_matter_is_said():
    """An interval within 2 % of throughput is below what matters, also if it leaves out 0."""
    found = row(compare_pair(side("a", cv=0.001), side("b", speed=1.01, cv=0.001)), "output_throughput")

    assert 0 < found.low < found.high < 2
    assert found.verdict == "below_what_matters"


def test_metrics_outside_the_family_have_no_verdict():
    """The interval of TPOT's P90 is shown, and that it has no verdict is said."""
    found = row(compare_pair(side("a"), side("b", speed=1.3)), "tpot_ms.p90")

    assert found.verdict == "not_compared"
    assert found.high < 0
    assert found.note.startswith("No verdict: it is not one of the metrics")


def test_what_fails_only_after_the_correction_is_said():
    """An interval that leaves out 0 is not enough among six tests, and the row says so."""
    found = [compare_pair(side("a", cv=0.02), side("b", speed=1.0 + at / 500, cv=0.02)) for at in (11, 15, 19)]
    rows = [row for each in found for row in each.metrics if row.note and "several metrics are" in row.note]

    assert len(rows) == 10
    assert {"no_difference_shown"} == {each.verdict for each in rows}
    assert all(each.low > 0 or each.high < 0 for each in rows)


@pytest.mark.parametrize(
    ("load", "goodput", "expected"),
    [(LOAD, None, "output_throughput"), (OPEN, None, "tpot_ms.mean"), (OPEN, 3.5, "request_goodput")],
    ids=["closed", "open", "objective"],
)
def test_the_headline_is_chosen_by_what_was_sent(load, goodput, expected):
    """Output tokens per second at equal load, TPOT at a fixed rate, goodput with an objective; it comes first."""
    found = compare_pair(side("a", load=load, goodput=goodput), side("b", load=load, goodput=goodput))

    assert [expected] == [each.metric for each in found.metrics if each.is_headline]
    assert expected == found.metrics[0].metric


def test_too_few_values_for_a_percentile():
    """P99 of 200 requests is told as too few, with how many it needs; P95 of them is not."""
    few = latency(80.0, count=200)
    found = compare_pair(side("a", ttft_ms=few), side("b", ttft_ms=few))

    assert row(found, "ttft_ms.p99").verdict == "too_few"
    assert row(found, "ttft_ms.p99").note == "P99 needs 299 requests in each run, and a has fewer."
    assert row(found, "ttft_ms.p99").percent is None
    assert row(found, "ttft_ms.p95").note != row(found, "ttft_ms.p99").note


def test_a_request_has_one_value_at_most():
    """Where the values of a latency were not counted, there are no more than successful requests; ITL has more."""
    unknown = {name: latency(80.0, count=None) for name in ("tpot_ms", "itl_ms")}
    found = compare_pair(*(side(name, successful=200, **unknown) for name in "ab"))

    assert "needs 299 requests" in row(found, "tpot_ms.p99").note
    assert "needs 299 requests" not in row(found, "itl_ms.p99").note


def test_a_zero_has_no_ratio():
    """A goodput of 0 is a value, and no ratio; the mean that is shown is the arithmetic one."""
    sides = [Side(name=name, runs=tuple(run(f"{name}{at}", goodput=value, start=at) for at, value in enumerate(values)))
             for name, values in (("a", (4.0, 5.0)), ("b", (0.0, 3.0)))]  # fmt: skip
    found = row(compare_pair(*sides), "request_goodput")

    assert (found.verdict, found.a, found.b) == ("too_few", pytest.approx(20**0.5), 1.5)
    assert "is 0, which has no ratio." in found.note


def test_a_metric_of_one_side_only():
    """A metric that one side does not have has no difference; it is left out unless it is one of those tested."""
    found = compare_pair(side("a", itl_ms=None, ttft_ms=None), side("b"))

    assert not [each for each in found.metrics if each.metric.startswith("itl_ms")]
    assert ["ttft_ms.p50", "ttft_ms.p99"] == [
        each.metric for each in found.metrics if each.metric.startswith("ttft_ms")
    ]
    assert row(found, "ttft_ms.p50").note == "No value is known of a."
    assert row(found, "ttft_ms.p50").verdict == "too_few"


def test_runs_that_are_all_the_same():
    """Copies do not tell how runs vary: there is no verdict on them."""
    sides = [
        Side(name=name, runs=tuple(run(f"{name}{at}", speed, start=float(at)) for at in range(3)))
        for name, speed in (("a", 1.0), ("b", 1.1))
    ]
    found = row(compare_pair(*sides), "output_throughput")

    assert (found.verdict, found.percent) == ("too_few", None)
    assert found.note == "All runs of a side have the same value, so nothing is known of how they vary."


def test_two_runs_that_vary_much_are_too_few():
    """Where not even a factor of ten would have been found, that is the verdict; its figure would mean nothing."""
    sides = [
        Side(name=name, runs=(run(f"{name}1"), run(f"{name}2", speed))) for name, speed in (("a", 3.0), ("b", 3.3))
    ]
    sides[1] = Side(name="b", runs=(run("b1", 1.1), sides[1].runs[1]))
    found = row(compare_pair(*sides), "output_throughput")

    assert (found.verdict, found.detectable_percent) == ("too_few", None)
    assert found.low < 0 < found.high
    assert (
        found.note == "There are too few runs for how much they vary: not even a factor of ten would have been found."
    )


def test_one_run_against_five():
    """A side of one run is taken to vary as the other, and the row says so."""
    found = row(compare_pair(side("a"), Side(name="b", runs=runs("b", 1, 1.3))), "output_throughput")

    assert (found.verdict, found.n) == ("better", (5, 1))
    assert found.note == "A side of one run is taken to vary as the other does."


class TestOneRunASide:
    """Blocks of the steady windows, widened by a stated variation between runs."""

    def test_a_large_difference_is_told_within_one_run(self):
        """Twice as fast: better, of ten blocks each, and worded as within one run."""
        comparison = compare_pair(single("a"), single("b", speed=2.0))
        found = row(comparison, "tpot_ms.mean")

        assert (found.verdict, found.n) == ("better", (10, 10))
        assert found.note == "Within one run; runs of one configuration are taken to vary by 3 %."
        assert comparison.method.startswith("Within one run:")
        assert "real" not in comparison.method
        assert comparison.method.endswith(" To read more: vllm-watch compare --explain.")
        assert "{" not in comparison.method

    def test_less_than_three_times_the_variation_is_no_news(self):
        """A difference of 7 % of two single runs is not shown, however little the blocks vary."""
        found = row(compare_pair(single("a", cv=0.0001), single("b", speed=1.07, cv=0.0001)), "output_throughput")

        assert found.verdict == "no_difference_shown"
        assert found.detectable_percent > 9

    @pytest.mark.parametrize("metric", ["ttft_ms.mean", "ttft_ms.p99", "tpot_ms.p99"])
    def test_the_mean_and_p99_of_ttft_are_never_told(self, metric):
        """One run says nothing of them, at whatever difference."""
        found = row(compare_pair(single("a"), single("b", speed=3.0)), metric)

        assert (found.verdict, found.percent) == ("too_few", None)
        assert "varies too much between runs" in found.note

    def test_ttft_is_told_only_if_no_requests_queued(self):
        """TTFT's P50 has a verdict where the server was not near saturation; if that is unknown, it has none."""
        quiet, full = (Phase(phase=name, start=0, end=100) for name in ("steady", "saturated"))

        def found(phases=(), **use):
            sides = [single("a", use=ServerUse(**use)), single("b", speed=2.0, use=ServerUse(**use))]
            return row(compare_pair(*(changed(each, phases=phases) for each in sides)), "ttft_ms.p50")

        assert found((quiet,)).verdict == found(running=16.0, waiting=0.1).verdict == "better"
        note = "Near saturation one run of each side tells nothing of TTFT. Give several runs of each."
        assert found((full,)).note == note
        assert found((quiet,), running=30.0, waiting=2.0).verdict == "too_few"
        assert "cannot be excluded" in found().note

    @pytest.mark.parametrize(
        ("how", "note"),
        [
            ({"blocks": 5}, "too few blocks"),
            ({"problem": "no steady state: it drifts"}, "that of a is not enough (no steady state: it drifts)"),
        ],
    )
    def test_without_blocks_there_is_no_verdict(self, how, note):
        """Too few blocks, or a window that is not steady, are told as too few."""
        found = row(compare_pair(single("a", **how), single("b", speed=2.0)), "tpot_ms.mean")

        assert found.verdict == "too_few"
        assert note in found.note

    def test_a_result_alone_has_no_steady_window(self):
        """Two result files without more than their summary have values and no verdict."""
        found = compare_pair(Side(name="a", runs=(run("a"),)), Side(name="b", runs=(run("b", 2.0),)))

        assert {"too_few"} == {each.verdict for each in found.metrics}
        assert "no steady window" in row(found, "output_throughput").note

    def test_few_users_with_drafts_vary_more(self):
        """With drafts and four users a run is taken to vary four times as much."""
        load = replace(LOAD, max_concurrency=4)
        sides = [
            single(name, speed=speed, load=load, config={"speculative-config": "mtp"})
            for name, speed in (("a", 1), ("b", 1.3))
        ]
        found = row(compare_pair(*sides), "output_throughput")

        assert found.note.endswith("vary by 12 %.")
        assert found.verdict == "no_difference_shown"

    def test_runs_at_a_fixed_rate_vary_more(self):
        """At a fixed rate what varies between runs is taken as half as large again."""
        found = row(compare_pair(single("a", load=OPEN), single("b", speed=1.1, load=OPEN)), "e2el_ms.mean")

        assert found.note.endswith("vary by 7.5 %.")


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

    def test_overlapping_bounds_show_nothing(self):
        """Buckets of 50 to 150 ms on both sides hide a factor of two."""
        found = self.compared((50.0, 150.0), (50.0, 150.0))

        assert found.verdict == "no_difference_shown"
        assert found.low < 0 < found.high
        assert found.note == "From buckets: 50 to 150 and 50 to 150 ms."

    def test_one_bucket_is_not_one_value(self):
        """Runs whose percentile is in one bucket only seem to have one value: the note has the bucket."""
        known = replace(latency(5.0), bounds={"p50": Bounds(low=0.0, high=10.0)})
        sides = [
            Side(name=name, runs=tuple(run(f"{name}{at}", start=first + at, tpot_ms=known) for at in range(3)))
            for name, first in (("a", 0.0), ("b", 10.0))
        ]
        found = row(compare_pair(*sides), "tpot_ms.p50")

        assert (found.verdict, found.percent) == ("too_few", None)
        assert found.note is not None
        assert found.note.startswith("From buckets: ")

    def test_bounds_apart_show_a_difference(self):
        """Buckets of 50 to 100 and of 100 to 250 ms touch; of 50 to 99 and 100 to 250 they do not."""
        assert self.compared((50.0, 100.0), (100.0, 250.0)).verdict == "no_difference_shown"
        assert self.compared((50.0, 99.0), (120.0, 250.0)).verdict == "worse"

    def test_open_bounds_are_open(self):
        """The highest bucket has no upper bound, and the difference has none either."""
        found = self.compared((50.0, 99.0), (120.0, None))

        assert (found.verdict, found.high) == ("worse", None)
        assert found.low == pytest.approx((120 / 99 - 1) * 100)


def test_several_runs_need_no_steady_window():
    """The run is the unit: a result file of each run is enough."""
    assert compare_pair(side("a"), side("b")).method.startswith("The run is the unit (5 and 5 runs)")
    assert "exact permutation test" in compare_pair(side("a"), side("b")).method
    assert "exact permutation test" not in compare_pair(side("a", 3), side("b", 3)).method


def test_servers_are_compared_if_clients_are_not_known():
    """If one side was seen by the server only, both are seen through the server's view, and the method says so."""
    ours = changed(side("a", 3), views=lambda run, _: (run.result, replace(run.result, view="server")))
    found = compare_pair(ours, side("b", 3, view="server"))

    assert found.comparable
    assert "The server's view: a percentile is only known to be in a bucket" in found.method
