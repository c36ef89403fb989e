# SPDX-License-Identifier: Apache-2.0
"""
Stories through the daemon's own code and the shipped rules, in virtual time: what is shown and what fires, and when.

All stories of one step are servers of one Prometheus, whose rules promtool evaluates once for all of them.
"""

from __future__ import annotations

import time

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from tests.alerts.needed import needed
from tests.alerts.replay import EVALUATION, groups_at_worst
from tests.incidents.story import Gpu, Story
from tests.incidents.traffic import Moment, moments
from tests.incidents.vllm_body import STARTED, body
from tests.support.gpus import WHOLE, gpu, lost, used

from vllm_watch.analysis.backtest.fired import Alert, intervals
from vllm_watch.analysis.backtest.promtool import FIRING, Evaluation, evaluate, promtool
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, gridded, of_the_daemon, together
from vllm_watch.analysis.replay.recording import LogWritten, MetricsRead
from vllm_watch.analysis.replay.replay import ReplayedServer
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch_parsers.flags import CommandFacts


CHAT = {"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05}
PRINTED_SECONDS = 10
"""How often vLLM prints its statistics."""

_STATISTICS = (
    "(APIServer pid=7) INFO {clock} [loggers.py:271] Engine 000: Avg prompt throughput: {computed:.1f} tokens/s, "
    "Avg generation throughput: {generated:.1f} tokens/s, Running: {running:.0f} reqs, Waiting: {waiting:.0f} reqs, "
    "GPU KV cache usage: {kv:.1%}, Prefix cache hit rate: 20.0%\n"
)
_SCRAPE_STATUS = {"refused": "refused", "timeout": "timeout"}


class Played(NamedTuple):
    """
    What became of a story; times are in seconds after its incident began.

    Args:
        states: The states that were shown, each with the first moment.
        fired: The alerts that fired, with their times.
    """

    states: Mapping[EngineState, float]
    fired: tuple[Alert, ...]


class _Shown(NamedTuple):
    snapshots: list[ServerSnapshot]
    states: Mapping[EngineState, float]


def play(stories: Mapping[str, Story]) -> dict[str, Played]:
    """Return what becomes of stories, by their names."""
    played = {}
    by_step = sorted(stories, key=lambda name: stories[name].every)
    for step, names in groupby(by_step, key=lambda name: stories[name].every):
        shown = {name: _shown(name, stories[name]) for name in names}
        grids = [gridded(one.snapshots, step) for one in shown.values()]
        whole = together(grid for grid in grids if grid is not None)
        alerts = _alerts(whole, step)
        for name, one in shown.items():
            mine = (alert for alert in alerts if alert.labels.get("server") == name)
            played[name] = Played(one.states, tuple(_while_it_lasts(mine, stories[name])))
    return played


def _alerts(grid: SeriesGrid, step: float) -> list[Alert]:
    series = {**of_the_daemon(grid.steps), **grid.series}
    groups = needed(groups_at_worst(), [FIRING])
    with promtool() as tool:
        answers = evaluate(tool, [Evaluation(series, grid.steps, step, EVALUATION, groups, (FIRING,))])[0]
    return list(intervals(answers[FIRING]))


def _while_it_lasts(alerts: Iterable[Alert], story: Story) -> Iterator[Alert]:
    """Yield what fires before a story ends, in seconds after its incident began: others may be longer."""
    seconds = story.seconds
    for alert in alerts:
        start = alert.start - story.before
        end = None if alert.end is None else alert.end - story.before
        if start < seconds:
            yield alert._replace(start=start, end=end if end is not None and end < seconds else None)


def _shown(name: str, story: Story) -> _Shown:
    """Return the snapshots of a story, one after each scrape, and since when each state was shown."""
    snapshots = list(snapshots_of(name, story))
    states: dict[EngineState, float] = {}
    for snapshot in snapshots:
        since = snapshot.at - STARTED - story.before
        if since >= 0:
            for engine in snapshot.engines:
                states.setdefault(engine.state, since)
    return _Shown(snapshots, states)


def snapshots_of(name: str, story: Story) -> Iterator[ServerSnapshot]:
    """Yield what the daemon shows after each scrape."""
    settings = ServerSettings(
        name,
        has_log=story.prints_statistics or any(phase.log for phase in story.then),
        metrics_interval=story.every,
        slo=CHAT if story.slo else {},
        probe_every=60 if _is_probed(story) else None,
        command=CommandFacts(flags=dict(story.flags)),
    )
    state = ServerState(settings)
    server = ReplayedServer(state, STARTED)
    for moment in moments(story):
        for text in _printed(story, moment):
            server.apply(LogWritten(moment.at, text.encode()))
        if (scraped := _scraped(name, story, moment)) is not None:
            server.apply(scraped)
        _apply_probe(state, moment)
        if moment.phase.gpu is not None:
            state.gpu.apply(_gpus(name, moment.phase.gpu, moment.at), story.every)
        yield state.snapshot(STARTED + moment.at)


def _is_probed(story: Story) -> bool:
    return any(phase.probe is not None for phase in story.then) or story.probe is not None


def _scraped(name: str, story: Story, moment: Moment) -> MetricsRead | None:
    status = moment.phase.scrape
    if status == "none":
        return None
    if status != "ok":
        return MetricsRead(moment.at, b"", _SCRAPE_STATUS[status])
    return MetricsRead(moment.at, body(story.release, name, moment), "ok", moment.gauges["scrape_seconds"])


def _printed(story: Story, moment: Moment) -> Iterator[str]:
    clock = time.strftime("%m-%d %H:%M:%S", time.localtime(STARTED + moment.at))
    if moment.is_first_of_phase:
        yield from (f"{line.replace('{clock}', clock)}\n" for line in moment.phase.log)
    gauges = moment.gauges
    if story.prints_statistics and moment.at % PRINTED_SECONDS < story.every and gauges["generated"]:
        yield _STATISTICS.format(clock=clock, **gauges)


def _apply_probe(state: ServerState, moment: Moment) -> None:
    """A probe ends once a minute."""
    probe = moment.phase.probe
    if probe is None or probe == "none" or moment.at % 60 >= 5:
        return
    at = STARTED + moment.at
    state.start_probe(at)
    state.apply_probe(ProbeResult(at, "timeout") if isinstance(probe, str) else ProbeResult(at, "ok", probe))


def _gpus(name: str, of_phase: Gpu, at: float) -> GpuUse:
    number = int.from_bytes(name.encode()[-3:], "big")  # Each story has a GPU of its own.
    if of_phase.state == "lost":
        return GpuUse(STARTED + at, "ok", (lost(number),))
    values = {**WHOLE, ("gpu_busy_ratio",): of_phase.busy, ("gpu_power_watts",): of_phase.watts}
    return GpuUse(STARTED + at, "ok", (used(gpu(number, values=values), {}),))
