# SPDX-License-Identifier: Apache-2.0
"""Several sources of one test as one run: what the client measured, and what the server did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.capacity import UNKNOWN, ladder_capacity, latency_turn
from vllm_watch.analysis.loadtest.history import ServerHistory
from vllm_watch.analysis.loadtest.matching import Match, match
from vllm_watch.analysis.loadtest.model import Objective, Report, Run
from vllm_watch.analysis.loadtest.run_times import overlap, seconds
from vllm_watch.analysis.loadtest.runs import server_runs
from vllm_watch.analysis.loadtest.slow_client import slow_client


UNCOVERED_SECONDS = 60.0
"""A load that no client's result covers is a run of its own if it is at least so long: others are warm-ups."""

_SLOW_CLIENT_MS = 20.0
_SLOW_CLIENT_RATIO = 1.5
_LENGTHS = 0.1
_PRINTED_SECONDS = 0.011
"""By how much a printed duration differs from the one in JSON."""


class _Matched(NamedTuple):
    client: Run
    when: Match


_Place = tuple[int | None, Match]
"""Which history a run is of, and when it was by its clock."""

_NOWHERE: _Place = (None, Match(0.0, 0.0))


def join(clients: Sequence[Run], histories: Sequence[ServerHistory], objective: Objective | None = None) -> Report:
    """
    Return the report of all sources.

    Args:
        clients: Runs with the client's view alone.
        histories: Of the servers, from recordings, logs or a Prometheus.
        objective: What requests had to be answered within.
    """
    runs = _without_twins(clients)
    # /metrics knows more than a log: where there are both, the client's view goes with /metrics.
    ordered = sorted(histories, key=lambda each: not each.has_metrics)
    places = [_place(run, ordered) for run in runs]
    joined: list[Run] = []
    for index, history in enumerate(ordered):
        matched = [_Matched(run, place[1]) for run, place in zip(runs, places, strict=True) if place[0] == index]
        joined = _with_history(joined, history, matched, objective)
    waiting = [run for run, place in zip(runs, places, strict=True) if place[0] is None]
    lonely = [_without_server(run, histories) for run in waiting]
    found = sorted([*joined, *lonely], key=lambda run: (run.start is None, run.start or 0.0))
    return Report(runs=_with_ladder(found), latency_turn=latency_turn(_one_configuration(found)))


def _place(run: Run, histories: Sequence[ServerHistory]) -> _Place:
    """Return the history that a run is of: that of its own recording, else one at its time, else one of its shape."""
    found = [(index, when) for index, each in enumerate(histories) if (when := match(run, each)) is not None]
    best = min(
        found,
        key=lambda each: (not _is_recorded_with(run, histories[each[0]]), each[1].remark is not None),
        default=None,
    )
    return _NOWHERE if best is None else best


def _is_recorded_with(run: Run, history: ServerHistory) -> bool:
    """Return whether a result is in the file that a history is of."""
    return run.source[0].startswith(f"{history.source.partition(': ')[0]}: ")


def _with_history(
    runs: Sequence[Run], history: ServerHistory, matched: Sequence[_Matched], objective: Objective | None
) -> list[Run]:
    """Return the runs with those of one more history, which may be another source of a server that is there already."""
    found = [_with_source(run, history) if _is_of_same_server(run, history) else run for run in runs]
    ordered = sorted(matched, key=lambda each: each.when.start)
    if ordered:
        views = server_runs(history, [(each.when.start, each.when.end) for each in ordered], objective)
        found += [_joined(each, view) for each, view in zip(ordered, views, strict=True)]
    known = [run for run in found if history.source in run.source]
    others = [run for run in server_runs(history, (), objective) if run is not None]
    if known:
        others = [run for run in others if seconds(run) >= UNCOVERED_SECONDS]
    return [*found, *(run for run in others if not any(overlap(run, each) for each in known))]


def _is_of_same_server(run: Run, history: ServerHistory) -> bool:
    """Return whether a history has the same tokens at the same time as a run of another source, and no other name."""
    if run.server is not None and history.server is not None and run.server != history.server:
        return False
    found = match(run, history)
    return found is not None and found.remark is None


