# SPDX-License-Identifier: Apache-2.0
"""
What to plan with: servers and GPUs for a demand, the users that a server carries, the requests that its memory holds.

A server is planned at 70 to 85 % of what it sustains at least; with an objective at no more than the heaviest load that
was within it. A user sends the next request as soon as the last one is answered: think time is not known.
"""

from __future__ import annotations

import re

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf, prod

import msgspec

from vllm_watch.analysis.loadtest.load_test import Capacity, Demand, Latency, Objective, Plan, Result, Room, Run
from vllm_watch.analysis.loadtest.offered_load import answered_share
from vllm_watch.analysis.loadtest.run_capacity import UNKNOWN, requests_in_flight
from vllm_watch.daemon.catalog.language import _, sentences
from vllm_watch.daemon.catalog.number_texts import significant
from vllm_watch.daemon.config.texts import quote


PLANNED = (0.70, 0.85)
"""Between which parts of what is sustained at least a server is planned."""

_WITHIN = 0.95
"""An objective holds if at least this share of the requests is within it."""

_TAIL = 0.99
_SHARES = {"median": 0.50, "p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": _TAIL}
"""An objective fails if a percentile is beyond its limit that 95 % need; it holds for sure if P99 is within."""

_DEMAND = re.compile(r"(\d[\d,]{0,15}(?:\.\d{1,6})?)\s*(tokens/s|users?)", re.ASCII)
_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
"""The flags whose product is the number of a server's GPUs; each is 1 where it is not given."""


class NoCapacityError(Exception):
    """The load tests show no capacity; the message is a sentence without its full stop, and says why."""


def parse_demand(text: str) -> Demand:
    """Parse ``5000 tokens/s`` or ``200 users``; raise `ValueError`, for users, if it is neither."""
    written = _DEMAND.fullmatch(text.strip())
    amount = float(written[1].replace(",", "")) if written else 0.0
    if written is None or not amount:
        raise ValueError(f"expected output tokens or users, such as '5000 tokens/s' or '200 users', got {quote(text)}")
    return Demand(tokens_per_second=amount) if written[2] == "tokens/s" else Demand(users=amount)


def shared_capacity(runs: Sequence[Run]) -> Capacity:
    """Return the capacity that all runs with one have; raise `NoCapacityError` without one, or with several."""
    known = {run.capacity for run in runs if run.capacity is not None}
    if not known:
        raise NoCapacityError(
            why_unknown(max(runs, key=_output)).rstrip(".\N{IDEOGRAPHIC FULL STOP}") if runs else _("there is no run")
        )
    if len(known) > 1:
        raise NoCapacityError(_("the runs show several maxima; give the sources of one server, with one configuration"))
    return known.pop()


def why_unknown(run: Run) -> str:
    """Return why a run has no capacity: as its server's history says it, or that there is none."""
    reason = next((note for note in run.notes if note.startswith(_(UNKNOWN))), None)
    if reason is not None or run.phases:
        return reason or _("{unknown}.", unknown=_(UNKNOWN))
    told = _("The maximum is not known: the results of the benchmark do not show it.")
    if run.result is not None and run.result.output_throughput:
        least = significant(run.result.output_throughput)
        told = sentences([told, _("At least {least} output tokens/s were carried.", least=least)])
    return sentences([told, _("Add the server's log or a recording.")])


def run_gpus(run: Run) -> int | None:
    """Return how many GPUs the run's server has by its flags; `None` if these are no numbers, not known, or on CPUs."""
    if not run.config or run.hardware.get("device") == "cpu":
        return None
    try:
        return prod(int(run.config.get(flag, "1")) for flag in _PARALLEL)
    except ValueError:
        return None


def memory_gib(hardware: Mapping[str, str]) -> tuple[float, float] | None:
    """Return what the weights and the KV cache take on each GPU, in GiB, `None` if the log does not tell both."""
    try:
        return float(hardware["model_memory_gib"]), float(hardware["kv_cache_memory_gib"])
    except (KeyError, ValueError):
        return None


def run_objective(run: Run) -> Objective | None:
    """Return what a run had to be answered within, if that is known."""
    results = (*((run.result,) if run.result is not None else ()), *run.views)
    return next((result.goodput.objective for result in results if result.goodput is not None), None)


