# SPDX-License-Identifier: Apache-2.0
"""The engines' changes of state, for the daemon's log, and since when each is in its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog

from vllm_watch.catalog.states import EngineState
from vllm_watch.state.snapshot import StateSince
from vllm_watch.support.clock import Clock
from vllm_watch_parsers.scrape import EngineKey


log = structlog.get_logger("vllm_watch.service")

_UNKNOWN = StateSince("unknown", 0.0, is_exact=False)


class StateChanges:
    """
    Logs the engines whose state differs from that before; at first each is unknown.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, Mapping[str, StateSince]] = {}
        """By server and engine."""

    def of(self, server: str) -> Mapping[str, StateSince]:
        """Return since when each engine of a server is in its state, by `Clock.now`; any thread may call it."""
        return self._states.get(server, {})

    def log(self, server: str, states: Mapping[EngineKey, EngineState]) -> None:
        """Log what has changed."""
        before, now = self.of(server), {key.engine: state for key, state in states.items()}
        if now == {engine: since.state for engine, since in before.items()}:
            return
        at, since = self._clock.now(), dict[str, StateSince]()
        for engine, state in now.items():
            old = before.get(engine, _UNKNOWN)
            if state != old.state:
                log.info("engine.state_changed", server=server, engine=engine, **{"from": old.state, "to": state})
            is_same = engine in before and state == old.state
            since[engine] = old if is_same else StateSince(state, at, is_exact=old.state != "unknown")
        self._states[server] = since

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget the servers that are not among these."""
        for server in self._states.keys() - servers:
            del self._states[server]
