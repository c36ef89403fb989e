# SPDX-License-Identifier: Apache-2.0
"""
Little's law: in a steady state the mean number of requests inside is their rate times their mean time inside.

Both sides are measured apart, so a large difference means that one measurement is wrong, or the state was not steady.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


GOOD = 0.05
ACCEPTABLE = 0.15


class LittleCheck(NamedTuple):
    """`deviation` is how much the measured number is above that of the law, relative to it."""

    expected: float
    deviation: float
    grade: Literal["good", "acceptable", "doubtful"]


def check_littles_law(inside: float, rate: float, seconds: float) -> LittleCheck | None:
    """
    Compare the mean number of requests inside with that of the law; `None` if nothing was inside.

    Args:
        inside: Mean number of requests, running and waiting.
        rate: Requests that leave in a second.
        seconds: Mean time that a request was inside.
    """
    expected = rate * seconds
    if expected <= 0:
        return None
    deviation = inside / expected - 1
    grade: Literal["good", "acceptable", "doubtful"] = "doubtful"
    if abs(deviation) <= ACCEPTABLE:
        grade = "good" if abs(deviation) <= GOOD else "acceptable"
    return LittleCheck(expected, deviation, grade)
