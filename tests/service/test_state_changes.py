# SPDX-License-Identifier: Apache-2.0
"""What the daemon's log says of its servers' states."""

from __future__ import annotations

import json

import pytest
import structlog

from tests.parsers.lines import STATS_MESSAGE, record
from tests.support.logs import printed_now

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


SATURATED = record(STATS_MESSAGE) + b"\n"
ENDED = b"INFO:     Finished server process [7]\n"


class Watched:
    """A daemon of one log without threads, and what it logs of the server's states."""

    def __init__(self, folder):
        self.path = folder / "vllm.log"
        self.path.touch()
        self.clock = SystemClock()
        self.config = Config(listen="127.0.0.1:0", servers=(ServerConfig(name="a", log=str(self.path)),))
        self.daemon = Supervisor(self.config, self.clock)

    def tick(self, lines=b""):
        """Append to the log; let the daemon read it, and do what it does each second."""
        with self.path.open("ab") as file:
            file.write(printed_now(lines))
        with structlog.testing.capture_logs() as logged:
            for log in self.daemon.fleet.logs:
                log.poll()
            self.daemon.tick()
        return self.changes(logged)

    def watch(self, *servers):
        """Watch other servers, as after a reload; return what the daemon logs before it has read a line of theirs."""
        with structlog.testing.capture_logs() as logged:
            self.daemon.fleet.replace(Config(listen="127.0.0.1:0", servers=servers))
            self.daemon.tick()
        return self.changes(logged)

    def changes(self, logged):
        """Return the changes of state in a log."""
        changes = [entry for entry in logged if entry["event"] == "engine.state_changed"]
        assert {(entry["server"], entry["engine"], entry["log_level"]) for entry in changes} <= {("a", "0", "info")}
        return [(entry["from"], entry["to"]) for entry in changes]


@pytest.fixture
def watched(tmp_path):
    """A daemon of one server, of which nothing was read yet."""
    watched = Watched(tmp_path)
    yield watched
    watched.daemon.fleet.close()


def test_a_change_of_state_is_logged_once(watched, monkeypatch):
    """Each change of an engine's state is one line at info, with the state before it; what stays the same is none."""
    assert watched.tick() == []
    assert watched.tick(SATURATED) == [("unknown", "saturated")]
    assert watched.tick() == []
    monkeypatch.setattr(watched.clock, "_offset", watched.clock._offset + 3600.0)
    assert watched.tick() == [("saturated", "unknown")]


def test_a_state_that_lasts_a_second_is_logged(watched):
    """States are compared at each tick, not only when the charts take their values."""
    assert watched.tick() == []
    assert watched.tick(SATURATED) == [("unknown", "saturated")]
    assert watched.tick(ENDED) == [("saturated", "down")]


def test_the_snapshot_has_since_when_a_state_lasts(watched, monkeypatch):
    """A state lasts since the change that was seen; the first known one, for at least as long as it was watched."""

    def since():
        (server,) = json.loads(watched.daemon.endpoints.snapshot().body)["servers"]
        (engine,) = server["engines"]
        return engine["state"], engine["state_since"]

    monkeypatch.setattr(watched.clock, "now", lambda: 5000.0)
    monkeypatch.setattr(watched.clock, "wall", lambda moment: moment + 60.0)
    watched.tick()
    watched.tick(SATURATED)
    assert since() == ("saturated", {"at": 5060.0, "is_exact": False})
    monkeypatch.setattr(watched.clock, "now", lambda: 5010.0)
    watched.tick()
    assert since() == ("saturated", {"at": 5060.0, "is_exact": False})
    watched.tick(ENDED)
    assert since() == ("down", {"at": 5070.0, "is_exact": True})