def _with_source(run: Run, history: ServerHistory) -> Run:
    return msgspec.structs.replace(run, source=(*run.source, history.source))


def _joined(matched: _Matched, server: Run | None) -> Run:
    """Return one run of both views; the result is the client's."""
    client, remark = matched.client, matched.when.remark
    if server is None:
        return client
    warnings = [*client.warnings, *([remark] if remark else []), *_slow_client(client, server), *server.warnings]
    load = msgspec.structs.replace(client.load, offered_request_rate=server.load.offered_request_rate)
    return msgspec.structs.replace(
        server,
        source=(*client.source, *server.source),
        name=client.name,
        start=matched.when.start,
        end=matched.when.end,
        model=server.model or client.model,
        load=load,
        result=client.result,
        views=(*client.views, *server.views),
        distributions={**server.distributions, **client.distributions},
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(dict.fromkeys((*client.notes, *server.notes))),
    )


def _slow_client(client: Run, server: Run) -> list[str]:
    """Return a warning if the client saw the first token much later than the server had it."""
    latencies = [run.result.ttft_ms.mean if run.result and run.result.ttft_ms else None for run in (client, server)]
    seen, had = latencies
    if seen is None or had is None or seen - had < _SLOW_CLIENT_MS or seen < _SLOW_CLIENT_RATIO * had:
        return []
    return [slow_client(seen, had)]


def _without_server(run: Run, histories: Sequence[ServerHistory]) -> Run:
    if not histories:
        return run
    names = ", ".join(history.source for history in histories)
    warning = f"Nothing in {names} is at this run's time, nor has its requests and tokens."
    return msgspec.structs.replace(run, warnings=(*run.warnings, warning))


def _without_twins(clients: Sequence[Run]) -> list[Run]:
    """Return the clients' runs, each once: a test's JSON and what was printed of it are of one run."""
    found: list[Run] = []
    for run in sorted(clients, key=lambda each: each.start is None):
        twin = next((index for index, each in enumerate(found) if _is_twin(each, run)), None)
        if twin is None:
            found.append(run)
        else:
            found[twin] = _filled(found[twin], run)
    return found


def _is_twin(one: Run, other: Run) -> bool:
    """
    Return whether two runs are of one test: all counts are the same, and one of them has no date.

    With two dates they are one only to the last digit: a result, and a recording that holds it.
    """
    if other.source == one.source or one.result is None or other.result is None:
        return False
    if other.start is not None:
        return one.start == other.start and one.result == other.result
    counts = [
        (each.successful, each.total_input_tokens, each.total_output_tokens) for each in (one.result, other.result)
    ]
    seconds = [each.duration_s or 0.0 for each in (one.result, other.result)]
    return counts[0] == counts[1] and abs(seconds[0] - seconds[1]) <= _PRINTED_SECONDS


def _filled(run: Run, twin: Run) -> Run:
    """Return a run with what only its twin knows of the load."""
    known = msgspec.structs.asdict(run.load)
    missing = {name: value for name, value in msgspec.structs.asdict(twin.load).items() if known[name] in (None, {})}
    load = msgspec.structs.replace(run.load, **missing)
    return msgspec.structs.replace(run, load=load, source=(*run.source, *twin.source))


def _with_ladder(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs with the capacity that they show together, where none of them was saturated for long."""
    capacity = ladder_capacity(_one_configuration(runs))
    if capacity is None:
        return tuple(runs)
    return tuple(
        run
        if run.capacity is not None and run.capacity.basis == "saturated"
        else msgspec.structs.replace(
            run, capacity=capacity, notes=tuple(each for each in run.notes if not each.startswith(UNKNOWN))
        )
        for run in runs
    )


def _one_configuration(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs if they are loads of one configuration with requests of one length, else none."""
    if len({(run.model, run.version, tuple(sorted(run.config.items()))) for run in runs}) != 1:
        return ()
    lengths = (
        [run.load.mean_input_tokens for run in runs],
        [run.load.mean_output_tokens for run in runs],
    )
    return runs if all(map(_are_alike, lengths)) else ()


def _are_alike(lengths: Iterable[float | None]) -> bool:
    known = [length for length in lengths if length is not None]
    return bool(known) and max(known) <= (1 + _LENGTHS) * min(known)
