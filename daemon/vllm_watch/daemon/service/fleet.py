# SPDX-License-Identifier: Apache-2.0
"""The servers that are watched now."""

from __future__ import annotations

import threading

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec
import structlog

from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.service.alerts import Alerts, alerts_view
from vllm_watch.daemon.service.changes import FleetChanges
from vllm_watch.daemon.service.checkpointer import Checkpointer
from vllm_watch.daemon.service.log_polling import LogMonitor
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.snapshot_document import HISTORY_STEP, document, server_document
from vllm_watch.daemon.sources.checkpoint import Positions, ServerChange
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.clock import Clock, seconds_ahead
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

Result = TypeVar("Result")


class Fleet:
    """
    The monitors of all configured servers; asking them survives the failure of any one.

    Args:
        config: The first servers.
        clock: The time.
        checkpointer: Knows how far their logs were read before.
        errors: Counts failures.
    """

    def __init__(self, config: Config, clock: Clock, checkpointer: Checkpointer, errors: InternalErrors) -> None:
        self.config = config
        self._clock = clock
        self._checkpointer = checkpointer
        self._errors = errors
        self.servers = tuple(ServerMonitor(server, clock, checkpointer.loaded.positions) for server in config.servers)
        self.is_complete: Callable[[], bool] = lambda: True
        """Whether all servers are known that are to be watched: pods are found only after the start."""
        self._changes = FleetChanges(checkpointer.loaded.positions.changes)
        self._history_due = clock.now()
        self._collect_errors_lock = threading.Lock()
        self._collect_errors: Counter[str] = Counter()

    @property
    def logs(self) -> tuple[LogMonitor, ...]:
        """The logs of the servers that have one."""
        return tuple(server.log for server in self.servers if server.log is not None)

    @property
    def is_ready(self) -> bool:
        """Whether all servers are known, each log was polled and each /metrics scraped once."""
        return self.is_complete() and all(server.is_ready for server in self.servers)

    def replace(self, config: Config) -> None:
        """Watch the servers of a new configuration; one that is configured as before keeps its monitor."""
        known = {server.name: server for server in self.servers}
        kept = {each.name for each in config.servers if each.name in known and known[each.name].update(each)}
        for name in known.keys() - kept:
            known[name].close()  # First: its successor would read again what it reads later.
        before = self._checkpointer.positions(self.logs, self.known)
        new = tuple(
            known[each.name] if each.name in kept else ServerMonitor(each, self._clock, before)
            for each in config.servers
        )
        self._checkpointer.keep_unwatched(before, config)
        self.config, self.servers = config, new

    def known(self) -> Positions:
        """Return what is known of each server, for the checkpoint: the last change of its flags, and its facts."""
        kept = self.each(lambda server: (server.name, *server.kept()))
        changes = tuple(ServerChange(name, change) for name, change, _ in kept if change is not None)
        return Positions(changes=changes, facts=tuple(facts for _, _, facts in kept if facts is not None))

    def each(
        self, ask: Callable[[ServerMonitor], Result], servers: Sequence[ServerMonitor] | None = None
    ) -> list[Result]:
        """Return what `ask` returns for each server, or for each of these; those for which it fails are left out."""
        results = []
        for server in self.servers if servers is None else servers:
            try:
                results.append(ask(server))
            except Exception as error:  # noqa: BLE001 - `note_failure` logs it.
                self.note_failure(server.name, error)
        return results

    def snapshots(self) -> list[ServerSnapshot]:
        """Return what is known of each server now."""
        return self.each(lambda server: server.snapshot())

    def engine_states(self, limit: int) -> list[tuple[str, Collection[EngineState]]]:
        """Return the first servers' names with the states that their engines are in."""
        return self.each(lambda server: (server.name, server.engine_states().values()), self.servers[:limit])

    def log_changes(self) -> None:
        """Log the engines whose state has changed since the last call, and the servers started with other flags."""
        self._changes.keep_only({server.name for server in self.servers})
        # Nothing is known yet of a server whose sources were not read; what was known before a reload is kept for it.
        ready = [server for server in self.servers if server.is_ready]
        self.each(lambda server: self._changes.log_states(server.name, server.engine_states()), ready)
        self._changes.log_flags(self.known().changes)

    def record_history(self) -> None:
        """Keep the present values for the charts, if the last ones are old enough."""
        now = self._clock.now()
        if now >= self._history_due:
            self._history_due = now + HISTORY_STEP
            known = {snapshot.name: snapshot for snapshot in self.snapshots()}
            shown = [server for server in self.servers if server.name in known]
            self.each(lambda server: server.history.add(now, known[server.name]), shown)

    def note_failure(self, server: str, error: Exception) -> None:
        """Log and count that a server cannot be shown."""
        log.error("collect.failed", server=server, exc_info=error)
        self._errors.count("snapshot")
        with self._collect_errors_lock:
            self._collect_errors[server] += 1

    def collect_errors(self) -> Mapping[str, int]:
        """Return how often each server could not be shown, those of which none failed included."""
        with self._collect_errors_lock:
            return {server.name: self._collect_errors[server.name] for server in self.servers}

    def close(self) -> None:
        """Close the files and connections of all servers."""
        for server in self.servers:
            server.close()


def fleet_document(
    fleet: Fleet, clock: Clock, hours: Collection[str] | None = None, alerts: Alerts | None = None
) -> bytes:
    """
    Return all servers, with what the last hour of every server was, or of these, and the alerts of a Prometheus.

    Where the servers are not watched now but replayed, it says so, and how fast.
    """
    known = {snapshot.name: snapshot for snapshot in fleet.snapshots()}
    ahead = seconds_ahead(clock)

    def show(server: ServerMonitor) -> msgspec.Raw:
        with_hour = hours is None or server.name in hours
        return server_document(known[server.name], server.history if with_hour else None, ahead)

    servers = fleet.each(show, [server for server in fleet.servers if server.name in known])
    shown = {} if alerts is None else alerts_view(alerts, known, ahead)
    if clock.replay_speed is not None:
        shown["replay"] = {"speed": clock.replay_speed}
    return document(clock.now() + ahead, servers, shown)
