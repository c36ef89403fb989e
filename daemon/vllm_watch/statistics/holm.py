# SPDX-License-Identifier: Apache-2.0
"""Several tests at once: Holm's correction (1979) keeps the chance of any false one at that of a single test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar


_Name = TypeVar("_Name")


def holm_adjusted(p_values: Mapping[_Name, float], family: int) -> dict[_Name, float]:
    """
    Return each p as what is to be compared with the limit of a single test.

    Args:
        p_values: By name, of the tests that could be done.
        family: How many tests were planned. Those that could not be done count as well: the family is fixed beforehand.

    Raises:
        ValueError: There are more tests than were planned.
    """
    if len(p_values) > family:
        raise ValueError(f"expected at most {family} tests, not {len(p_values)}")
    adjusted: dict[_Name, float] = {}
    highest = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda each: each[1])):
        highest = max(highest, min(p * (family - rank), 1.0))
        adjusted[name] = highest
    return adjusted
