# SPDX-License-Identifier: Apache-2.0
"""What `demo` replays looks like a real server, however often it starts again."""

from __future__ import annotations

import io

import pytest

from tests.support.clocks import HandClock
from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import with_start_moved
from vllm_watch.cli.commands.demo import Player
from vllm_watch.daemon.state.scrape_source import scrape_result
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import read_metrics


REPLAYS = 3


class Watched:
    """Stands for the replayed server, and takes each of its scrapes into a state at once."""

    def __init__(self, clock):
        self.clock = clock
        self.state = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
        self.reasons = set()
        self.starts = set()

    def answer(self, body):
        """Take in a scrape."""
        self.state.apply_scrape(scrape_result(self.clock.now(), 0.01, read_metrics(body)))
        snapshot = self.state.snapshot(self.clock.now())
        self.reasons |= {source.reason for source in snapshot.sources}
        self.starts.add(round(snapshot.start_time.value) if snapshot.start_time else None)

    def refuse(self):
        """Answer nothing."""


class Replays:
    """A recording that ends the replay when it was replayed often enough."""

    def __init__(self, name):
        self._recording = recording(name)
        self.started = self._recording.started
        self.left = REPLAYS
        self.is_over = None

    def events(self, server):
        """Yield what happened."""
        yield from self._recording.events(server)
        self.left -= 1
        if not self.left:
            self.is_over.set()


@pytest.mark.slow
def test_each_replay_is_a_start_of_its_own():
    """A recording that is replayed again is a server that was started again, not two that answer in turn."""
    clock = HandClock(1_800_000_000.0)
    watched = Watched(clock)
    player = Player(Replays("day"), io.BytesIO(), watched, clock)
    player._recording.is_over = player._stop

    player._run()

    assert watched.reasons == {"ok"}
    assert 2 * REPLAYS == len(watched.starts)  # The recorded server crashes and starts again.
    assert min(watched.starts) >= 1_800_000_000 - 10


def test_a_body_keeps_all_but_its_start():
    """Only the process's start is moved; a body without one is left as it is."""
    body = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.79522746871e+09\nvllm:x 1\n"

    assert body.replace(b"1.79522746871e+09", b"1795227568.71") == with_start_moved(body, 100.0)
    assert b"vllm:x 1\n" == with_start_moved(b"vllm:x 1\n", 100.0)
