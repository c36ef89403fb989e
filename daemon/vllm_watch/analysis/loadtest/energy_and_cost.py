# SPDX-License-Identifier: Apache-2.0
"""
What the tokens of a load test take in energy, and what they cost.

The energy is by the GPUs' own counters. Only whole GPUs count, and all of a server together: of one that is shared or
divided nobody knows the server's part, and a part of the GPUs is no sum. A counter that was reset, or a time without
readings, voids the energy of the window.

The cost is at the price of the server per hour, in whatever currency that is, for the time in which the load ran: idle
hours are not in it. By each kind of token it is the whole price, since nothing says how a server's time is divided
among prompts and answers: such costs do not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.load_test import Result, Run, Steady
from vllm_watch.analysis.loadtest.server_history import COMPUTED, GENERATED, EnergyReading, Growth, Point
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.state.gpu_report import ServerGpu


ENERGY = "gpu_energy_joules_total"
"""The name of the counter, without the prefix of our series."""

LEAST_TOKENS = 1000
"""Of fewer tokens a quotient says nothing but that they were few; `quotient_tokens` of the rules is the same."""

_COVERED = 0.8
"""The share of a window that the readings must cover; they are taken at moments of their own."""

_MILLION = 1e6
_HOUR = 3600.0


class UsedEnergy(NamedTuple):
    """The mean power of all GPUs over a window in watts, or why it is not known, in a clause."""

    watts: float | None
    problem: str | None = None


def energy_reading(at: float, gpus: Sequence[ServerGpu]) -> EnergyReading:
    """Return what a server's GPUs have used until they were read."""
    joules = {gpu.gpu: None if gpu.reading is None else gpu.reading.values.get((ENERGY,)) for gpu in gpus}
    divided = {gpu.gpu for gpu in gpus if gpu.reading is not None and gpu.reading.mig == "1"}
    return EnergyReading(at, joules, frozenset(divided | {gpu.gpu for gpu in gpus if gpu.is_shared}))


def used_energy(points: Sequence[Point]) -> UsedEnergy | None:
    """Return the mean power between the first and the last point; `None` if the server has no GPUs that are known."""
    readings = [point.energy for point in points if point.energy is not None and point.energy.joules]
    if not readings:
        return None
    problem = _problem(readings, points[-1].at - points[0].at)
    if problem is not None:
        return UsedEnergy(None, problem)
    first, last = readings[0], readings[-1]
    return UsedEnergy((_total(last) - _total(first)) / (last.at - first.at))


def with_energy(result: Result, points: Sequence[Point], seconds: float) -> Result:
    """Return a result of some points, over a time, with the energy of its tokens, as far as that is known."""
    used = used_energy(points)
    if used is None or used.watts is None:
        return result
    values = energy_values(used.watts, points)
    return msgspec.structs.replace(result, **values, energy_joules=used.watts * seconds)


def energy_values(watts: float, points: Sequence[Point]) -> dict[str, float]:
    """Return mean power, and energy per token if there are enough of them, by the names that they have in a result."""
    growth = Growth(points)
    joules = watts * growth.seconds
    generated, prompts = growth.counter(GENERATED), growth.counter(COMPUTED)
    values = {"mean_watts": watts}
    if generated is not None and generated >= LEAST_TOKENS:
        values["joules_per_output_token"] = joules / generated
    if generated is not None and prompts is not None and generated + prompts >= LEAST_TOKENS and joules > 0:
        values["tokens_per_joule"] = (generated + prompts) / joules
    return values


def energy_problem(points: Sequence[Point], steady: Steady | None) -> str | None:
    """Return why the energy of a load is not known, in a clause; `None` if it is, or if there are no GPUs."""
    if not any(point.energy is not None and point.energy.joules for point in points):
        return None
    if steady is None or steady.result is None:
        return _("there is no steady window with a mean, in which alone it is measured")
    if steady.result.mean_watts is not None:
        return None
    used = used_energy([point for point in points if steady.start <= point.at <= steady.end])
    return None if used is None else used.problem


def _problem(readings: Sequence[EnergyReading], seconds: float) -> str | None:
    gpus = {gpu for reading in readings for gpu in reading.joules}
    unsplit = sorted(gpu for reading in readings for gpu in reading.unsplit)
    if unsplit:
        return _("{gpu} is divided or used by another server, too", gpu=unsplit[0])
    seconds_read = readings[-1].at - readings[0].at
    is_whole = all(set(reading.joules) == gpus and None not in reading.joules.values() for reading in readings)
    if not is_whole or seconds_read < _COVERED * seconds or seconds_read <= 0:
        return _("not all its GPUs were read all the time, or count their energy")
    if any((new.joules[gpu] or 0.0) < (old.joules[gpu] or 0.0) for old, new in pairwise(readings) for gpu in gpus):
        return _("a counter was reset: a GPU's driver was loaded again")
    return None


def _total(reading: EnergyReading) -> float:
    return sum(joules or 0.0 for joules in reading.joules.values())


def priced(run: Run, cost_per_hour: float | None = None) -> Run:
    """Return a run with what its tokens cost: at a price of its server, else at the one that its source knows."""
    price = run.cost_per_hour if cost_per_hour is None else cost_per_hour
    if price is None:
        return run
    return msgspec.structs.replace(
        run,
        cost_per_hour=price,
        result=None if run.result is None else _priced_result(run.result, price),
        views=tuple(_priced_result(view, price) for view in run.views),
        steady=None if run.steady is None else _priced_steady(run.steady, price),
    )


def _priced_result(result: Result, price: float) -> Result:
    prompted, generated = result.total_input_tokens, result.total_output_tokens
    cost = None if result.duration_s is None else price * result.duration_s / _HOUR
    return msgspec.structs.replace(
        result,
        cost_per_million_input_tokens=_per_million(cost, prompted),
        cost_per_million_output_tokens=_per_million(cost, generated),
        cost_per_million_tokens=_per_million(
            cost, None if prompted is None or generated is None else prompted + generated
        ),
    )


def _priced_steady(steady: Steady, price: float) -> Steady:
    result = None if steady.result is None else _priced_result(steady.result, price)
    return msgspec.structs.replace(steady, result=result)


def _per_million(cost: float | None, tokens: int | None) -> float | None:
    return None if cost is None or tokens is None or tokens < LEAST_TOKENS else cost / tokens * _MILLION
