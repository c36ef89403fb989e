# SPDX-License-Identifier: Apache-2.0
"""
How well a curve predicts what an engine sustains: by the time before each saturation, beside what was measured then.

Every recording with a saturation of a minute and more is a row, with its error or why there is no estimate; so are
simulated engines, of which the largest error is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.benchmarks.figures import Figure
from tests.capacity.accuracy import Judged, judge_recording, recordings
from tests.capacity.shapes import SHAPES, judge
from tests.capacity.shapes import Judged as Simulated

from vllm_watch.daemon.capacity.curve import NoCurve


GOAL = 15.0
SEEDS = range(1, 6)
NOISE = 2.0


def measure() -> Iterator[Figure]:
    """Yield the error of each recorded saturation, and the largest of those of simulated engines."""
    for path in recordings():
        for number, judged in enumerate(judge_recording(path)):
            yield _row(judged, "" if number == 0 else f", {number + 1}")
    simulated = [judge(name, "users", 0.8, seed) for name in SHAPES for seed in SEEDS]
    errors = [100 * abs(each.error) for each in simulated if each.error is not None]
    yield Figure("simulated: largest error", max(errors), "%", "lower", GOAL, noise=NOISE, note=_spread(simulated))
    yield Figure("simulated: estimated", len(errors), f"of {len(simulated)}", "higher", note="the others have no curve")


def _row(judged: Judged, which: str) -> Figure:
    name = f"recording {judged.name}{which}"
    measured = f"measured {judged.measured:,.0f} tokens/s over {judged.seconds:.0f} s"
    if isinstance(judged.before, NoCurve):
        return Figure(name, None, "%", note=f"{measured}; no curve: {judged.before.reason}")
    estimate = f"at least {judged.before.seen:,.0f} and at most {judged.before.at_limit:,.0f} before"
    return Figure(name, 100 * abs(judged.error or 0.0), "%", "lower", GOAL, note=f"{measured}, {estimate}")


def _spread(simulated: Sequence[Simulated]) -> str:
    errors = sorted(100 * each.error for each in simulated if each.error is not None)
    return f"from {errors[0]:+.1f} to {errors[-1]:+.1f} %, median {errors[len(errors) // 2]:+.1f} %"
