# SPDX-License-Identifier: Apache-2.0
"""
Several sources of one test as one run: what the client measured, and what the server did meanwhile.

A benchmark's result has its date in local time without a zone, or none. If the server did nothing like it at that time,
it is looked for by its shape: the same tokens in the same time, at a time that differs by a zone, or at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from vllm_watch.analysis.loadtest.client_texts import slow_client
from vllm_watch.analysis.loadtest.load_test import Objective, Report, Result, Run, overlap, seconds
from vllm_watch.analysis.loadtest.loads import EDGE_SECONDS, LoadSpan, find_loads, find_stretches, load_between
from vllm_watch.analysis.loadtest.run_capacity import UNKNOWN, latency_turn, plateau_capacity
from vllm_watch.analysis.loadtest.runs import MAX_RUNS, server_runs
from vllm_watch.analysis.loadtest.server_history import GENERATED, Growth, ServerHistory
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.metric_titles import LATENCIES
from vllm_watch.daemon.catalog.number_texts import duration, moment


UNCOVERED_SECONDS = 60.0
"""A load that no client's result covers is a run of its own if it is at least this long: others are warm-ups."""

_SLOW_CLIENT_MS = 20.0
_SLOW_CLIENT_RATIO = 1.5
_LENGTHS = 0.1
_PRINTED = 0.011
"""By how much a printed duration or latency differs from the one in JSON, in seconds or milliseconds."""

ZONE_STEP = 900.0
"""Time zones differ by multiples of a quarter of an hour."""

_FARTHEST = 26 * 3600.0
_TOLERANCE = 0.02
_LOG_TOLERANCE = 0.06
"""By how much counts may differ; those of a log are rounded, and cover ten seconds."""

_SHORTEST_IDLE = 3.0
_NAMED = 5
_DURATION_TOLERANCE = 0.1
_DURATION_SECONDS = 15.0

_OTHERS = N_(
    "The server's counts in the client's time differ from the client's: others used the server, too, or one of the "
    "clocks is wrong."
)


class Match(NamedTuple):
    """When a client measured by the server's clock, and what is to be said of how that is known."""

    start: float
    end: float
    remark: str | None = None


class _Matched(NamedTuple):
    client: Run
    history: int
    when: Match


def join(clients: Sequence[Run], histories: Sequence[ServerHistory], objective: Objective | None = None) -> Report:
    """Return the report of clients' runs and servers' histories."""
    runs = without_twins(clients)
    # /metrics knows more than a log: where there are both, the client's view goes with /metrics.
    ordered = sorted(histories, key=lambda history: not history.has_metrics)
    places = [_matched(run, ordered) for run in runs]
    joined: list[Run] = []
    for index, history in enumerate(ordered):
        matched = [place for place in places if place is not None and place.history == index]
        joined = _with_history(joined, history, matched, objective)
    lonely = [_without_server(run, histories) for run, place in zip(runs, places, strict=True) if place is None]
    every = sorted([*joined, *lonely], key=lambda run: (run.start is None, run.start or 0.0))
    turn = latency_turn(_one_configuration(every))
    return Report(runs=_with_plateau(every), latency_turn=turn, left_out=_left_out(every, ordered, clients))


def _left_out(runs: Sequence[Run], histories: Sequence[ServerHistory], clients: Sequence[Run]) -> str | None:
    found, most, missed = 0, 0, list[LoadSpan]()
    for history in histories:
        shown = [run for run in runs if history.source in run.source]
        loads = find_loads(history.points)
        found, most = found + len(loads), max(most, len(shown))
        missed += [load for load in loads if not any(_covers(run, load) for run in shown)]
    if not missed:
        return None
    why = _("few tokens beside the next or the largest")
    if clients:
        why = _("few tokens beside the next or the largest, or few seconds beside a client's")
    if most >= MAX_RUNS:
        why = _("{why}, or because no more than the {count} largest are shown", why=why, count=MAX_RUNS)
    times = [f"{moment(load.start)} ({duration(load.end - load.start)})" for load in missed]
    named = listed(times[:_NAMED])
    if len(times) > _NAMED:
        named = _("{name} and {count} more", name=named, count=len(times) - _NAMED)
    return _(
        "{found} loads found, {missed} left out for {why}: {times} UTC.",
        found=found,
        missed=len(missed),
        why=why,
        times=named,
    )


