# SPDX-License-Identifier: Apache-2.0
"""
What the GPUs of a server used while it worked, by their own counters of energy.

Only whole GPUs count, and all of a server together: of one that is shared or divided nobody knows the server's part,
and a part of the GPUs is no sum. A counter that was reset, or a time without readings, voids the energy of the window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.cost import LEAST_TOKENS
from vllm_watch.analysis.loadtest.growth import Growth
from vllm_watch.analysis.loadtest.history import EnergyReading, Point
from vllm_watch.analysis.loadtest.model import Result, Steady
from vllm_watch.analysis.loadtest.usage import COMPUTED, GENERATED
from vllm_watch.daemon.state.gpu_report import ServerGpu


ENERGY = "gpu_energy_joules_total"
"""The name of the counter, without the prefix of our series."""

_COVERED = 0.8
"""So much of a window the readings must cover; they are taken at moments of their own."""


class UsedEnergy(NamedTuple):
    """The mean power of all GPUs over a window in watts, or why it is not known, in a clause."""

    watts: float | None
    problem: str | None = None


def energy_reading(at: float, gpus: Sequence[ServerGpu]) -> EnergyReading:
    """Return what a server's GPUs have used until they were read."""
    joules = {each.gpu: None if each.reading is None else each.reading.values.get((ENERGY,)) for each in gpus}
    divided = {each.gpu for each in gpus if each.reading is not None and each.reading.mig == "1"}
    return EnergyReading(at, joules, frozenset(divided | {each.gpu for each in gpus if each.is_shared}))


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


def mean_powers(points: Sequence[Point], edges: Sequence[float]) -> list[float]:
    """
    Return the mean power of each part of a window, in watts; nothing if that of the whole window is not known.

    Parts may be shorter than the time between two readings, in which the power is taken to be constant.

    Args:
        points: Those of the window, in order of time.
        edges: When the parts begin, and when the last one ends.
    """
    used = used_energy(points)
    if used is None or used.watts is None:
        return []
    readings = [point.energy for point in points if point.energy is not None]
    known = sorted({(reading.at, _total(reading)) for reading in readings})
    joules = [_joules_at(at, known) for at in edges]
    return [
        (new - old) / (end - start) for (start, end), (old, new) in zip(pairwise(edges), pairwise(joules), strict=True)
    ]


def with_energy(result: Result, points: Sequence[Point], seconds: float) -> Result:
    """
    Return a result with the energy of its tokens, as far as that is known.

    Args:
        result: What was counted between the first and the last point.
        points: In order of time.
        seconds: The time of the result.
    """
    used = used_energy(points)
    if used is None or used.watts is None:
        return result
    values = energy_values(used.watts, points, LEAST_TOKENS)
    return msgspec.structs.replace(result, **values, energy_joules=used.watts * seconds)


def energy_values(watts: float, points: Sequence[Point], least_tokens: float = 1.0) -> dict[str, float]:
    """
    Return mean power, and energy per token as far as it is known, by the names that they have in a result.

    Args:
        watts: The mean power between the first and the last point.
        points: In order of time.
        least_tokens: Of fewer tokens there is no quotient.
    """
    growth = Growth(points)
    joules = watts * growth.seconds
    generated, prompts = growth.counter(GENERATED), growth.counter(COMPUTED)
    found = {"mean_watts": watts}
    if generated is not None and generated >= least_tokens:
        found["joules_per_output_token"] = joules / generated
    if generated is not None and prompts is not None and generated + prompts >= least_tokens and joules > 0:
        found["tokens_per_joule"] = (generated + prompts) / joules
    return found


def energy_problem(points: Sequence[Point], steady: Steady | None) -> str | None:
    """
    Return why the energy of a load is not known, in a clause; `None` if it is, or if there are no GPUs.

    Args:
        points: Those of the load.
        steady: Its steady window, in which alone energy is measured.
    """
    if not any(point.energy is not None and point.energy.joules for point in points):
        return None
    if steady is None:
        return "there is no steady window, in which alone it is measured"
    if steady.result is None:
        return "the steady window has no mean"
    if steady.result.mean_watts is not None:
        return None
    used = used_energy([point for point in points if steady.start <= point.at <= steady.end])
    return None if used is None else used.problem


def _problem(readings: Sequence[EnergyReading], seconds: float) -> str | None:
    gpus = {gpu for reading in readings for gpu in reading.joules}
    unsplit = sorted(gpu for reading in readings for gpu in reading.unsplit)
    if unsplit:
        return f"{unsplit[0]} is divided or used by another server, too"
    if any(set(reading.joules) != gpus for reading in readings):
        return "the server changed its GPUs"
    unread = sorted(gpu for reading in readings for gpu, joules in reading.joules.items() if joules is None)
    if unread:
        return f"{unread[0]} was not read all the time, or does not count its energy"
    reset = sorted(gpu for old, new in pairwise(readings) for gpu in gpus if _of(new, gpu) < _of(old, gpu))
    if reset:
        return f"the counter of {reset[0]} was reset: its driver was loaded again"
    if readings[-1].at - readings[0].at < _COVERED * seconds or readings[-1].at <= readings[0].at:
        return "the GPUs were not read all the time"
    return None


def _joules_at(at: float, known: Sequence[tuple[float, float]]) -> float:
    """Return what was used until a moment, on the line through the two readings around it or next to it."""
    place = min(max(bisect_left(known, (at, 0.0)), 1), len(known) - 1)
    (start, first), (end, last) = known[place - 1], known[place]
    return first + (last - first) * (at - start) / (end - start)


def _of(reading: EnergyReading, gpu: str) -> float:
    return reading.joules[gpu] or 0.0


def _total(reading: EnergyReading) -> float:
    return sum(joules or 0.0 for joules in reading.joules.values())
