# SPDX-License-Identifier: Apache-2.0
"""A server's history as runs of a load test: one for each of its loads, or for each window of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import msgspec

from vllm_watch.analysis.loadtest.energy_and_cost import energy_problem
from vllm_watch.analysis.loadtest.load_test import (
    Distribution,
    Event,
    Load,
    Objective,
    Result,
    Run,
    ServerUse,
    Steady,
)
from vllm_watch.analysis.loadtest.loads import MOST_STEP, LoadSpan, find_loads, load_between
from vllm_watch.analysis.loadtest.phases import find_phases, find_steady, timeline
from vllm_watch.analysis.loadtest.run_capacity import server_capacity, unless_exceeded
from vllm_watch.analysis.loadtest.server_history import (
    GENERATED,
    Growth,
    Point,
    ServerHistory,
    rounded,
    typical_step,
)
from vllm_watch.analysis.loadtest.server_result import (
    HISTOGRAMS,
    MILLISECONDS,
    distribution,
    server_result,
    server_use,
)
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LatencyName


MAX_RUNS = 50
LEAST_SHARE = 0.05
"""A load with fewer of the tokens of the largest one is a warm-up or a test of the connection, and no run."""

WARM_UP_PAUSE = 60.0
WARM_UP_SHARE = 0.25
"""Nor is one that ends less than a minute before one with four times its length and tokens: that one's warm-up."""

_PARALLEL = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "prefill-context-parallel-size",
)
"""
The flags whose product is the number of a server's GPUs (vllm/config/parallel.py); each is 1 where it is not given.
"""

_SURE_STEPS = 3
"""A load of this many steps shows when its work began and ended: its first and last interval have others beside."""


def server_runs(
    history: ServerHistory, windows: Sequence[tuple[float, float]] = (), objective: Objective | None = None
) -> list[Run | None]:
    """Return the server's view of each window in which a client measured, `None` without points; else of each load."""
    loads = find_loads(history.points)
    spans = [load_between(history.points, *window) for window in windows] if windows else [*_largest(loads)]
    with_load = [span for span in spans if span is not None]
    numbered = [f"{history.name} ({number})" for number in range(1, len(with_load) + 1)]
    names = iter([history.name] if len(with_load) == 1 else numbered)
    runs = [None if span is None else _run(history, span, next(names), objective) for span in spans]
    return _with_capacity(history, runs, loads)


def _largest(loads: Sequence[LoadSpan]) -> list[LoadSpan]:
    tokens = [_tokens(load) for load in loads]
    order = sorted(range(len(loads)), key=lambda place: -tokens[place])[:MAX_RUNS]
    return [
        loads[place]
        for place in sorted(order)
        if tokens[place] >= LEAST_SHARE * max(tokens) and not _is_warm_up(loads, tokens, place)
    ]


def _is_warm_up(loads: Sequence[LoadSpan], tokens: Sequence[float], place: int) -> bool:
    if place + 1 == len(loads):
        return False
    load, test = loads[place], loads[place + 1]
    is_short = load.end - load.start < WARM_UP_SHARE * (test.end - test.start)
    return test.start - load.end < WARM_UP_PAUSE and is_short and tokens[place] < WARM_UP_SHARE * tokens[place + 1]


def _tokens(load: LoadSpan) -> float:
    seconds = load.end - load.start
    use = server_use(load.points, seconds)
    return ((use.generation_tokens_per_second or 0.0) + (use.prompt_tokens_per_second or 0.0)) * seconds


def _around(history: ServerHistory, span: LoadSpan) -> tuple[float, float]:
    """Return the part of the history that is told with a load: one interval more on each side."""
    step = min(typical_step(span.points), MOST_STEP)
    return max(span.start - step, history.points[0].at), min(span.end + step, history.points[-1].at)


def _run(history: ServerHistory, span: LoadSpan, name: str, objective: Objective | None) -> Run:
    part = _around(history, span)
    seconds = span.end - span.start
    result = server_result(span.points, seconds, objective)
    if _lost_requests(span):
        result = msgspec.structs.replace(result, failed=None, goodput=None)
    steady = find_steady(span, objective)
    use = server_use(span.points, seconds)
    around = [point for point in history.points if part[0] <= point.at <= part[1]]
    return Run(
        source=(history.source,),
        name=name,
        start=span.start,
        end=span.end,
        may_be_shorter=_may_be_shorter(span),
        server=history.server,
        model=history.model,
        version=history.version,
        hardware=history.hardware,
        gpus=history_gpus(history),
        cost_per_hour=history.cost_per_hour,
        energy_problem=energy_problem(span.points, steady),
        config=history.config,
        max_running_requests=rounded(history.facts.get("max_running_requests")),
        load=_load(result, steady, use),
        result=result,
        views=(result,),
        phases=find_phases(history.points, [span], steady, part),
        steady=steady,
        memory=history.memory,
        use=use,
        events=_events(history, part),
        timeline=timeline(around),
        distributions=_distributions(span.points),
        warnings=(*history.warnings, *_warnings(history, span)),
    )