def _covers(run: Run, load: LoadSpan) -> bool:
    return run.start is not None and run.end is not None and run.start < load.end and load.start < run.end


def _matched(run: Run, histories: Sequence[ServerHistory]) -> _Matched | None:
    places = [
        _Matched(run, index, when)
        for index, history in enumerate(histories)
        if (when := match(run, history)) is not None
    ]
    return min(
        places,
        key=lambda place: (not _is_recorded_with(run, histories[place.history]), place.when.remark is not None),
        default=None,
    )


def _is_recorded_with(run: Run, history: ServerHistory) -> bool:
    return run.source[0].startswith(f"{history.source.partition(': ')[0]}: ")


def _with_history(
    runs: Sequence[Run], history: ServerHistory, matched: Sequence[_Matched], objective: Objective | None
) -> list[Run]:
    """Return the runs with those of one more history, which may be another source of a server that is there already."""
    joined = [
        msgspec.structs.replace(run, source=(*run.source, history.source)) if _is_of_same_server(run, history) else run
        for run in runs
    ]
    ordered = sorted(matched, key=lambda place: place.when.start)
    if ordered:
        views = server_runs(history, [(place.when.start, place.when.end) for place in ordered], objective)
        joined += [_joined(place, view) for place, view in zip(ordered, views, strict=True)]
    covered = [run for run in joined if history.source in run.source]
    others = [run for run in server_runs(history, (), objective) if run is not None]
    if covered:
        others = [run for run in others if seconds(run) >= UNCOVERED_SECONDS]
    return [*joined, *(run for run in others if not any(overlap(run, other) for other in covered))]


def _is_of_same_server(run: Run, history: ServerHistory) -> bool:
    if run.server is not None and history.server is not None and run.server != history.server:
        return False
    when = match(run, history)
    return when is not None and when.remark is None


def _joined(matched: _Matched, server: Run | None) -> Run:
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
        requests=client.requests,
        distributions={**server.distributions, **client.distributions},
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(dict.fromkeys((*client.notes, *server.notes))),
    )


def _slow_client(client: Run, server: Run) -> list[str]:
    seen, had = (run.result.ttft_ms.mean if run.result and run.result.ttft_ms else None for run in (client, server))
    if seen is None or had is None or seen - had < _SLOW_CLIENT_MS or seen < _SLOW_CLIENT_RATIO * had:
        return []
    return [slow_client(seen, had)]


def _without_server(run: Run, histories: Sequence[ServerHistory]) -> Run:
    if not histories:
        return run
    names = listed(history.source for history in histories)
    warning = _("Nothing in {names} is at this run's time, nor has its requests and tokens.", names=names)
    return msgspec.structs.replace(run, warnings=(*run.warnings, warning))


def without_twins(clients: Sequence[Run]) -> list[Run]:
    """Return the runs, those of one test that was written in two ways as one."""
    runs: list[Run] = []
    for run in sorted(clients, key=lambda client: client.start is None):
        twin = next((index for index, other in enumerate(runs) if _is_twin(other, run)), None)
        if twin is None:
            runs.append(run)
        else:
            runs[twin] = _filled(runs[twin], run)
    return runs


def _is_twin(one: Run, other: Run) -> bool:
    """Return whether two runs are of one test: with one date if all counts are equal, with two if all values are."""
    if other.source == one.source or one.result is None or other.result is None:
        return False
    if other.start is not None:
        return one.start == other.start and one.result == other.result
    first, second = (
        (result.successful, result.total_input_tokens, result.total_output_tokens)
        for result in (one.result, other.result)
    )
    difference = (one.result.duration_s or 0.0) - (other.result.duration_s or 0.0)
    return first == second and abs(difference) <= _PRINTED and _have_same_latencies(one.result, other.result)


def _have_same_latencies(one: Result, other: Result) -> bool:
    pairs = [
        (getattr(getattr(one, name), kind, None), getattr(getattr(other, name), kind, None))
        for name in LATENCIES
        for kind in ("mean", "median", "p99")
    ]
    return all(left is None or right is None or abs(left - right) <= _PRINTED for left, right in pairs)


