# SPDX-License-Identifier: Apache-2.0
"""What load tests of several configurations show of one flag."""

from __future__ import annotations

from tests.advice.made_up import Part, load, server
from tests.support.load_tests import latency, run

from vllm_watch.analysis.advice.advice_subject import subjects
from vllm_watch.analysis.advice.advisor import Configuration, best, measurements


FLAG = "max-num-seqs"


def load_tests(seats, speed, tpot=7.0):
    """Return a configuration with five load tests, which vary a little; `tpot` is in milliseconds."""
    (subject,) = subjects([server(Part(300, load(4.0)), config={FLAG: seats}, name=f"seats{seats}")])
    factors = (0.99, 0.995, 1.0, 1.005, 1.01)
    made = (
        run(f"{seats}-{place}", speed * factor, config={FLAG: seats}, tpot_ms=latency(tpot / factor))
        for place, factor in enumerate(factors)
    )
    return Configuration(subject, tuple(made))


def test_of_several_better_values_the_best_one_is_advised():
    """Whichever was measured last: a value that was a little better does not replace one that was far better."""
    now, far_better, better = load_tests("16", 1.0), load_tests("32", 1.6), load_tests("64", 1.2)

    for others in ([far_better, better], [better, far_better]):
        assert best(measurements(now, others))[FLAG].other == "32"


def test_a_worse_value_is_never_the_best_one():
    """Where all others were worse there is nothing to advise."""
    assert best(measurements(load_tests("16", 1.0), [load_tests("32", 0.8)])) == {}


def test_a_difference_that_is_not_shown_is_no_reason():
    """Load tests that decide nothing are known as such: their value is neither the best one nor a bad one."""
    (found,) = measurements(load_tests("16", 1.0), [load_tests("32", 1.001)])

    assert found.is_better is None
    assert best([found]) == {}
    assert ": not decided, " in found.evidence[0].text


def test_what_was_worse_is_told_beside_what_was_better():
    """More tokens a second, and twice the time for each token: both are evidence."""
    (found,) = measurements(load_tests("16", 1.0), [load_tests("32", 1.5, tpot=14.0)])

    assert found.is_better
    assert found.evidence[0].series == "output_throughput"
    assert "tpot_ms.mean" in [each.series for each in found.evidence[1:]]
    assert all(": worse, " in each.text for each in found.evidence[1:])
