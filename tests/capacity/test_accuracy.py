# SPDX-License-Identifier: Apache-2.0
"""The curve predicts what an engine sustains to 15 %, or says why not; it is judged by what it has not seen."""

from __future__ import annotations

import pytest

from tests.capacity.accuracy import ENGINES, judge_recording, judge_simulated, name_of, recordings
from tests.support.samples import is_whole, sample


TOLERANCE = 0.15

SATURATED = {"day", "fullstall", "queue", "sustained"}
"""The recordings whose engine was saturated for a minute and more, at a limit."""

OTHERS = {"busy", "vl"}
"""Some of those that were not."""

SEEDS = sample((1,), (1, 2))


@pytest.mark.slow
def test_recorded_saturations_are_predicted_or_not_at_all():
    """In every recording the estimate from before a saturation is within 15 % of what was then measured, or absent."""
    paths = [path for path in recordings() if is_whole() or name_of(path) in SATURATED | OTHERS]
    judged = [each for path in paths for each in judge_recording(path)]

    assert {each.name for each in judged} == SATURATED
    assert [] == [each for each in judged if each.error is not None and abs(each.error) > TOLERANCE]


@pytest.mark.slow
def test_simulated_saturations_are_predicted():
    """Engines that know nothing of a curve sustain what was estimated, to 15 %; few have no estimate."""
    judged = [judge_simulated(name, seed) for name in ENGINES for seed in SEEDS]
    errors = [each.error for each in judged if each.error is not None]

    assert len(errors) >= 0.7 * len(judged)
    assert max(map(abs, errors)) <= TOLERANCE
    assert all(each.before.most_running < 0.95 * each.before.limit.requests for each in judged if each.error)
