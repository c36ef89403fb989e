# SPDX-License-Identifier: Apache-2.0
"""
What to plan with: servers and GPUs for a demand, the users that a server carries, the requests that its memory holds.

A server is planned at 70 to 85 % of what it sustains at least; with an objective at no more than the heaviest load that
was within it. A user sends the next request as soon as the last one is answered: think time is not known. What a user
takes is seen where nobody waits, at no more than the planned load: of overload the queue would make users of nothing.
"""

from __future__ import annotations

import re

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf

import msgspec

from vllm_watch.analysis.loadtest.load_test import Capacity, Demand, Latency, Objective, Plan, Result, Room, Run
from vllm_watch.analysis.loadtest.offered_load import answered_share, is_burst
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
_NO_QUEUE = 0.05
"""With so few waiting requests beside the running ones there is no queue."""


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
            why_unknown(runs[0]).rstrip(".\N{IDEOGRAPHIC FULL STOP}") if runs else _("there is no run")
        )
    if len(known) > 1:
        raise NoCapacityError(_("the runs show several maxima; give the sources of one server, with one configuration"))
    return known.pop()


def why_unknown(run: Run) -> str:
    """Return why a run has no capacity: as its server's history says it, or that there is none."""
    reason = next((note for note in run.notes if note.startswith(_(UNKNOWN))), None)
    if reason is not None or run.phases:
        return reason or _("{unknown}.", unknown=_(UNKNOWN))
    told = _("The maximum is not known: one result of a benchmark does not show it.")
    if run.result is not None and run.result.output_throughput:
        least = significant(run.result.output_throughput)
        told = sentences([told, _("At least {least} output tokens/s were carried.", least=least)])
    return sentences([told, _("Add the server's log or a recording.")])


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
        shown = next(run for run in runs if run.capacity == capacity)
        objective, measured = _within([run for run in runs if _configuration(run) == _configuration(shown)])
    except NoCapacityError as error:
        return None if demand is None else Plan(demand=demand, problem=_("{reason}.", reason=error))
    most = max(map(_output, measured)) if objective is not None else inf
    low, high = (min(part * capacity.low, most) for part in PLANNED)
    plan = Plan(demand=demand, low=low, high=high, objective=objective, gpus=shown.gpus)
    user = _user(measured, high)
    if user is not None:
        run, rate = user
        # One user is carried by any server: alone it is no overload.
        users = [max(floor(round(each / rate, 9)), 1) for each in (low, high)]
        plan = msgspec.structs.replace(
            plan,
            run=run.name if len(runs) > 1 else None,
            user_tokens_per_second=rate,
            users_low=users[0],
            users_high=users[1],
        )
    return plan if demand is None else _with_servers(plan, demand, low, high)


def _configuration(run: Run) -> tuple[object, ...]:
    return run.model, run.version, run.config


def _within(runs: Sequence[Run]) -> tuple[Objective | None, Sequence[Run]]:
    """Return the objective of the runs, and those within it; all without one."""
    objectives = [objective for run in runs if (objective := run_objective(run)) is not None]
    if not objectives:
        return None, runs
    objective = objectives[0]
    if any(other.limits != objective.limits for other in objectives):
        raise NoCapacityError(_("the objectives of the runs differ; give one with --objective"))
    kept = [run for run in runs if run.result is not None and _output(run) and is_within(run, run.result, objective)]
    if not kept:
        raise NoCapacityError(
            _("no load is known that was within the objective with 95 % of its requests; test a lighter one")
        )
    return objective, kept


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
    goodput = result.goodput
    if goodput is not None and goodput.ratio is not None and goodput.objective.limits == objective.limits:
        return goodput.ratio >= _WITHIN
    limits = [(_percentiles(getattr(result, name)), most) for name, most in objective.limits.items()]
    if any(value > most and answered * share <= _WITHIN for known, most in limits for share, value in known.items()):
        return False
    # Each limit may leave out other requests.
    least = answered * (1 - len(limits) * (1 - _TAIL))
    are_tails_within = all(_TAIL in known and known[_TAIL] <= most for known, most in limits)
    return True if limits and are_tails_within and least >= _WITHIN else None


def _percentiles(latency: Latency | None) -> dict[float, float]:
    return {share: value for name, share in _SHARES.items() if (value := getattr(latency, name, None)) is not None}


def _user(runs: Sequence[Run], most: float) -> tuple[Run, float] | None:
    """Return the heaviest load of at most so many tokens per second in which nobody waited, and what a user had."""
    known = [
        (_output(run), -at, _output(run) / in_flight)
        for at, run in enumerate(runs)
        if 0 < _output(run) <= most and not _has_queue(run) and (in_flight := requests_in_flight(run))
    ]
    if not known:
        return None
    _, at, rate = max(known)
    return runs[-at], rate


def _has_queue(run: Run) -> bool:
    """Return whether requests waited; where the server's queue is not known, whether all came at once."""
    if run.use.waiting is not None:
        return run.use.waiting > _NO_QUEUE * (run.use.running or 0.0)
    return run.result is not None and is_burst(run, run.result)


def _with_servers(plan: Plan, demand: Demand, low: float, high: float) -> Plan:
    needed, (least, most) = demand.tokens_per_second, (low, high)
    if demand.users is not None:
        if plan.users_low is None or plan.users_high is None:
            problem = _(
                "What a user takes is not known: no load without a queue and with at most {high} output tokens/s has "
                "its latency or running requests; test one with fewer requests at once.",
                high=significant(high),
            )
            return msgspec.structs.replace(plan, problem=problem)
        needed, (least, most) = demand.users, (plan.users_low, plan.users_high)
    # A quotient may be above a whole number by nothing but its rounding.
    servers = [ceil(round((needed or 0.0) / each, 9)) for each in (most, least)]
    return msgspec.structs.replace(plan, servers_low=servers[0], servers_high=servers[1])


def with_room(run: Run) -> Run:
    """Return a run with how many requests its KV cache holds in whole blocks: of mean length, and of the longest."""
    tokens = None if run.memory is None else run.memory.kv_cache_tokens
    if run.memory is None or tokens is None:
        return run
    prompt, answer = run.load.mean_input_tokens, run.load.mean_output_tokens
    lengths = [] if prompt is None or answer is None else [round(prompt + answer)]
    lengths += [_whole(run, "max-model-len")]
    block = max(_whole(run, "block-size"), 1)
    room = tuple(
        Room(tokens=each, requests=int(tokens // (ceil(each / block) * block)))
        for each in dict.fromkeys(lengths)
        if each > 0
    )
    return msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, room=room))


def _whole(run: Run, flag: str) -> int:
    value = run.config.get(flag, "")
    return int(value) if value.isascii() and value.isdecimal() else 0
