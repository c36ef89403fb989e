# SPDX-License-Identifier: Apache-2.0
"""Two sides of a comparison in one view: their values, what their chunks hold, and the metric to look at first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparison_model import (
    BY_NAME,
    ENERGIES,
    GOODPUT,
    OUTPUT,
    TPOT,
    Metric,
    Side,
    metric_value,
)
from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Load, Result, Run
from vllm_watch.analysis.loadtest.offered_load import is_burst, is_saturated, load_kind
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.statistics.ratio import geometric_mean


VIEWS: tuple[View, ...] = ("client", "server")
"""The client's view is preferred: it is what users wait for."""

_E2EL = "e2el_ms.mean"
_SAME_CHUNKS = 0.10


class Measured(NamedTuple):
    """One side: its runs, and of each the result in the view that both sides have."""

    name: str
    runs: tuple[Run, ...]
    results: tuple[Result, ...]

    @property
    def measured_runs(self) -> tuple[tuple[Run, Result], ...]:
        """Each run with its result."""
        return tuple(zip(self.runs, self.results, strict=True))

    @property
    def is_saturated(self) -> bool | None:
        """Whether its runs saturated the server; `None` if that is unknown or they disagree."""
        states = {is_saturated(run, result) for run, result in self.measured_runs}
        return states.pop() if len(states) == 1 else None

    def mean(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the mean over the runs of which something is known."""
        return mean_known([value(run) for run in self.runs])


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
    def is_burst(self) -> bool:
        """Whether all requests of each run came at once."""
        return all(is_burst(run, result) for side in self.sides for run, result in side.measured_runs)

    @property
    def is_single(self) -> bool:
        """Whether there is one run on each side."""
        return len(self.a.runs) == len(self.b.runs) == 1


def load_name(load: Load) -> str:
    """Return a load in a few words, also one of which nothing is known."""
    return load_text(load) or _("an unknown load")


def result_in(run: Run, view: View) -> Result | None:
    """Return what a run's result is in a view, with the energy of its steady window, which has no view."""
    results = [result for result in (run.result, *run.views) if result is not None and result.view == view]
    if not results or run.steady is None or run.steady.result is None:
        return results[0] if results else None
    return replace(results[0], **{name: getattr(run.steady.result, name) for name in ENERGIES})


def common_view(sides: Sequence[Side]) -> View | None:
    """Return the view that all runs of all sides have, `None` if there is none."""
    runs = [run for side in sides for run in side.runs]
    return next((view for view in VIEWS if runs and all(result_in(run, view) is not None for run in runs)), None)


def measured(side: Side, view: View) -> Measured:
    """Return a side in a view; its runs without a result in it are left out."""
    pairs = [(run, result) for run in side.runs if (result := result_in(run, view)) is not None]
    return Measured(side.name, tuple(run for run, _ in pairs), tuple(result for _, result in pairs))


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


def differs_in_chunks(pair: Pair) -> str | None:
    """Return why a chunk of one side is not a chunk of the other, `None` if nothing says so."""
    a, b = (_tokens_per_chunk(side) for side in pair.sides)
    if a is None or b is None or relative_difference(a, b) <= _SAME_CHUNKS:
        return None
    return _(
        "a chunk of the stream has {a:.1f} tokens in {name_a} and {b:.1f} in {name_b}",
        a=a,
        name_a=pair.a.name,
        b=b,
        name_b=pair.b.name,
    )


def headline_metric(pair: Pair) -> str:
    """Return the metric to look at first, by what was sent: at a rate that is served, throughput only repeats it."""
    goodput = BY_NAME[GOODPUT]
    if all(metric_value(goodput, result) is not None for side in pair.sides for result in side.results):
        return GOODPUT
    kinds = {load_kind(run.load) for side in pair.sides for run in side.runs}
    is_served = not any(side.is_saturated for side in pair.sides)  # Else what is served of the rate says most.
    first = (
        (TPOT, _E2EL, OUTPUT)
        if kinds == {"open"} and is_served
        else (OUTPUT, "total_token_throughput", "request_throughput", _E2EL)
    )
    return next((name for name in first if all(metric_values(BY_NAME[name], side) for side in pair.sides)), first[0])


def _tokens_per_chunk(side: Measured) -> float | None:
    itl, tpot = (mean_known(metric_values(BY_NAME[name], side)) for name in ("itl_ms.mean", TPOT))
    return None if itl is None or not tpot else itl / tpot
