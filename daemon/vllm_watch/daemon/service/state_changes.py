# SPDX-License-Identifier: Apache-2.0
"""The engines' changes of state, for the daemon's log."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog

from vllm_watch.daemon.catalog.states import USUAL, EngineState
from vllm_watch_parsers.scrape import EngineKey


log = structlog.get_logger("vllm_watch.service")


class StateChanges:
    """Logs the engines whose state differs from that before in more than whether there is work."""

    def __init__(self) -> None:
        self._states: dict[str, Mapping[str, EngineState]] = {}
        """By server and engine; at first each is unknown."""

    def log(self, server: str, states: Mapping[EngineKey, EngineState]) -> None:
        """Log what has changed."""
        before, now = self._states.get(server, {}), {key.engine: state for key, state in states.items()}
        for engine, state in now.items():
            old = before.get(engine, "unknown")
            if state != old and not USUAL.issuperset({old, state}):
                log.info("engine.state_changed", server=server, engine=engine, **{"from": old, "to": state})
        self._states[server] = now

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget the servers that are not among these."""
        for server in self._states.keys() - servers:
            del self._states[server]
