# SPDX-License-Identifier: Apache-2.0
"""Two sides of a comparison, seen through one view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from vllm_watch.analysis.comparison.load_kinds import is_saturated
from vllm_watch.analysis.comparison.metrics import ENERGIES, Metric, metric_value
from vllm_watch.analysis.comparison.model import Side
from vllm_watch.analysis.loadtest.load_test import Result, Run
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.statistics.ratio import geometric_mean


VIEWS: tuple[View, ...] = ("client", "server")
"""The client's view is preferred: it is what users wait for."""


class Measured(NamedTuple):
    """One side: its runs, and of each the result in the view that both sides have."""

    name: str
    runs: tuple[Run, ...]
    results: tuple[Result, ...]

    @property
    def is_saturated(self) -> bool | None:
        """Whether its runs saturated the server; `None` if that is unknown or they disagree."""
        found = {is_saturated(run, result) for run, result in zip(self.runs, self.results, strict=True)}
        return found.pop() if len(found) == 1 else None

    def mean(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the mean over the runs of which something is known."""
        return mean_known([value(run) for run in self.runs])

    def mean_result(self, value: Callable[[Result], float | None]) -> float | None:
        """Return the mean over the results of which something is known."""
        return mean_known([value(result) for result in self.results])


class Pair(NamedTuple):
    """The baseline, the candidate, and whose view both are seen through."""

    a: Measured
    b: Measured
    view: View

    @property
    def sides(self) -> tuple[Measured, Measured]:
        """Both, the baseline first."""
        return self.a, self.b

    @property
    def is_single(self) -> bool:
        """Whether there is one run on each side."""
        return len(self.a.runs) == len(self.b.runs) == 1


def result_in(run: Run, view: View) -> Result | None:
    """Return what a run's result is in a view, with the energy of its steady window, which has no view."""
    found = [result for result in (run.result, *run.views) if result is not None and result.view == view]
    if not found or run.steady is None or run.steady.result is None:
        return found[0] if found else None
    return replace(found[0], **{name: getattr(run.steady.result, name) for name in ENERGIES})


def common_view(sides: Sequence[Side]) -> View | None:
    """Return the view that all runs of all sides have, `None` if there is none."""
    runs = [run for side in sides for run in side.runs]
    return next((view for view in VIEWS if runs and all(result_in(run, view) is not None for run in runs)), None)


def measured(side: Side, view: View) -> Measured:
    """Return a side in a view; its runs without a result in it are left out."""
    known = [(run, result) for run in side.runs if (result := result_in(run, view)) is not None]
    return Measured(side.name, tuple(run for run, _ in known), tuple(result for _, result in known))


def metric_values(metric: Metric, side: Measured) -> list[float]:
    """Return a metric's value in each run that has it."""
    return [value for result in side.results if (value := metric_value(metric, result)) is not None]


def metric_mean(metric: Metric, side: Measured) -> float | None:
    """Return a metric's geometric mean over the runs; the arithmetic one where a value is 0."""
    values = metric_values(metric, side)
    return geometric_mean(values) or mean_known(values)


def mean_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known, `None` of none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def relative_difference(a: float, b: float) -> float:
    """Return how far apart two values are, relative to the larger one."""
    larger = max(abs(a), abs(b))
    return abs(a - b) / larger if larger else 0.0
