# SPDX-License-Identifier: Apache-2.0
"""
Recordings through the real rules, in virtual time, as `vllm-watch backtest` evaluates them.

A recording becomes series, over which promtool evaluates the shipped rules as a Prometheus would that scrapes the
daemon every 5 s.
"""

from __future__ import annotations

import functools

from collections.abc import Collection, Mapping
from pathlib import Path

from tests.alerts.needed import needed
from tests.support.shared import shared
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.backtest.fired import Alert, intervals
from vllm_watch.analysis.backtest.promtool import (
    FIRING,
    NOTHING,
    STALE,
    Answers,
    Evaluation,
    Labels,
    evaluate,
    promtool,
)
from vllm_watch.analysis.backtest.rule_set import Group
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, gridded, of_the_daemon, together
from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


__all__ = ["NOTHING", "STALE", "Alert", "Answers", "of_the_daemon"]

RULES = Path(__file__).parents[2] / "alerts" / "rules"
STEP = 5
"""Seconds between two scrapes."""

EVALUATION = 15
"""Seconds between two evaluations of the rules."""

CHAT = {"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05}
SOURCES = {(True, True): "both", (True, False): "log", (False, True): "metrics"}
"""What is watched: the log, and /metrics."""


def name_of(recording: Path) -> str:
    """Return the name of a recording."""
    return recording.name.removesuffix(".jsonl.xz")


def fired(
    paths: Collection[Path], *, has_slo: bool = False, has_log: bool = True, has_metrics: bool = True
) -> dict[str, list[Alert]]:
    """
    Return the alerts that fire over recordings, in order, by the recording's name.

    All of them are servers of one Prometheus, which evaluates its rules once for all. The alert that always fires is
    left out.
    """
    replays = {
        name_of(path): replayed(path, has_slo=has_slo, has_log=has_log, has_metrics=has_metrics) for path in paths
    }
    _, longest, series = together(SeriesGrid(0, steps, found) for found, steps in replays.values())
    firing = evaluated({**of_the_daemon(longest), **series}, longest, FIRING)
    return {name: list(intervals(_of_server(firing, name, steps))) for name, (_, steps) in replays.items()}


def _of_server(firing: Mapping[int, Mapping[Labels, float]], name: str, steps: int) -> Answers:
    """Return what fires while a recording lasts, of its server or of none."""
    return {
        moment: {labels: value for labels, value in now.items() if dict(labels).get("server", name) == name}
        for moment, now in firing.items()
        if moment < steps * STEP
    }


def alerts_of(series: Mapping[str, list[str]], steps: int) -> list[Alert]:
    """Return the alerts that fire over series, each of which has a value for every step."""
    return list(intervals(evaluated(series, steps, FIRING)))


def evaluated(series: Mapping[str, list[str]], steps: int, query: str) -> Answers:
    """Return what a query gives over series, each of which has a value for every step."""
    return evaluated_together(series, steps, [query])[query]


def evaluated_together(
    series: Mapping[str, list[str]], steps: int, queries: Collection[str], interval: int = EVALUATION
) -> dict[str, Answers]:
    """
    Return what queries give over series, by the query.

    The rules that the queries depend on are evaluated once for all of them, every `interval` seconds.
    """
    evaluation = Evaluation(series, steps, STEP, interval, needed(groups_at_worst(), queries), tuple(queries))
    with promtool() as tool:
        return evaluate(tool, [evaluation])[0]


@functools.cache
def groups_at_worst() -> list[Group]:
    """
    Return the groups of rules in the order in which an alert sees what was recorded an evaluation ago.

    Prometheus evaluates each group at a moment of its own, so that may be; where no order is given promtool takes any.
    """
    files = (RULES / "alerts.yml", RULES / "recording.yml")
    return [group for path in files for group in load_yaml(path.read_text(encoding="utf-8"))["groups"]]


def replayed(path: Path, *, has_slo: bool, has_log: bool, has_metrics: bool) -> tuple[dict[str, list[str]], int]:
    """
    Return the series of a recording's server and the number of steps; each recording is replayed once in a run.

    An objective adds series and changes none.
    """
    series, steps = shared(_replay, path, SOURCES[has_log, has_metrics])
    if has_slo:
        return series, steps
    return {name: values for name, values in series.items() if not name.startswith("vllm_watch_slo_")}, steps


def _replay(path: Path, sources: str) -> tuple[dict[str, list[str]], int]:
    interval = float(STEP) if sources != "log" else None
    settings = ServerSettings(name_of(path), sources != "metrics", interval, slo=CHAT)
    return series_of(Recording(path), settings)


def series_of(recording: Recording, settings: ServerSettings) -> tuple[dict[str, list[str]], int]:
    """Return the series of a recording's server, with a value, nothing or the mark of staleness for every step."""
    grid = gridded(run_recording(recording, ServerState(settings), STEP), STEP)
    assert grid is not None
    return grid.series, grid.steps
