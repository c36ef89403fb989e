# SPDX-License-Identifier: Apache-2.0
"""Figures of one run, and how they compare with those that are kept from the last release. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec


LIMIT = 1.2
"""A figure that is worse by more than this factor is a regression."""

Better = Literal["lower", "higher"]


class Figure(NamedTuple):
    """
    One figure of a benchmark, in which no other has its name.

    Attributes:
        value: `None` if it could not be measured.
        unit: Of the value, such as ``s`` or ``% of a core``; ``x`` of a ratio.
        better: `None` for what is told and not compared.
        goal: What it has to reach, if anything.
        is_processor: Whether it is processor time, which another machine takes more or less of.
        noise: A difference that says nothing, in the unit of the value.
        note: What else is to be said, such as why there is no value.
    """

    name: str
    value: float | None
    unit: str
    better: Better | None = None
    goal: float | None = None
    is_processor: bool = False
    noise: float = 0.0
    note: str = ""

    @property
    def misses_goal(self) -> bool:
        """Whether there is a goal, and the value is not good enough."""
        if self.goal is None or self.value is None:
            return False
        return self.value < self.goal if self.better == "higher" else self.value > self.goal


class KeptBenchmark(msgspec.Struct, frozen=True):
    """The values of a benchmark's figures, and the seconds that the calibration took beside it."""

    calibration: float
    figures: dict[str, float]


class Kept(msgspec.Struct, frozen=True):
    """What is kept of a release: its version, the day, the kind of machine, and each benchmark by its name."""

    version: str
    date: str
    machine: str
    benchmarks: dict[str, KeptBenchmark]


class Change(NamedTuple):
    """How a figure compares with what it was; `factor` of what was expected, unless that is 0."""

    kind: Literal["new", "same", "better", "worse", "gone"]
    factor: float | None = None


def compare(figure: Figure, before: float | None, slower: float) -> Change | None:
    """
    Compare a figure with what it was, on a machine of which `slower` says how many times as long the same work takes.

    `None` for a figure that is not compared, or was measured neither then nor now.
    """
    if figure.better is None or (before is None and figure.value is None):
        return None
    if before is None:
        return Change("new")
    if figure.value is None:
        return Change("gone")
    expected = before * slower if figure.is_processor else before
    factor = figure.value / expected if expected else None
    low, high = sorted((figure.value, expected))
    if high - low <= figure.noise or high <= LIMIT * low:
        return Change("same", factor)
    return Change("worse" if (figure.value > expected) == (figure.better == "lower") else "better", factor)


def kept_values(figures: Iterable[Figure]) -> dict[str, float]:
    """Return the values that there are, with four digits: more is noise."""
    return {figure.name: float(f"{figure.value:.4g}") for figure in figures if figure.value is not None}


def row(figure: Figure, change: Change | None) -> str:
    """Return a line of the table: name, value, goal, and how it compares with the last release."""
    goal = "" if figure.goal is None else f"{'≥' if figure.better == 'higher' else '≤'} {number(figure.goal)}"
    if figure.misses_goal:
        goal += " missed"
    value = "-" if figure.value is None else f"{number(figure.value)} {figure.unit}"
    return f"{figure.name:<50} {value:>24}  {goal:<14} {_said(change):<8} {figure.note}".rstrip()


def number(value: float) -> str:
    """Return a value with three digits; large ones whole."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"


def _said(change: Change | None) -> str:
    if change is None:
        return ""
    if change.factor is None:
        return change.kind
    return f"{change.factor - 1:+.0%}{'' if change.kind == 'same' else ' ' + change.kind}"
