# SPDX-License-Identifier: Apache-2.0
"""One configuration at ever higher loads: where its throughput stops growing, and how far an objective holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.comparison.comparability import check_lengths, check_model, side_settings
from vllm_watch.analysis.comparison.comparison_model import BY_NAME, OUTPUT, Side, Sweep
from vllm_watch.analysis.comparison.pair import Measured, Pair, common_view, load_name, measured, metric_mean
from vllm_watch.analysis.comparison.sound_runs import check_sides
from vllm_watch.analysis.loadtest.load_test import Load, Objective
from vllm_watch.analysis.loadtest.planning import is_within
from vllm_watch.daemon.catalog.language import _, sentences
from vllm_watch.daemon.catalog.number_texts import percent, significant


FEWEST_LOADS = 3

_PLATEAU = 0.95
"""Throughput has stopped growing at the first load with this share of the highest."""
_UNSTEADY = 0.10
"""If a higher load has so much less throughput before that, runs vary too much to say where it stops growing."""


class _Point(NamedTuple):
    load: str
    throughput: float
    is_within: bool | None


def in_order_of_load(sides: Sequence[Side]) -> tuple[Side, ...] | None:
    """Return the sides from the lowest load to the highest, if the load is all that differs; else `None`."""
    loads = [{load_order(run.load) for run in side.runs} for side in sides]
    orders = [next(iter(of_side)) for of_side in loads if len(of_side) == 1]
    are_alike = len({tuple(sorted(side_settings(side.runs).items())) for side in sides}) == 1
    if len(sides) < FEWEST_LOADS or len(set(orders)) < len(sides) or not are_alike or not _is_one_kind(orders):
        return None
    if not all(_asks_alike(sides[0], side) for side in sides[1:]):
        return None
    return tuple(sorted(sides, key=lambda side: load_order(side.runs[0].load)))


def load_order(load: Load) -> tuple[float, float]:
    """Return what loads are ordered by: their rate, then how many requests are sent at once."""
    rate = float("inf") if load.request_rate is None else float(load.request_rate)
    return rate, float("inf") if load.max_concurrency is None else load.max_concurrency


def find_sweeps(sides: Sequence[Side], objective: Objective | None = None) -> tuple[Sweep, ...]:
    """Return the sweep that the sides are together, or those that each of them is."""
    ordered = in_order_of_load(sides)
    if ordered is not None:
        return tuple(_sweep("", ordered, objective))
    return tuple(sweep for side in sides for sweep in _sweep(side.name, _by_load(side), objective))


def _is_one_kind(orders: Sequence[tuple[float, float]]) -> bool:
    """Return whether only the rate differs, or only how many requests are sent at once."""
    return any(len({order[at] for order in orders}) == 1 for at in (0, 1))


def _asks_alike(a: Side, b: Side) -> bool:
    """Return whether nothing is known to differ in the model, or too much in the lengths of prompts."""
    pair = Pair(Measured(a.name, a.runs, ()), Measured(b.name, b.runs, ()), "client")
    return not any(finding.prevents for check in (check_model, check_lengths) for finding in check(pair))


def _by_load(side: Side) -> tuple[Side, ...]:
    runs: dict[tuple[float, float], list[int]] = {}
    for at, run in enumerate(side.runs):
        runs.setdefault(load_order(run.load), []).append(at)
    if len(runs) < FEWEST_LOADS or not _is_one_kind(list(runs)):
        return ()
    loads = [Side(name=side.name, runs=tuple(side.runs[at] for at in runs[order])) for order in sorted(runs)]
    return tuple(loads) if all(_asks_alike(loads[0], load) for load in loads[1:]) else ()


def _sweep(name: str, sides: Sequence[Side], objective: Objective | None) -> Iterator[Sweep]:
    view = common_view(sides)
    if not sides or view is None:
        return
    seen = [measured(side, view) for side in sides]
    limits = objective or _objective_of(seen)
    points = [
        _Point(load_name(side.runs[0].load), throughput, _all_within(side, limits))
        for side in seen
        if (throughput := _throughput(side)) is not None
    ]
    if len(points) < FEWEST_LOADS:
        return
    most = max(points, key=lambda point: point.throughput)
    knee = next(point for point in points if point.throughput >= _PLATEAU * most.throughput)
    is_growing = knee is points[-1]
    held = {} if limits is None else _held(points)
    fall = _fall(points[: points.index(knee) + 1])
    growth = _growth(knee, most, is_growing=is_growing) if fall is None else _unsteady(*fall, most)
    if all(len(side.runs) == 1 for side in seen):
        growth = sentences([growth, _("There is one run of each load.")])
    said = growth if limits is None else sentences([growth, _objective_text(held, points)])
    yield Sweep(
        name=name,
        loads=tuple(point.load for point in points),
        output_throughput=tuple(point.throughput for point in points),
        stops_growing_at=None if is_growing or fall is not None else knee.load,
        last_within_objective=held.get("last"),
        first_beyond_objective=held.get("first"),
        sentence=_("{name}: {text}", name=name, text=said) if name else said,
        warnings=tuple(finding.text for finding in check_sides(seen)),
    )


def _throughput(side: Measured) -> float | None:
    """Return the output of a load: none where all its requests failed, whether the client wrote so or not."""
    is_dead = all(result.successful == 0 for result in side.results)
    return 0.0 if is_dead else metric_mean(BY_NAME[OUTPUT], side)


def _objective_of(sides: Sequence[Measured]) -> Objective | None:
    goodputs = (result.goodput for side in sides for result in side.results)
    return next((goodput.objective for goodput in goodputs if goodput is not None), None)


def _all_within(side: Measured, objective: Objective | None) -> bool | None:
    if objective is None:
        return None
    states = {is_within(run, result, objective) for run, result in side.measured_runs}
    return states.pop() if len(states) == 1 else False if False in states else None


def _held(points: Sequence[_Point]) -> dict[str, str]:
    """Return the first load that fails the objective, and the last below it that holds it, as far as they are known."""
    first = next((at for at, point in enumerate(points) if point.is_within is False), len(points))
    holding = [point.load for point in points[:first] if point.is_within]
    last = {"last": holding[-1]} if holding else {}
    return last if first == len(points) else {**last, "first": points[first].load}


def _growth(knee: _Point, most: _Point, *, is_growing: bool) -> str:
    """Return where output stops to grow; what a server can do is at least the highest that was seen."""
    first, highest = (_("{value} tokens/s", value=significant(point.throughput)) for point in (knee, most))
    if is_growing:
        return _("Output still grows at the highest load, {load}: at least {first}.", load=knee.load, first=first)
    if knee is most:
        return _("Output stops growing at {load}: at least {first}.", load=knee.load, first=first)
    return _(
        "Output stops growing at {load} with {first}: at least {highest}, at {most}.",
        load=knee.load,
        first=first,
        highest=highest,
        most=most.load,
    )


def _fall(points: Sequence[_Point]) -> tuple[_Point, _Point] | None:
    """Return the two neighbours between which throughput falls most, if it does by more than runs usually vary."""
    falls = [pair for pair in pairwise(points) if pair[1].throughput < (1 - _UNSTEADY) * pair[0].throughput]
    return min(falls, key=lambda pair: pair[1].throughput / pair[0].throughput, default=None)


def _unsteady(before: _Point, after: _Point, most: _Point) -> str:
    return _(
        "Where output stops growing cannot be said: it falls by {percent} % from {before} to {after}, and then grows "
        "again; at least {highest}, at {most}.",
        percent=percent(1 - after.throughput / before.throughput),
        before=before.load,
        after=after.load,
        highest=_("{value} tokens/s", value=significant(most.throughput)),
        most=most.load,
    )


def _objective_text(held: Mapping[str, str], points: Sequence[_Point]) -> str:
    last, first = held.get("last"), held.get("first")
    if first is None and last is None:
        return _("Whether the objective holds is not known: write the requests with --save-detailed.")
    if first is None:
        if last == points[-1].load:
            return _("The objective holds up to {last}, the highest load.", last=last)
        return _("The objective holds up to {last}.", last=last)
    if last is None:
        return _("The objective fails from {first} on; no load is known that holds it.", first=first)
    return _(
        "The last load that holds the objective is {last}; the first that fails it is {first}.", last=last, first=first
    )
