# SPDX-License-Identifier: Apache-2.0
"""Recorded runs of a real server: equal configurations are not called different, and no verdict is wrong."""

from __future__ import annotations

import functools

from itertools import combinations, permutations

import pytest

from tests.loadtest.load_tests import FOLDER, report_of
from tests.support.load_tests import called_different, row
from tests.support.samples import sample

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import Side


CONFIGURATIONS = ("draft2", "draft4", "prefix-on", "prefix-off", "quiet-draft2", "quiet-draft4")
RUNS = 5

pytestmark = pytest.mark.slow


@functools.cache
def recorded(name):
    """Return the five runs of a configuration, each from its own recording."""
    paths = [FOLDER / f"{name}-run{number}.jsonl.xz" for number in range(1, RUNS + 1)]
    return tuple(next(run for run in report_of(path).runs if run.result.view == "client") for path in paths)


def splits(runs):
    """Yield pairs of sides of one configuration: each run against each, and each two against two and three others."""
    yield from permutations([(run,) for run in runs], 2)
    for ours in combinations(runs, 2):
        others = tuple(run for run in runs if run not in ours)
        yield ours, others
        yield from ((ours, theirs) for theirs in combinations(others, 2))


@pytest.mark.parametrize("name", sample(("draft2", "prefix-on", "quiet-draft4"), CONFIGURATIONS))
def test_equal_configurations_are_not_called_different(name):
    """A/A: of all 60 pairs of one or several runs at most 5 % have any metric called different."""
    found = [
        compare_pair(Side(name="a", runs=tuple(a)), Side(name="b", runs=tuple(b))) for a, b in splits(recorded(name))
    ]

    assert len(found) == 60
    assert all(each.metrics for each in found)
    assert sum(bool(called_different(each)) for each in found) <= 3


def test_a_real_difference_is_found():
    """Where little else runs on the machine, four draft tokens are shown to be faster than two."""
    found = compare_pair(*(Side(name=name, runs=recorded(name)) for name in ("quiet-draft2", "quiet-draft4")))

    for name in ("output_throughput", "tpot_ms.mean"):
        assert (row(found, name).grade, row(found, name).is_better) == ("shown", True)
    assert row(found, "ttft_ms.p50").grade != "shown"


class TestDrafts:
    """Two against four draft tokens, eight users."""

    PAIR = ("draft2", "draft4")

    @staticmethod
    def compared():
        """Return the comparison."""
        return compare_pair(*(Side(name=name, runs=recorded(name)) for name in TestDrafts.PAIR))

    def test_what_was_changed_is_all_that_differs(self):
        """The number of draft tokens differs, and nothing else."""
        found = self.compared()

        assert [(each.flag, each.a, each.b) for each in found.config] == [
            ("speculative-config.num_speculative_tokens", "2", "4")
        ]
        assert found.common_config["max-num-seqs"] == "24"

    def test_itl_is_not_compared(self):
        """A chunk has three tokens with two drafts and five with four: ITL rises though TPOT falls."""
        found = self.compared()
        itl, tpot = row(found, "itl_ms.mean"), row(found, "tpot_ms.mean")

        assert itl.a < itl.b
        assert tpot.a > tpot.b
        assert itl.grade == "not_decided"
        assert "5.0 in draft4" in itl.reason

    def test_four_drafts_are_never_called_slower(self):
        """The headline is throughput; it is higher, and no metric is called worse."""
        found = self.compared()
        headline = found.metrics[0]

        assert (headline.metric, headline.is_headline, headline.runs) == ("output_throughput", True, (5, 5))
        assert headline.b > headline.a
        assert not [each for each in found.metrics if each.grade == "shown" and not each.is_better]


class TestPrefixCache:
    """Prefix caching on and off, at a fixed rate."""

    @staticmethod
    def compared():
        """Return the comparison."""
        return compare_pair(*(Side(name=name, runs=recorded(name)) for name in ("prefix-off", "prefix-on")))

    def test_they_are_comparable_though_the_hits_differ(self):
        """The switch is what was tested, so another share of cached tokens is no reason against it."""
        found = self.compared()

        assert found.comparable
        assert ("enable-prefix-caching", "False", "True") in [(each.flag, each.a, each.b) for each in found.config]

    def test_the_rate_is_not_a_result(self):
        """Throughput repeats the rate; the headline is TPOT, TTFT is lower, and nothing is called worse."""
        found = self.compared()
        rate = recorded("prefix-on")[0].load.request_rate

        assert f"At a fixed rate of {rate:g} requests/s" in row(found, "output_throughput").reason
        assert found.metrics[0].metric == "tpot_ms.mean"
        assert row(found, "ttft_ms.p50").b < row(found, "ttft_ms.p50").a
        assert not [each for each in found.metrics if each.grade == "shown" and not each.is_better]


def test_drafts_and_prefixes_are_not_comparable():
    """Another load and other lengths come before any number."""
    found = compare_pair(*(Side(name=name, runs=recorded(name)) for name in ("draft4", "prefix-on")))

    assert not found.comparable
    assert {"not_decided"} == {each.grade for each in found.metrics}
    assert any(each.startswith("The loads are of different kinds: 8 at once and ") for each in found.reasons)
