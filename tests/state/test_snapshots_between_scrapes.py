# SPDX-License-Identifier: Apache-2.0
"""Snapshots say what the scrapes show, whoever took others before."""

from __future__ import annotations

from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import MetricsRead
from vllm_watch.daemon.state.scrape_source import scrape_result
from vllm_watch.daemon.state.server import ServerSettings, ServerState
from vllm_watch_parsers.scrape import read_metrics


def watched(bodies):
    """Return the state of a server after some bodies."""
    state = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
    for number, body in enumerate(bodies):
        state.apply_scrape(scrape_result(1000.0 + number * 5, 0.01, read_metrics(body)))
    return state


BODIES = [event.body for event in recording("day").events() if isinstance(event, MetricsRead)][40:52]


def values(snapshot):
    """Return a snapshot without its changes of state and their times: a state begins when somebody first looks."""
    return snapshot._replace(events=(), engines=tuple(engine._replace(state_since=None) for engine in snapshot.engines))


def test_every_scrape_shows_its_own_values():
    """Values do not depend on snapshots that were taken before, between other scrapes or at other times."""
    asked = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
    for number, body in enumerate(BODIES):
        at = 1000.0 + number * 5
        asked.apply_scrape(scrape_result(at, 0.01, read_metrics(body)))
        for ahead in (0.0, 3600.0, 0.0):
            alone = watched(BODIES[: number + 1]).snapshot(at + 1, ahead)
            assert values(alone) == values(asked.snapshot(at + 1, ahead))
