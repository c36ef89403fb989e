# SPDX-License-Identifier: Apache-2.0
"""How values are spread: between which bounds a quantile is, and what share is below each bound."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from vllm_watch.analysis.loadtest.load_test import Bounds, Distribution


def is_known(distribution: Distribution) -> bool:
    """Whether there are values, in buckets that fit their bounds."""
    return len(distribution.counts) == len(distribution.bounds) + 1 and sum(distribution.counts) > 0


def quantile_bounds(distribution: Distribution, quantile: float) -> Bounds:
    """Return the bounds of the bucket that a quantile is in; both are open if there are no values."""
    if not is_known(distribution):
        return Bounds()
    total = sum(distribution.counts)
    for at, reached in enumerate(accumulate(distribution.counts)):
        if reached >= quantile * total:
            low = distribution.bounds[at - 1] if at else None
            return Bounds(low=low, high=distribution.bounds[at] if at < len(distribution.bounds) else None)
    return Bounds()


def shares_below(distribution: Distribution) -> tuple[tuple[float, float], ...]:
    """
    Return the share of the values that are at or below each bound, as pairs of bound and share.

    Bounds below all values but the last, and above all values but the first, are left out.
    """
    if not is_known(distribution):
        return ()
    total = sum(distribution.counts)
    reached = accumulate(distribution.counts[:-1])
    shares = [(bound, value / total) for bound, value in zip(distribution.bounds, reached, strict=True)]
    start = max((at for at, (_, share) in enumerate(shares) if share == 0), default=0)
    end = min((at for at, (_, share) in enumerate(shares) if share == 1), default=len(shares))
    return tuple(shares[start : end + 1])


def together(distributions: Sequence[Distribution]) -> Distribution:
    """
    Return distributions as one.

    Where their bounds are not the same, the values of a bucket count at its upper bound: the share below each of their
    bounds is never too high.
    """
    known = [each for each in distributions if is_known(each)]
    bounds = sorted({bound for each in known for bound in each.bounds})
    places = {bound: at for at, bound in enumerate(bounds)}
    counts = [0.0] * (len(bounds) + 1)
    for each in known:
        for bound, value in zip(each.bounds, each.counts[:-1], strict=True):
            counts[places[bound]] += value
        counts[-1] += each.counts[-1]
    return Distribution(bounds=tuple(bounds), counts=tuple(counts))
