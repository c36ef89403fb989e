# SPDX-License-Identifier: Apache-2.0
"""Two sides of a comparison in one view: their loads, their speculative decoding, and the metric to look at first."""

from __future__ import annotations

import math

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

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
from vllm_watch.analysis.loadtest.load_test import Load, Result, Run, ServerUse
from vllm_watch.daemon.catalog.metric_titles import View
from vllm_watch.daemon.statistics.ratio import geometric_mean


_E2EL = "e2el_ms.mean"

LoadKind = Literal["open", "closed", "burst"]
"""open: requests come at a rate. closed: each of N users waits for an answer. burst: all requests come at once."""

_SATURATED_SHARE = 0.5
SERVED = 0.98
"""A server that served at least this share of a given rate kept up with it."""

_OVERLOADED = 0.90
_WAITING_SHARE = 0.02
"""A request waits for the end of a step also where there is room, which is less than this part of its time."""
_ROOM = 5.0
"""
How much room a load at a rate needs besides the mean number of requests, in square roots of that number.

In simulated servers with room for 32, the intervals of TTFT hold the truth at loads that leave this room, and fail at
others: there some runs have a queue and others do not, which the runs without one cannot tell.
"""
_LEAST_ROOM = 128
"""vLLM's lowest default of ``--max-num-seqs`` (``SchedulerConfig.DEFAULT_MAX_NUM_SEQS``)."""

VIEWS: tuple[View, ...] = ("client", "server")
"""The client's view is preferred: it is what users wait for."""

_SAME_CHUNKS = 0.10
_BURST_SHARE = 0.8
"""If P99 of E2EL is so much of a run, its requests came nearly at once."""


def load_kind(load: Load) -> LoadKind | None:
    """Return the kind of a load, `None` if it is not known."""
    if isinstance(load.request_rate, float | int) or load.ramp_up is not None:
        return "open"
    if load.max_concurrency is not None:
        return "closed"
    return "burst" if load.request_rate == "inf" else None


def is_burst(run: Run, result: Result) -> bool:
    """Return whether all requests came at once, so that TTFT and E2EL are those of the queue."""
    kind, users, prompts = load_kind(run.load), run.load.max_concurrency, run.load.num_prompts
    if kind == "burst" or (kind == "closed" and users is not None and prompts is not None and prompts <= users):
        return True
    slowest = None if result.e2el_ms is None else result.e2el_ms.p99
    return bool(slowest and result.duration_s and slowest / 1000 >= _BURST_SHARE * result.duration_s)


def load_name(load: Load) -> str:
    """Return a load in a few words, also one of which nothing is known."""
    return load_text(load) or "an unknown load"


def is_saturated(run: Run, result: Result | None) -> bool | None:
    """Return whether more was offered than the server could serve, `None` if that is not known."""
    if run.capacity is not None and run.capacity.basis == "saturated":
        return True
    working = [phase for phase in run.phases if phase.phase in {"ramp", "steady", "saturated", "stalled"}]
    if working:
        saturated = sum(phase.end - phase.start for phase in working if phase.phase == "saturated")
        return saturated > _SATURATED_SHARE * sum(phase.end - phase.start for phase in working)
    if load_kind(run.load) == "burst":
        return True
    served = served_share(run, result)
    if served is None:
        return None
    return True if served < _OVERLOADED else False if served >= SERVED else None


def served_share(run: Run, result: Result | None) -> float | None:
    """Return how much of a given rate was served, `None` if there is none, or that is not known."""
    rate = run.load.request_rate
    if result is None or result.request_throughput is None or not rate or rate == "inf":
        return None
    return result.request_throughput / rate


def is_near_saturation(run: Run, result: Result | None) -> bool | None:
    """
    Return whether requests queued for a place in the batch, or could have by chance, `None` if that is not known.

    Then the time to the first token is that of the queue. The number of users bounds it: only at a rate it may grow.
    """
    if is_saturated(run, result):
        return True
    use = run.use if run.steady is None or run.steady.use.waiting is None else run.steady.use
    if use.waiting is None or use.running is None or use.waiting + use.running <= 0:
        return None if varies_by_chance(run) else is_saturated(run, result)
    if use.waiting / (use.waiting + use.running) > _WAITING_SHARE:
        return True
    # Each engine has its own queue, and its own chance that it grows.
    running = use.running / _engines(run)
    return varies_by_chance(run) and running + _ROOM * math.sqrt(running) > _room(run, running, use)


def varies_by_chance(run: Run) -> bool:
    """Return whether the number of requests at once is left to chance: they come at a rate, or it is not known how."""
    return load_kind(run.load) not in {"closed", "burst"}


def _room(run: Run, running: float, use: ServerUse) -> float:
    """Return how many requests an engine runs at most: the places of its batch, or how many fit into its KV cache."""
    places = _places(run) or _LEAST_ROOM
    if not running or not use.kv_cache_usage_ratio:
        return places
    return min(places, running / use.kv_cache_usage_ratio)


def _engines(run: Run) -> int:
    places = _places(run)
    return max(round(run.max_running_requests / places), 1) if run.max_running_requests and places else 1


def _places(run: Run) -> int | None:
    given = (run.config.get(flag, "") for flag in ("max-num-seqs", "max-num-active-seqs"))
    return min((int(limit) for limit in given if limit.isdecimal()), default=None)


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
    def is_burst(self) -> bool:
        """Whether all requests of each run came at once."""
        return all(
            is_burst(run, result) for side in self.sides for run, result in zip(side.runs, side.results, strict=True)
        )

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


def speculations(pair: Pair) -> tuple[set[str | None], set[str | None]]:
    """Return how the runs of each side drafted; beside a Prometheus, which has few flags, by those that all have."""
    runs = [run for side in pair.sides for run in side.runs]
    every = [flags for run in runs if (flags := _flags(run))]
    has_few = any(run.server is not None for run in runs)
    shown = set[str]().union(*every).intersection(*(every if has_few else ()))
    a, b = ({_way(run, shown) for run in side.runs} for side in pair.sides)
    return a, b


def tokens_per_chunk(side: Measured) -> float | None:
    """Return how many tokens a streamed chunk has, `None` if that is not known."""
    itl = side.mean_result(lambda result: None if result.itl_ms is None else result.itl_ms.mean)
    tpot = side.mean_result(lambda result: None if result.tpot_ms is None else result.tpot_ms.mean)
    return None if itl is None or not tpot else itl / tpot


def differs_in_chunks(pair: Pair) -> str | None:
    """Return why a chunk of one side is not a chunk of the other, `None` if nothing says so."""
    chunks = [tokens_per_chunk(side) for side in pair.sides]
    if chunks[0] is not None and chunks[1] is not None and relative_difference(chunks[0], chunks[1]) > _SAME_CHUNKS:
        return f"a chunk of the stream has {chunks[0]:.1f} tokens in {pair.a.name} and {chunks[1]:.1f} in {pair.b.name}"
    ways = [each - {None} for each in speculations(pair)]
    if ways[0] and ways[1] and ways[0] != ways[1]:
        return (
            "the sides differ in speculative decoding, so their chunks of the stream hold different numbers of tokens"
        )
    return None


def _flags(run: Run) -> set[str]:
    return {flag for flag in run.config if "speculative" in flag}


def _way(run: Run, shown: set[str]) -> str | None:
    drafting = _flags(run)
    if drafting & shown:
        return ", ".join(f"{flag}={run.config[flag]}" for flag in sorted(drafting & shown))
    if drafting or run.use.drafted_tokens:
        return "on"
    return "off" if run.config else None


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