def make_plan(runs: Sequence[Run], demand: Demand | None) -> Plan | None:
    """Return what to plan with by one or several runs, or why that is not known; without a demand that is `None`."""
    try:
        capacity = shared_capacity(runs)
        measured = _within([run for run in runs if run.capacity == capacity])
    except NoCapacityError as error:
        return None if demand is None else Plan(demand=demand, problem=_("{reason}.", reason=error))
    objective = run_objective(measured[0])
    most = max(_output(run) for run in measured) if objective is not None else inf
    low, high = (min(part * capacity.low, most) for part in PLANNED)
    plan = Plan(demand=demand, low=low, high=high, objective=objective, gpus=run_gpus(measured[0]))
    user = _user(measured, (low + high) / 2)
    if user is not None:
        run, rate = user
        plan = msgspec.structs.replace(
            plan,
            run=run.name if len(runs) > 1 else None,
            user_tokens_per_second=rate,
            users_low=floor(low / rate),
            users_high=floor(high / rate),
            waiting=run.use.waiting,
        )
    return plan if demand is None else _with_servers(plan, demand, low, high)


def _within(runs: Sequence[Run]) -> Sequence[Run]:
    objective = next(filter(None, map(run_objective, runs)), None)
    if objective is None:
        return runs
    kept = [run for run in runs if run.result is not None and _output(run) and is_within(run, run.result, objective)]
    if not kept:
        raise NoCapacityError(
            _("no load is known that was within the objective with 95 % of its requests; test a lighter one")
        )
    return kept


def _output(run: Run) -> float:
    return (None if run.result is None else run.result.output_throughput) or 0.0


def is_within(run: Run, result: Result, objective: Objective) -> bool | None:
    """
    Return whether at least 95 % of the requests of a run were within an objective; `None` if that is not known.

    Latencies are those of the requests with an answer: one that failed is not within the objective.
    """
    answered = answered_share(run, result)
    if answered < _WITHIN:
        return False
    if result.goodput is not None and result.goodput.ratio is not None:
        return result.goodput.ratio >= _WITHIN
    limits = [(_percentiles(getattr(result, name)), most) for name, most in objective.limits.items()]
    if any(value > most and answered * share <= _WITHIN for known, most in limits for share, value in known.items()):
        return False
    # Each limit may leave out other requests.
    least = answered * (1 - len(limits) * (1 - _TAIL))
    are_tails_within = all(_TAIL in known and known[_TAIL] <= most for known, most in limits)
    return True if limits and are_tails_within and least >= _WITHIN else None


def _percentiles(latency: Latency | None) -> dict[float, float]:
    return {share: value for name, share in _SHARES.items() if (value := getattr(latency, name, None)) is not None}


def _user(runs: Sequence[Run], planned: float) -> tuple[Run, float] | None:
    known = [
        (abs(_output(run) - planned), at, _output(run) / in_flight)
        for at, run in enumerate(runs)
        if _output(run) and (in_flight := requests_in_flight(run))
    ]
    if not known:
        return None
    _, at, rate = min(known)
    return runs[at], rate


def _with_servers(plan: Plan, demand: Demand, low: float, high: float) -> Plan:
    tokens = demand.tokens_per_second
    if demand.users is not None and plan.user_tokens_per_second is not None:
        tokens = demand.users * plan.user_tokens_per_second
    if tokens is None:
        return msgspec.structs.replace(
            plan, problem=_("What a user takes is not known: no latency, no running requests.")
        )
    # A sum of products may be above a whole number by nothing but its rounding.
    least, most = (ceil(round(tokens / each, 9)) for each in (high, low))
    return msgspec.structs.replace(plan, servers_low=least, servers_high=most)


def with_room(run: Run) -> Run:
    """Return a run with how many requests its KV cache holds: of the load's mean length, and of the longest."""
    tokens = None if run.memory is None else run.memory.kv_cache_tokens
    if run.memory is None or tokens is None:
        return run
    prompt, answer = run.load.mean_input_tokens, run.load.mean_output_tokens
    lengths = [] if prompt is None or answer is None else [round(prompt + answer)]
    longest = run.config.get("max-model-len", "")
    lengths += [int(longest)] if longest.isascii() and longest.isdecimal() else []
    room = tuple(Room(tokens=each, requests=int(tokens // each)) for each in dict.fromkeys(lengths) if each > 0)
    return msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, room=room))
