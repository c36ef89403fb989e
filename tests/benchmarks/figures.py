# SPDX-License-Identifier: Apache-2.0
"""
Figures of one run, and how they compare with those that are kept from the last release.

Pure: what is measured and what is kept go in, changes come out.
"""

from __future__ import annotations

import math

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec


LIMIT = 1.2
"""A figure that is worse by more than this factor is a regression."""

Better = Literal["lower", "higher"]


class Figure(NamedTuple):
    """
    One figure of a benchmark.

    Attributes:
        name: What was measured; within a benchmark no other figure has it.
        value: `None` if it could not be measured.
        unit: Of the value, such as ``s`` or ``% of a core``; ``x`` of a ratio.
        better: Whether lower or higher is better; `None` for what is told and not compared.
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


class KeptFigure(msgspec.Struct, frozen=True):
    """A figure as it was."""

    value: float
    unit: str
    better: Better | None


class KeptBenchmark(msgspec.Struct, frozen=True):
    """The figures of a benchmark as they were, and the seconds that the calibration took beside it."""

    calibration: float
    figures: dict[str, KeptFigure]


class Machine(msgspec.Struct, frozen=True):
    """What kind of machine figures are from."""

    cores: int
    processor: str
    python: str

    def __str__(self) -> str:
        """Return it for a sentence."""
        return f"{self.cores} cores, {self.processor}, Python {self.python}"


class Kept(msgspec.Struct, frozen=True):
    """What is kept of a release: its version, the day, the machine, and each benchmark by its name."""

    version: str
    date: str
    machine: Machine
    benchmarks: dict[str, KeptBenchmark]


class Change(NamedTuple):
    """
    How a figure compares with what it was.

    Attributes:
        kind: ``same`` also if it is a little better or worse; ``gone``: it was measured then, and is not now.
        factor: How many times as much as what is expected after the last release; `None` if there is no such number.
    """

    kind: Literal["new", "same", "better", "worse", "gone"]
    factor: float | None = None


def compare(figure: Figure, before: KeptFigure | None, slower: float) -> Change | None:
    """
    Compare a figure with what it was.

    Args:
        figure: As it is now.
        before: As it was; `None` if it was not measured.
        slower: How many times as long as the machine of that time this one takes for the same work.

    Returns:
        `None` for a figure that is not compared, or was measured neither then nor now.
    """
    if figure.better is None or (before is None and figure.value is None):
        return None
    if before is None or before.unit != figure.unit or before.better != figure.better:
        return Change("new")
    if figure.value is None:
        return Change("gone")
    expected = before.value * slower if figure.is_processor else before.value
    factor = _factor(figure.value, expected)
    if abs(figure.value - expected) <= figure.noise:
        return Change("same", factor)
    worse = _factor(figure.value, expected) if figure.better == "lower" else _factor(expected, figure.value)
    if worse is None or worse > LIMIT:  # From nothing to something, the wrong way.
        return Change("worse", factor)
    return Change("better" if worse < 1 / LIMIT else "same", factor)


def _factor(value: float, of: float) -> float | None:
    """Return how many times as much as `of` a value is; `None` for something of nothing."""
    if of == 0:
        return 1.0 if value == 0 else None
    return value / of


def gone(figures: Mapping[str, list[Figure]], kept: Kept) -> Iterator[str]:
    """Yield what is kept and was not measured, of the benchmarks that were run."""
    for benchmark, now in figures.items():
        values = {figure.name: figure.value for figure in now}
        before = kept.benchmarks.get(benchmark)
        for name, figure in before.figures.items() if before else ():
            if figure.better is not None and values.get(name) is None:
                yield f"{benchmark}: {name}"


def keep(
    version: str,
    date: str,
    machine: Machine,
    measured: Mapping[str, tuple[float, list[Figure]]],
    others: Mapping[str, KeptBenchmark],
) -> Kept:
    """
    Return what to keep.

    Args:
        version: The release's.
        date: The day of the run.
        machine: Where it was.
        measured: Of each benchmark the calibration and the figures; those without a value are left out.
        others: What stays of benchmarks that were not run.
    """
    new = {
        name: KeptBenchmark(
            round(calibration, 4),
            {
                figure.name: KeptFigure(_rounded(figure.value), figure.unit, figure.better)
                for figure in figures
                if figure.value is not None
            },
        )
        for name, (calibration, figures) in measured.items()
    }
    return Kept(version, date, machine, {**others, **new})


def _rounded(value: float) -> float:
    """Return a value with four digits: more is noise."""
    return round(value, 3 - math.floor(math.log10(abs(value)))) if value else 0.0


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
