# SPDX-License-Identifier: Apache-2.0
"""What the daemon's log says of its servers' states."""

from __future__ import annotations

import structlog

from tests.parsers.lines import STATS_MESSAGE, record

from vllm_watch.config.model import ServerConfig
from vllm_watch.service.monitor import ServerMonitor
from vllm_watch.support.clock import SystemClock


def test_a_change_of_state_is_logged_once(tmp_path, monkeypatch):
    """Each change of an engine's state is one line at info, with the state before it; what stays the same is none."""
    path = tmp_path / "vllm.log"
    path.touch()
    server = ServerMonitor(ServerConfig(name="a", log=str(path)), SystemClock())

    with structlog.testing.capture_logs() as entries:
        server.log.poll()
        server.record_history()
        with path.open("ab") as log:
            log.write(record(STATS_MESSAGE) + b"\n")
        server.log.poll()
        server.record_history()
        server.record_history()
        monkeypatch.setattr(server._clock, "_offset", server._clock._offset + 3600.0)
        server.record_history()
    server.close()

    changes = [entry for entry in entries if entry["event"] == "engine.state_changed"]
    assert [("unknown", "saturated"), ("saturated", "unknown")] == [(entry["from"], entry["to"]) for entry in changes]
    assert {("a", "0", "info")} == {(entry["server"], entry["engine"], entry["log_level"]) for entry in changes}