def history_gpus(history: ServerHistory) -> int | None:
    """Return how many GPUs a server has by its flags, none on CPUs; `None` if one may be there that is not known."""
    if history.hardware.get("device") == "cpu":
        return 0
    sizes = [history.config.get(flag, "1" if history.are_all_flags_known else "") for flag in _PARALLEL]
    return prod(map(int, sizes)) if all(size.isascii() and size.isdecimal() for size in sizes) else None


def _load(result: Result, steady: Steady | None, use: ServerUse) -> Load:
    offered = (steady.use if steady is not None else use).offered_requests_per_second
    return Load(
        offered_request_rate=offered,
        mean_input_tokens=_per_request(result.total_input_tokens, result.successful),
        mean_output_tokens=_per_request(result.total_output_tokens, result.successful),
    )


def _per_request(total: int | None, requests: int | None) -> float | None:
    return total / requests if total is not None and requests else None


def _events(history: ServerHistory, part: tuple[float, float]) -> tuple[Event, ...]:
    return tuple(sorted((each for each in history.events if part[0] <= each.at <= part[1]), key=lambda each: each.at))


def _distributions(points: Sequence[Point]) -> Mapping[LatencyName, Distribution]:
    growth = Growth(points)
    spread = {name: distribution(growth.histogram(HISTOGRAMS[name]), MILLISECONDS) for name in LATENCIES}
    return {name: counts for name, counts in spread.items() if counts is not None}


def _warnings(history: ServerHistory, span: LoadSpan) -> list[str]:
    warnings = []
    step = typical_step(span.points)
    if not history.has_metrics and span.points[0] is history.points[0] and span.points[0].counters.get(GENERATED):
        warnings.append(
            _("The log begins during the load: its first statistics line has no line before it, and is not counted.")
        )
    if span.points[-1].process != span.points[0].process:
        again = N_("The server was started again during the load: what it counted just before that is not known.")
        warnings.append(_(again))
    lost = _lost_requests(span)
    if lost:
        warnings.append(_("The server went down under load: at least {count:.0f} requests have no answer.", count=lost))
    seconds = span.end - span.start
    if step > 0 and seconds < 10 * step:
        few = N_("The load has few points: {seconds:.0f} s, with statistics lines every {step:.0f} s.")
        if history.has_metrics:
            few = N_("The load has few points: {seconds:.0f} s, with scrapes every {step:.0f} s.")
        warnings.append(_(few, seconds=seconds, step=step))
        if _may_be_shorter(span):
            warnings.append(_("Its work may have taken less time, at higher rates."))
    return warnings


def _may_be_shorter(span: LoadSpan) -> bool:
    """Return whether a load is too short for its first and last interval to show when its work began and ended."""
    step = typical_step(span.points)
    return step == 0 or span.end - span.start < _SURE_STEPS * step


def _lost_requests(span: LoadSpan) -> float:
    """Return how many requests were under way when the server was seen last before it went down, 0 if it did not."""
    if span.points[-1].state != "down":
        return 0.0
    seen = [point for point in span.points[:-1] if point.is_fresh][-1:]
    return sum(point.gauges.get(name, 0.0) for point in seen for name in ("requests_running", "requests_waiting"))


def _with_capacity(history: ServerHistory, runs: Sequence[Run | None], loads: Sequence[LoadSpan]) -> list[Run | None]:
    phases = find_phases(history.points, loads, None)
    estimate = server_capacity(history.points, phases, history.facts)
    most = max((run.result.output_throughput or 0.0 for run in runs if run and run.result), default=0.0)
    estimate = unless_exceeded(estimate, most)
    if estimate.capacity is None:
        return [run and msgspec.structs.replace(run, notes=(*run.notes, estimate.reason)) for run in runs]
    return [run and msgspec.structs.replace(run, capacity=estimate.capacity) for run in runs]