def _filled(run: Run, twin: Run) -> Run:
    values = msgspec.structs.asdict(run.load)
    missing = {name: value for name, value in msgspec.structs.asdict(twin.load).items() if values[name] in (None, {})}
    load = msgspec.structs.replace(run.load, **missing)
    return msgspec.structs.replace(run, load=load, source=(*run.source, *twin.source))


def _with_plateau(runs: Sequence[Run]) -> tuple[Run, ...]:
    capacity = plateau_capacity(_one_configuration(runs))
    if capacity is None:
        return tuple(runs)
    return tuple(
        run
        if run.capacity is not None and run.capacity.basis == "saturated"
        else msgspec.structs.replace(
            run, capacity=capacity, notes=tuple(note for note in run.notes if not note.startswith(_(UNKNOWN)))
        )
        for run in runs
    )


def _one_configuration(runs: Sequence[Run]) -> Sequence[Run]:
    if len({(run.model, run.version, tuple(sorted(run.config.items()))) for run in runs}) != 1:
        return ()
    inputs, outputs = ([run.load.mean_input_tokens for run in runs], [run.load.mean_output_tokens for run in runs])
    return runs if _are_alike(inputs) and _are_alike(outputs) else ()


def _are_alike(lengths: Iterable[float | None]) -> bool:
    values = [length for length in lengths if length is not None]
    return bool(values) and max(values) <= (1 + _LENGTHS) * min(values)


def match(run: Run, history: ServerHistory) -> Match | None:
    """Return the part of a history that a client's run is of, `None` if there is none."""
    result = run.result
    if result is None or not history.points:
        return None
    if run.start is None or run.end is None:
        return _elsewhere(run, result, history)
    here = load_between(history.points, run.start, run.end)
    if here is not None and _agrees(result, here, history) is not False:
        return Match(run.start, run.end)
    elsewhere = _elsewhere(run, result, history)
    if elsewhere is not None:
        return elsewhere
    has_tokens = here is not None and Growth(here.points).counter(GENERATED)
    return Match(run.start, run.end, _OTHERS) if has_tokens else None


def _elsewhere(run: Run, result: Result, history: ServerHistory) -> Match | None:
    """Look for the one load with a run's shape, at a time that differs by a zone, or at any time if it has no date."""
    found = []
    for span in find_stretches(history.points, _SHORTEST_IDLE):
        shift = 0.0 if run.end is None else ZONE_STEP * round((span.end - run.end) / ZONE_STEP)
        is_near = run.end is None or (abs(shift) <= _FARTHEST and abs(span.end - run.end - shift) <= EDGE_SECONDS)
        if is_near and _agrees(result, span, history) and _lasts(result, span):
            found.append((span, shift))
    if len(found) != 1:
        return None
    ((span, shift),) = found
    if run.start is None or run.end is None:
        remark = _("The result has no date: matched to the server's history by the requests and tokens it has.")
        start = span.start if result.duration_s is None else span.end - result.duration_s
        return Match(start, span.end, remark)
    if shift == 0:
        # A log's lines are far apart: what a short run did is in the line after it.
        return Match(min(run.start, span.start), max(run.end, span.end))
    hours = shift / 3600
    remark = _(
        "The client's clock and the server's differ by {hours:+g} h: matched by the requests and tokens they saw.",
        hours=hours,
    )
    return Match(run.start + shift, run.end + shift, remark)


def _lasts(result: Result, span: LoadSpan) -> bool:
    seconds = result.duration_s
    if seconds is None:
        return True
    return abs(span.end - span.start - seconds) <= _DURATION_SECONDS + _DURATION_TOLERANCE * seconds


def _agrees(result: Result, span: LoadSpan, history: ServerHistory) -> bool | None:
    generated, expected = Growth(span.points).counter(GENERATED), result.total_output_tokens
    if generated is None or not expected:
        return None
    tolerance = _TOLERANCE if history.has_metrics else _LOG_TOLERANCE
    return abs(generated - expected) <= tolerance * expected
