# SPDX-License-Identifier: Apache-2.0
"""
Stories through the daemon's own code and the shipped rules, in virtual time: what is shown and what fires, and when.

All stories of one step are servers of one Prometheus, whose rules promtool evaluates once for all of them.
"""

from __future__ import annotations

import time
import zlib

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from tests.alerts.needed import needed
from tests.alerts.replay import groups_at_worst
from tests.incidents.story import Gpu, Story
from tests.incidents.traffic import Moment, moments
from tests.incidents.vllm_body import STARTED, body
from tests.support.gpus import GIB, WHOLE, gpu, lost, unread, used, uuid

from vllm_watch.analysis.backtest.fired import Alert, intervals
from vllm_watch.analysis.backtest.promtool import FIRING, NOTHING, Evaluation, evaluate, promtool
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, gridded, of_the_daemon, together
from vllm_watch.analysis.replay.recording import LogWritten, MetricsRead
from vllm_watch.analysis.replay.replay import ReplayedServer, apply_counts, recorded_scrape
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.reading.log_reader import TailCounts
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.scrape_source import scrape_result
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch_parsers.flags import CommandFacts
from vllm_watch_parsers.kernel_messages import BY_CODE
from vllm_watch_parsers.scrape import MetricsReading, Unreadable, read_metrics


