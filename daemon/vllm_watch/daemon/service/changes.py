# SPDX-License-Identifier: Apache-2.0
"""What is logged once, when it changes: a source's reason, an engine's state, a server's flags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import structlog

from vllm_watch.daemon.catalog.reasons import SourceName, explain
from vllm_watch.daemon.catalog.states import USUAL, EngineState
from vllm_watch.daemon.sources.checkpoint import ServerChange
from vllm_watch.daemon.state.snapshot import ConfigChange
from vllm_watch_parsers.scrape import EngineKey


log = structlog.get_logger("vllm_watch.service")

SAME_SECONDS = 2.0
"""Changes of flags no further apart are one: clocks are corrected."""


class SourceReports:
    """Logs whenever a source of one server starts to work, fails, or fails for another reason."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._reasons: dict[SourceName, str] = {}

    def report(self, source: SourceName, reason: str, *, is_up: bool) -> None:
        """Log the reason, unless it is the one that was logged last."""
        if self._reasons.get(source) == reason:
            return
        self._reasons[source] = reason
        write = log.info if is_up else log.warning
        write("source.changed", server=self._server, source=source, reason=reason, meaning=explain(source, reason))


class FleetChanges:
    """
    Logs the engines whose state is another in more than whether there is work, and each server's last change of flags.

    Args:
        known: The changes of flags that an earlier run has logged.
    """

    def __init__(self, known: Iterable[ServerChange]) -> None:
        self._states: dict[str, Mapping[str, EngineState]] = {}
        """By server and engine; at first each is unknown."""
        self._flags = {each.server: each.change for each in known}

    def log_states(self, server: str, states: Mapping[EngineKey, EngineState]) -> None:
        """Log what has changed."""
        before, now = self._states.get(server, {}), {key.engine: state for key, state in states.items()}
        for engine, state in now.items():
            old = before.get(engine, "unknown")
            if state != old and not USUAL.issuperset({old, state}):
                log.info("engine.state_changed", server=server, engine=engine, **{"from": old, "to": state})
        self._states[server] = now

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget the states of servers that are not among these."""
        for server in self._states.keys() - servers:
            del self._states[server]

    def log_flags(self, changes: Iterable[ServerChange]) -> None:
        """Log what is new."""
        for server, change in changes:
            last = self._flags.get(server)
            if last is None or not _is_same(last, change):
                log.info("server.config_changed", server=server, at=change.at, changes=change.text.replace("→", "->"))
            self._flags[server] = change


def _is_same(one: ConfigChange, other: ConfigChange) -> bool:
    return one.changes == other.changes and abs((one.at or 0.0) - (other.at or 0.0)) <= SAME_SECONDS
