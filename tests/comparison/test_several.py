# SPDX-License-Identifier: Apache-2.0
"""Several configurations side by side, several loads, and the limits of ``--fail-if``."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, changed, runs, side, single

from vllm_watch.analysis.comparison.compare_arguments import check_rule, parse_rule
from vllm_watch.analysis.comparison.compare_sides import compare_pair, compare_sides
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, Side
from vllm_watch.daemon.support.errors import UsageError


def with_dead_run(found, dead):
    """Return a side in one of whose runs nothing succeeded, which is few of all its requests."""

    def result(each, at):
        few = {"successful": 0, "failed": 10, "output_throughput": 0.0, "ttft_ms": None}
        return replace(each.result, **few) if at == dead else each.result

    return changed(found, result=result)


def decisions(*sides):
    """Return what is decided among sides, by criterion."""
    return {each.criterion: each for each in compare_sides(sides).decisions}


def test_each_side_is_compared_with_the_baseline():
    """The first side is the baseline unless another one is named; it comes first."""
    sides = [side(name) for name in "abc"]

    assert [("a", "b"), ("a", "c")] == [(each.baseline, each.candidate) for each in compare_sides(sides).pairs]
    assert [("c", "a"), ("c", "b")] == [(each.baseline, each.candidate) for each in compare_sides(sides, "c").pairs]


def test_the_matrix_has_what_differs():
    """A row for each side: the settings that differ, and the values."""
    same = {"tensor-parallel-size": "2", "same": "x"}
    found = compare_sides([side(name, config={**same, "max-num-seqs": name}) for name in "abc"]).matrix

    assert [each.name for each in found] == ["a", "b", "c"]
    assert found[1].config == {"max-num-seqs": "b"}
    assert list(found[1].values) == ["ttft_ms.p50", "tpot_ms.mean", "output_throughput"]


@pytest.mark.parametrize(
    ("sides", "winner", "grade", "note"),
    [
        ((side("a"), side("b", speed=1.3), side("c", speed=1.02)), "b", "shown", None),
        ((side("a"), side("b", speed=1.3), side("c", speed=1.3)), None, "not_decided", "the difference to "),
        ((single("a"), single("b", speed=2.0), single("c", speed=1.01)), "b", "in_these_two_runs", None),
        (
            tuple(side(name, load=replace(OPEN, request_rate=20.0)) for name in "abc"),
            None,
            "not_decided",
            "repeats the",
        ),
    ],
    ids=["shown", "two alike", "one run of each", "a fixed rate"],
)
def test_a_winner_is_better_than_all_others(sides, winner, grade, note):
    """It wins as surely as the weakest grade against the others; if one is not decided nobody wins."""
    found = decisions(*sides)["most throughput"]

    assert (found.winner, found.grade) == (winner, grade)
    assert (note or "") in (found.note or "")


def test_users_within_the_objective():
    """Without an objective, what to give is said; sides that cannot be compared, and two sides, decide nothing."""
    assert decisions(side("a"), side("b"), side("c"))["most users within the objective"].note == (
        "Not known of a, b, c. Give an objective, and results of --save-detailed."
    )
    assert decisions(side("a"), side("b"), side("c", load=OPEN)) == decisions(side("a"), side("b")) == {}


class TestSweeps:
    """Runs of several loads on one side."""

    @staticmethod
    def sweep(name, speed, users):
        """Return a side with three runs of each number of users."""
        return Side(
            name=name,
            runs=tuple(
                each
                for number in users
                for each in runs(f"{name}{number}-", 3, speed, seed=number, load=replace(LOAD, max_concurrency=number))
            ),
        )

    def test_each_load_is_compared_for_itself(self):
        """Two loads that both sides have are two comparisons; the third is left out, and that is said."""
        found = compare_sides([self.sweep("a", 1.0, (4, 8, 16)), self.sweep("b", 1.3, (4, 16))])

        assert [("a, 4 at once", "b, 4 at once"), ("a, 16 at once", "b, 16 at once")] == [
            (each.baseline, each.candidate) for each in found.pairs
        ]
        assert all(each.comparable for each in found.pairs)
        assert found.pairs[0].warnings[-1] == "Not all sides have these loads, so they are left out: 8 at once."
        assert [each.name for each in found.matrix] == [
            "a, 4 at once",
            "b, 4 at once",
            "a, 16 at once",
            "b, 16 at once",
        ]

    def test_without_a_common_load_the_sides_are_not_comparable(self):
        """Sides that have no load in common are told as that."""
        found = compare_sides([self.sweep("a", 1.0, (4, 8)), self.sweep("b", 1.3, (16,))]).pairs

        assert [each.reasons for each in found] == [("The runs of a have different loads: 4 at once, 8 at once.",)]


class TestFailIf:
    """A rule fails only if the whole interval is beyond its limit."""

    SIDES = (side("a", cv=0.01), side("b", speed=0.8, cv=0.01))
    PAIR = compare_pair(*SIDES, BY_NAME)
    """TTFT rises by about 25 %, throughput falls by about 20 %."""

    @pytest.mark.parametrize(
        ("text", "outcome"),
        [
            ("ttft_ms.p99 > +10%", "failed"),
            ("ttft_ms.p99>10 %", "failed"),
            ("ttft_ms.p99 > 25.0%", "not shown"),
            ("ttft_ms.p99 > 40%", "passed"),
            ("output_throughput < -5%", "failed"),
            ("output_throughput < -50%", "passed"),
            ("tpot_ms.p90 > 10%", "failed"),
            ("request_goodput < -5%", "cannot be told"),
        ],
    )
    def test_outcomes(self, text, outcome):
        """Each outcome is told with the rule, both sides, and the interval or what is missing."""
        found = check_rule(parse_rule(text), self.PAIR)

        assert found.text.startswith(f"{outcome}: {parse_rule(text)} (b against a): ")
        assert (outcome == "failed") == (found.exit_status == 1)

    def test_a_rules_metric_is_judged_by_itself(self):
        """It was chosen beforehand: its interval is that of 95 %, narrower than where eight metrics are judged."""
        found = compare_pair(*self.SIDES, ["ttft_ms.p99"])
        (alone,), among = found.chosen, next(row for row in found.metrics if row.metric == "ttft_ms.p99")

        assert (alone.confidence, among.confidence) == (0.95, pytest.approx(1 - 0.05 / 7))
        assert among.low < alone.low < alone.high < among.high

    @pytest.mark.parametrize(
        ("sides", "why"),
        [
            ((side("a"), side("b", load=OPEN)), "The loads are of different kinds"),
            ((side("a"), side("b", successful=0, failed=2000)), "No request of b succeeded."),
            ((side("a"), with_dead_run(side("b"), 3)), "In b4 of b no request succeeded."),
            ((side("a"), side("b", ttft_ms=None)), "No value is known of b."),
            ((side("a", ttft_ms=None), side("b", ttft_ms=None)), "Not both sides have this metric."),
            ((single("a"), single("b", 1.1)), "There is one run of each side."),
        ],
        ids=["not comparable", "dead", "a dead run", "not measured", "measured nowhere", "one run of each"],
    )
    def test_what_cannot_be_told_has_its_own_exit_status(self, sides, why):
        """A candidate that is dead, a metric that is missing and sides that cannot be compared pass no rule."""
        found = check_rule(parse_rule("ttft_ms.p99 > 0%"), compare_pair(*sides, BY_NAME))

        assert found.exit_status == 3
        assert found.text.startswith("cannot be told: ")
        assert why in found.text

    @pytest.mark.parametrize("text", ["", "ttft_ms.p99", "ttft_ms.p99 > 10", "ttft_ms.p99 = 10%", "> 10%", "a b > 10%"])
    def test_what_is_no_rule(self, text):
        """The message shows a rule."""
        with pytest.raises(UsageError, match="expected a metric, < or >, and per cent, such as"):
            parse_rule(text)

    @pytest.mark.parametrize("text", ["output_throughput > -5%", "ttft_ms.mean < -5%", "request_goodput > 0%"])
    def test_a_rule_that_fails_for_an_improvement_is_none(self, text):
        """A rule guards against what is worse: the other direction is an error that says which one is meant."""
        with pytest.raises(UsageError, match="that is an improvement"):
            parse_rule(text)

    def test_an_unknown_metric_names_the_known_ones(self):
        """A wrong name is an error that lists all that are compared."""
        with pytest.raises(UsageError, match=r"no metric ttft\.p99; known are") as raised:
            parse_rule("ttft.p99 > 10%")

        assert all(name in str(raised.value) for name in BY_NAME)
