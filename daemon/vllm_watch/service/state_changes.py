# SPDX-License-Identifier: Apache-2.0
"""The engines' changes of state, for the daemon's log."""

from __future__ import annotations

import structlog

from vllm_watch.catalog.states import EngineState
from vllm_watch.state.snapshot import ServerSnapshot


log = structlog.get_logger("vllm_watch.service")


class StateChanges:
    """Logs one server's engines whose state differs from that in the snapshot before; at first each is unknown."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._states: dict[str, EngineState] = {}

    def log(self, snapshot: ServerSnapshot) -> None:
        """Log what has changed."""
        before, self._states = self._states, {engine.key.engine: engine.state for engine in snapshot.engines}
        for engine, state in self._states.items():
            old = before.get(engine, "unknown")
            if state != old:
                log.info("engine.state_changed", server=self._server, engine=engine, **{"from": old, "to": state})