CHAT = {"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05}
EVALUATION = 30
"""Seconds between two evaluations of the rules: as many as Prometheus' operator has."""

PRINTED_SECONDS = 10
"""How often vLLM prints its statistics."""

_STATISTICS = (
    "(APIServer pid=7) INFO {clock} [loggers.py:271] Engine 000: Avg prompt throughput: {computed:.1f} tokens/s, "
    "Avg generation throughput: {generated:.1f} tokens/s, Running: {running:.0f} reqs, Waiting: {waiting:.0f} reqs, "
    "GPU KV cache usage: {kv:.1%}, Prefix cache hit rate: 20.0%\n"
)


class Played(NamedTuple):
    """
    What became of a story; times are in seconds after its incident began.

    Args:
        states: The states that were shown, each with the first moment.
        fired: The alerts that fired, with their times.
    """

    states: Mapping[EngineState, float]
    fired: tuple[Alert, ...]


class _Server(NamedTuple):
    """
    What a daemon shows of a server.

    Args:
        snapshots: One after each scrape.
        xids: The errors of its GPU in the kernel's log, with their times.
        daemon: The address of its daemon, if that is not the others'.
        steps: How many scrapes there are, also those after the last snapshot.
    """

    snapshots: list[ServerSnapshot]
    xids: list[tuple[str, str, float]]
    daemon: str | None
    steps: int


class _Shown(NamedTuple):
    servers: list[_Server]
    states: Mapping[EngineState, float]


def play(stories: Mapping[str, Story]) -> dict[str, Played]:
    """Return what becomes of stories, by their names."""
    played = {}
    by_step = sorted(stories, key=lambda name: stories[name].every)
    for step, names in groupby(by_step, key=lambda name: stories[name].every):
        shown = {name: _shown(name, stories[name]) for name in names}
        alerts = _alerts([_grid(server, step) for one in shown.values() for server in one.servers], step)
        for name, one in shown.items():
            mine = (alert for alert in alerts if name in {_story_of(alert), alert.labels.get("instance")})
            played[name] = Played(one.states, tuple(_while_it_lasts(mine, stories[name])))
    return played


def _story_of(alert: Alert) -> str:
    return alert.labels.get("server", "").partition("~")[0]


def _grid(server: _Server, step: float) -> SeriesGrid:
    grid = gridded(server.snapshots, step)
    assert grid is not None
    series = {**grid.series, **_xids(server, step)}
    if server.daemon is not None:
        up = [*["1"] * grid.steps, *["0"] * (server.steps - grid.steps)]
        series |= {"up": up, "vllm_watch_build_info": ["1"] * grid.steps}
        labels = f'job="vllm-watch",instance="{server.daemon}"'
        series = {_with(labels, name): values for name, values in series.items()}
    return SeriesGrid(grid.started, server.steps, series)


def _with(labels: str, series: str) -> str:
    name, _, others = series.partition("{")
    return f"{name}{{{labels},{others}" if others else f"{name}{{{labels}}}"


def _xids(server: _Server, step: float) -> dict[str, list[str]]:
    """Return what the kernel has reported of GPUs, by the time of the rules' evaluation."""
    series = {}
    for name, xid, at in server.xids:
        labels = f'gpu="{uuid(_number(name))}",pci="",xid="{xid}",class="{BY_CODE[xid].group}"'
        before = int(at / step)
        values = [*[NOTHING] * before, *[f"{at:g}"] * (len(server.snapshots) - before)]
        series[f"vllm_watch_gpu_xid_last_timestamp_seconds{{{labels}}}"] = values
    return series


def _alerts(grids: list[SeriesGrid], step: float) -> list[Alert]:
    whole = together(grids)
    series = {**of_the_daemon(whole.steps), **whole.series}
    groups = needed(groups_at_worst(), [FIRING])
    interval = max(EVALUATION, int(step))
    with promtool() as tool:
        answers = evaluate(tool, [Evaluation(series, whole.steps, step, interval, groups, (FIRING,))])[0]
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
    """Return what the daemon shows of the servers of a story, and since when each state of the first was shown."""
    servers = [_server(name, name, story, story.of_second if story.second == "engine" else None)]
    if story.second == "server":
        servers.append(_server(f"{name}~2", name, story.of_second))
    states: dict[EngineState, float] = {}
    for snapshot in servers[0].snapshots:
        since = snapshot.at - STARTED - story.before
        if since >= 0:
            for engine in snapshot.engines:
                states.setdefault(engine.state, since)
    return _Shown(servers, states)


def _server(name: str, model: str, story: Story, of_second: Story | None = None) -> _Server:
    settings = ServerSettings(
        name,
        has_log=story.prints_statistics or any(phase.log for phase in story.then),
        metrics_interval=story.every,
        slo=CHAT if story.slo else {},
        probe_every=60 if _is_probed(story) else None,
        command=CommandFacts(flags=dict(story.flags)),
    )
    state = ServerState(settings)
    replayed = ReplayedServer(state, STARTED)
    is_dead = any(phase.scrape == "dead" for phase in story.then)
    found = _Server([], [], name if is_dead else None, sum(1 for _ in moments(story)))
    for engines in zip(moments(story), *([moments(of_second)] if of_second else []), strict=True):
        moment = engines[0]
        for text in _printed(story, moment):
            replayed.apply(LogWritten(moment.at, text.encode()))
        if moment.phase.log_files_lost:
            apply_counts(state, TailCounts(files_lost=moment.phase.log_files_lost))
        _scrape(state, story.release, model, engines)
        _apply_probe(state, moment)
        if moment.gpu is not None:
            state.gpu.apply(_gpu_use(name, moment.gpu, moment), story.every)
        if moment.phase.gpu is not None and moment.phase.gpu.xid is not None and moment.is_first_of_phase:
            found.xids.append((name, moment.phase.gpu.xid, moment.at))
        if moment.phase.scrape not in {"unwatched", "dead"}:
            found.snapshots.append(state.snapshot(STARTED + moment.at))
    return found


def _is_probed(story: Story) -> bool:
    return any(phase.probe is not None for phase in story.then) or story.probe is not None


def _scrape(state: ServerState, release: str, model: str, engines: Sequence[Moment]) -> None:
    at, status, seconds = STARTED + engines[0].at, engines[0].phase.scrape, engines[0].gauges["scrape_seconds"]
    if status == "ok":
        state.apply_scrape(scrape_result(at, seconds, _reading(body(release, model, *engines))))
    elif status in {"refused", "timeout"}:
        state.apply_scrape(recorded_scrape(MetricsRead(engines[0].at, b"", status), at))


@lru_cache(maxsize=4)
def _reading(text: bytes) -> MetricsReading | Unreadable:
    """Return what a body reports; an engine that stands still has the same one again and again."""
    return read_metrics(text)


def _printed(story: Story, moment: Moment) -> Iterator[str]:
    clock = time.strftime("%m-%d %H:%M:%S", time.localtime(STARTED + moment.at))
    if moment.is_first_of_phase:
        yield from (f"{line.replace('{clock}', clock)}\n" for line in moment.phase.log)
    said = {**moment.gauges, **moment.phase.logged}
    if story.prints_statistics and moment.at % PRINTED_SECONDS < story.every and said["generated"]:
        yield _STATISTICS.format(clock=clock, **said)


def _apply_probe(state: ServerState, moment: Moment) -> None:
    """A probe ends once a minute."""
    probe = moment.probe
    if probe is None or probe == "none" or moment.at % 60 >= 5:
        return
    at = STARTED + moment.at
    state.start_probe(at)
    state.apply_probe(ProbeResult(at, "timeout") if isinstance(probe, str) else ProbeResult(at, "ok", probe))


def _gpu_use(name: str, gpus: Gpu, moment: Moment) -> GpuUse:
    number = _number(name)
    well = [used(gpu(number + other), {}) for other in range(1, gpus.count)]
    return GpuUse(STARTED + moment.at, "ok", (_first_gpu(number, gpus, moment.gpu_values), *well))


def _first_gpu(number: int, gpus: Gpu, values: Mapping[str, float]) -> ServerGpu:
    if gpus.state == "lost":
        return lost(number)
    if gpus.state == "missing":
        return unread(number)
    shown = {**WHOLE, ("gpu_busy_ratio",): gpus.busy, ("gpu_power_watts",): gpus.watts}
    shown |= {tuple(name.split()): value for name, value in values.items()}
    return used(gpu(number, values=shown), {}, other=gpus.others * GIB)


def _number(name: str) -> int:
    """Return the number of a server's first GPU: each has its own."""
    return zlib.crc32(name.encode()) & 0xFFFF00
