# SPDX-License-Identifier: Apache-2.0
"""
Several tests at once: Holm's correction (1979) keeps the chance of any false one at that of a single test.

Tests have weights. What matters most may have a larger part of that chance, and so needs a smaller difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar


_Name = TypeVar("_Name")


def holm_adjusted(p_values: Mapping[_Name, float], weights: Mapping[_Name, float]) -> dict[_Name, float]:
    """
    Return each p as what is to be compared with the limit of a single test.

    Args:
        p_values: By name, of the tests that could be done.
        weights: By name, of all tests that were planned. Those that could not be done count as well: the family is
            fixed beforehand.

    Raises:
        KeyError: A test was not planned.
    """
    adjusted: dict[_Name, float] = {}
    left, highest = sum(weights.values()), 0.0
    for name, p in sorted(p_values.items(), key=lambda each: each[1] / weights[each[0]]):
        highest = max(highest, min(p * left / weights[name], 1.0))
        adjusted[name] = highest
        left -= weights[name]
    return adjusted
