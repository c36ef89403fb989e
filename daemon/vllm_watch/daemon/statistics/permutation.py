# SPDX-License-Identifier: Apache-2.0
"""
The exact permutation test: a cross-check of Student's t that assumes no distribution.

If the sides do not differ, each division of all values into two sides is as likely as the one that was observed.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from itertools import combinations


MIN_VALUES = 5
"""From so many values a side on the smallest possible p, 2 in 252, is below 1 %."""
MAX_DIVISIONS = 200_000

_ROUNDING = 1e-12


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """
    Return the share of divisions whose logarithms' means are at least so far apart as those observed, two-sided.

    `None` if a side has fewer than five values, or one that is not positive, or if there are too many divisions.
    """
    if min(len(a), len(b)) < MIN_VALUES or min(*a, *b) <= 0:
        return None
    divisions = math.comb(len(a) + len(b), len(a))
    if divisions > MAX_DIVISIONS:
        return None
    logarithms = [math.log(each) for each in (*a, *b)]
    expected = math.fsum(logarithms) * len(a) / len(logarithms)
    observed = abs(math.fsum(logarithms[: len(a)]) - expected) - _ROUNDING
    extreme = sum(abs(sum(chosen) - expected) >= observed for chosen in combinations(logarithms, len(a)))
    return extreme / divisions
