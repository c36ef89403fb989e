# SPDX-License-Identifier: Apache-2.0
"""Sides that were measured under several loads, as in a sweep: each load is compared for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.analysis.comparison.load_kinds import load_name
from vllm_watch.analysis.comparison.model import Side


class Levels(NamedTuple):
    """
    The sides load by load, in the order of the first side's runs.

    With one load for all, the sides are as they were. With several, each side has the load in its name, and `left_out`
    are the loads that not all sides have.
    """

    sides: tuple[tuple[Side, ...], ...]
    left_out: tuple[str, ...] = ()


def split_by_load(sides: Sequence[Side]) -> Levels:
    """Return the sides load by load; unchanged if no side has several loads, or they have none in common."""
    loads = [dict.fromkeys(load_name(run.load) for run in side.runs) for side in sides]
    common = [text for text in loads[0] if all(text in each for each in loads)]
    if not common or max(map(len, loads)) == 1:
        return Levels((tuple(sides),))
    left_out = dict.fromkeys(text for each in loads for text in each if text not in common)
    return Levels(tuple(tuple(_at(side, text) for side in sides) for text in common), tuple(left_out))


def _at(side: Side, text: str) -> Side:
    return Side(name=f"{side.name}, {text}", runs=tuple(run for run in side.runs if load_name(run.load) == text))
