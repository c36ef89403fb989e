# SPDX-License-Identifier: Apache-2.0
"""The curve predicts what an engine sustains to 15 %, or says why not; it is judged by what it has not seen."""

from __future__ import annotations

import pytest

from tests.capacity.accuracy import judge_recording, name_of, recordings
from tests.capacity.shapes import SHAPES, judge, said_of
from tests.support.samples import is_whole, sample

from vllm_watch.daemon.capacity.curve import NoCurve


TOLERANCE = 0.15

SATURATED = {"day", "fullstall", "queue", "sustained"}
"""The recordings whose engine was saturated for a minute and more, at a limit."""

OTHERS = {"busy", "vl"}
"""Some of those that were not."""

KINDS = sample(("users",), ("users", "rate"))
PARTS = sample((0.9,), (0.4, 0.5, 0.7, 0.8, 0.9))
SEEDS = sample((1,), (1, 2, 3, 4, 5))


@pytest.mark.slow
def test_recorded_saturations_are_predicted_or_not_at_all():
    """In every recording the estimate from before a saturation is within 15 % of what was then measured, or absent."""
    paths = [path for path in recordings() if is_whole() or name_of(path) in SATURATED | OTHERS]
    judged = [each for path in paths for each in judge_recording(path)]

    assert {each.name for each in judged} == SATURATED
    assert [] == [each for each in judged if each.error is not None and abs(each.error) > TOLERANCE]


@pytest.mark.parametrize("name", SHAPES)
def test_a_ladder_near_the_limit_predicts_engines_of_every_shape(name):
    """After closed loads up to 80 % of the limit an estimate is within 15 % of the truth, its plan below it."""
    for seed in SEEDS:
        judged = judge(name, "users", 0.8, seed)

        assert abs(judged.error) <= TOLERANCE
        assert judged.said.low <= 1.02 * judged.truth
        assert judged.said.low <= judged.said.tokens_per_second <= judged.said.high <= 1.3 * judged.said.low


@pytest.mark.parametrize("name", SHAPES)
def test_no_engine_is_promised_more_than_it_sustains(name):
    """Whatever its shape and its load, no estimate is over 15 % above the truth; half the limit gives none."""
    for seed in SEEDS:
        judged = [judge(name, kind, up_to, seed) for kind in KINDS for up_to in PARTS]

        assert all(each.error <= TOLERANCE for each in judged if each.error is not None)
        assert judge(name, "users", 0.5, seed).error is None


def test_throughput_that_grows_in_proportion_is_refused():
    """An engine whose step hardly takes longer with more requests shows no limit, however near to it."""
    flat = SHAPES["linear"]._replace(step=lambda running: 0.02 + 0.00001 * running)

    assert said_of(flat, "users", 0.9, 1) == NoCurve("no_curve")
