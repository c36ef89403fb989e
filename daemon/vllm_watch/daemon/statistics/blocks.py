# SPDX-License-Identifier: Apache-2.0
"""
Two single runs: how far apart their means are, from the blocks of each run's steady window.

Blocks tell how a value varies within a run, not between runs. So the interval is widened by a floor, the stated
variation between runs: its half-width is √(half-width of the blocks² + (3 · CV between runs)²).
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from vllm_watch.daemon.statistics.autocorrelation import autocorrelation
from vllm_watch.daemon.statistics.student_t import t_quantile


MIN_BLOCKS = 8
"""Of fewer blocks it is hardly known how they vary, and how much neighbours resemble each other."""
FLOOR_FACTOR = 3.0


class BlockInterval(NamedTuple):
    """An estimate and its bounds, as ratios of b to a; `half` is half the width of its logarithm."""

    ratio: float
    low: float
    high: float
    half: float

    @property
    def is_different(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low > 1 or self.high < 1


def block_interval(
    a: Sequence[float], b: Sequence[float], cv_between_runs: float, confidence: float = 0.95
) -> BlockInterval | None:
    """
    Return the ratio of b's mean to a's.

    Args:
        a: Means of the blocks of one run.
        b: Those of the other.
        cv_between_runs: The coefficient of variation between runs of one configuration, which blocks cannot tell.
        confidence: Of the blocks' part of the interval.

    Returns:
        `None` if a side has fewer than eight blocks, or a mean that is not positive.
    """
    if min(len(a), len(b)) < MIN_BLOCKS or min(fmean(a), fmean(b)) <= 0:
        return None
    (error_a, degrees_a), (error_b, degrees_b) = _relative_error(a), _relative_error(b)
    blocks = 0.0
    if error_a + error_b > 0:
        degrees = (error_a + error_b) ** 2 / (error_a**2 / degrees_a + error_b**2 / degrees_b)
        blocks = t_quantile(0.5 + confidence / 2, degrees) * math.sqrt(error_a + error_b)
    half = math.hypot(blocks, FLOOR_FACTOR * cv_between_runs)
    ratio = fmean(b) / fmean(a)
    return BlockInterval(ratio, ratio * math.exp(-half), ratio * math.exp(half), half)


def _relative_error(values: Sequence[float]) -> tuple[float, int]:
    """Return the square of the mean's relative standard error, and its degrees of freedom."""
    mean, count = fmean(values), len(values)
    square = math.fsum((each - mean) ** 2 for each in values) / (count - 1) / count / mean**2
    # Blocks that resemble their neighbours are worth fewer; of few blocks the autocorrelation comes out too low.
    rho = min(max((count * autocorrelation(values) + 1) / (count - 4), 0.0), 0.9)
    return square * (1 + rho) / (1 - rho), count - 1
