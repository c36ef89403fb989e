# SPDX-License-Identifier: Apache-2.0
"""
MSER-5: where the warm-up of a series ends (White 1997; White, Cobb and Spratt 2000).

The values are averaged in groups of five; the cut is where the standard error of the mean of the rest is least.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from statistics import fmean


GROUP = 5


def mser_cut(values: Sequence[float], group: int = GROUP) -> int | None:
    """
    Return how many values to leave out at the beginning.

    `None` if the best cut would leave out half or more: the series has not settled. Short series take smaller groups.
    """
    means = [fmean(values[at : at + group]) for at in range(0, len(values) - group + 1, group)]
    if not means:
        return None
    best, least = 0, math.inf
    count, total, square = 0, 0.0, 0.0
    centre = fmean(means)  # Squares of large numbers with small differences would lose their digits.
    for place in range(len(means) - 1, -1, -1):
        value = means[place] - centre
        count, total, square = count + 1, total + value, square + value * value
        error = max(square - total * total / count, 0.0) / (count * count)
        # The last few groups agree by chance; and of equally good cuts the earliest leaves the most.
        if count >= max(len(means) // 4, 2) and error <= least * (1 + 1e-9):
            best, least = place, error
    return None if len(means) > 1 and best * 2 >= len(means) else best * group
