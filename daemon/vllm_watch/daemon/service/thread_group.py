# SPDX-License-Identifier: Apache-2.0
"""All threads that watch servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses
from vllm_watch.daemon.discovery.watcher import ServerWatcher
from vllm_watch.daemon.service.log_thread import LogThread
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.service.threads import DiscoveryThread, ProbeThread, ScrapeThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


class ThreadGroup:
    """
    The threads that poll logs, send out scrapes and probes and look for servers, started and stopped together.

    Args:
        clock: The time.
        errors: Counts failures.
        follower: Looks for servers; without it those are watched that are configured.
        offer: Takes the configuration that follows from what was found.
        logs_polled: Called when all logs of a new set were polled once.
    """

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        follower: ServerWatcher | None,
        *,
        offer: Callable[[Config], None],
        logs_polled: Callable[[], None],
    ) -> None:
        self.tail = LogThread(clock, errors, logs_polled)
        self.scrapes = ScrapeThread(clock, errors)
        self.probes = ProbeThread(clock, errors)
        self.processes = WatchedProcesses()
        """Finds the servers' processes, also for the thread that reads the GPUs."""
        self._is_discovering = follower is not None
        self.discovery = DiscoveryThread(clock, errors, self.processes, follower, offer)
        self.all: tuple[ServiceThread, ...] = (self.tail, self.scrapes, self.probes, self.discovery)

    @property
    def hanging_processes(self) -> int | None:
        """How many processes discovery passes over because reading about them hangs; `None` without discovery."""
        return self.discovery.hanging_count

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """Watch these servers from now on; a thread starts with the first one that it has work for."""
        self.tail.follow([server.log for server in servers if server.log is not None])
        self.scrapes.follow(servers)
        self.probes.follow(servers)
        self.discovery.follow(servers)

    def start_discovery(self) -> None:
        """Start to look for servers, if none are configured."""
        if self._is_discovering:
            self.discovery.start()

    def discover_now(self) -> None:
        """Look at once for servers, if none are configured, and for the processes of those that are watched."""
        self.discovery.poll_now()

    def request_stop(self) -> None:
        """Make all threads end soon."""
        for thread in self.all:
            thread.request_stop()

    def join(self) -> None:
        """Wait for the threads to end; not for what hangs."""
        for thread in self.all:
            thread.join()
