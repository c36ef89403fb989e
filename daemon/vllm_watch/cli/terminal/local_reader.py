# SPDX-License-Identifier: Apache-2.0
"""Servers that this process watches itself, as the daemon does, but for its port, its checkpoint and its probes."""

from __future__ import annotations

import math

from collections.abc import Callable, Collection

import msgspec

from vllm_watch.cli.terminal.reading_thread import DocumentReader
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watcher import ServerWatcher
from vllm_watch.daemon.service.checkpointer import Checkpointer
from vllm_watch.daemon.service.fleet import Fleet, fleet_document
from vllm_watch.daemon.service.reloader import Reloader
from vllm_watch.daemon.service.threads import WatchingThreads
from vllm_watch.daemon.state.window import MIN_SECONDS
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.own_health import InternalErrors


_NO_SERVER = "no vLLM server runs on this machine; run vllm-watch discover for the reason"
_SETTLING_SECONDS = 1.0
"""How long after the scrape is due that gives the first rates they are there, or will not come."""


class LocalReader(DocumentReader):
    """
    Watches servers with the daemon's own threads.

    Args:
        title: What is watched.
        load: Returns the servers, once.
        clock: The time.
        follower: Finds servers again and again, if they are those of this machine.
    """

    def __init__(
        self, title: str, load: Callable[[], Config], clock: Clock, follower: ServerWatcher | None = None
    ) -> None:
        self.title = title
        self._load = load
        self._clock = clock
        self._errors = InternalErrors()
        self._threads = WatchingThreads(clock, self._errors, follower, offer=self._offer)
        self._fleet: Fleet | None = None
        self._reloader: Reloader | None = None
        self._ready_at: float | None = None
        self._is_closed = False

    @property
    def is_settled(self) -> bool:
        """Whether each log was read, each /metrics until it has rates, and a configured Prometheus was asked."""
        if self._fleet is None or self._ready_at is None or not self._threads.alerts.has_asked:
            return False
        intervals = [server.interval for server in self._fleet.servers if server.interval is not None]
        seconds = [math.ceil(MIN_SECONDS / interval) * interval + _SETTLING_SECONDS for interval in intervals]
        return self._clock.now() >= self._ready_at + max(seconds, default=0.0)

    def start(self) -> None:
        """
        Start to watch.

        Raises:
            VllmWatchError: There is no process table.
        """
        config = _watched_only(self._load())
        fleet = Fleet(config, self._clock, Checkpointer(config, self._clock), self._errors)
        self._fleet = fleet
        self._reloader = Reloader(config, self._clock, self._errors, load=None, apply=self._watch)
        self._threads.follow(config, fleet.servers)
        if self._is_closed:
            self.close()

    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return what is known now.

        Raises:
            DiscoveryError: No server runs here.
        """
        fleet = self._fleet
        if fleet is None or self._reloader is None:
            raise DiscoveryError(_NO_SERVER)
        self._reloader.apply_offer()
        fleet.record_history()
        if not fleet.servers:
            raise DiscoveryError(_NO_SERVER)
        if self._ready_at is None and fleet.is_ready:
            self._ready_at = self._clock.now()
        return fleet_document(fleet, self._clock, hours, self._threads.alerts.alerts())

    def close(self) -> None:
        """End all threads and close all files."""
        self._is_closed = True
        for thread in self._threads.all:
            thread.request_stop()
        for thread in self._threads.all:
            thread.join()
        if self._fleet is not None:
            self._fleet.close()

    def _watch(self, config: Config) -> None:
        if self._fleet is not None:
            self._fleet.replace(config)
            self._threads.follow(config, self._fleet.servers)

    def _offer(self, config: Config) -> None:
        if self._reloader is not None:
            self._reloader.offer(_watched_only(config))


def _watched_only(config: Config) -> Config:
    """Return a configuration that writes no file and sends no completion: a daemon may run beside this process."""
    servers = tuple(msgspec.structs.replace(server, probe=None) for server in config.servers)
    return msgspec.structs.replace(config, servers=servers, checkpoint=None, web_config_file=None)
