# SPDX-License-Identifier: Apache-2.0
"""
The threads that watch servers, and those of them that send out scrapes and probes, and look for servers.

The one that polls the logs is in `log_polling`, the one that reads the GPUs in `gpus`, the one that asks a Prometheus
in `alerts`.
"""

from __future__ import annotations

import threading

from collections.abc import Callable, Hashable, Sequence

import structlog

from vllm_watch.daemon.catalog.codes import Part
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses, this_machine
from vllm_watch.daemon.discovery.watcher import POLL_SECONDS, ServerWatcher
from vllm_watch.daemon.service.alerts import AlertsThread
from vllm_watch.daemon.service.gpus import GpuThread
from vllm_watch.daemon.service.log_polling import LogThread
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

IDLE_SECONDS = 1.0
"""How long a dispatcher waits when nothing is due."""

SPACING_SECONDS = 0.02
"""The distance between the first scrapes of servers that are added together, and so between all their later ones."""

MAX_WORKERS = 256
"""How many servers may hang at once before they delay another one's scrapes or probes."""


class WatchingThreads:
    """
    The threads of the daemon, and of `top` without one, that watch servers.

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
        logs_polled: Callable[[], None] = lambda: None,
    ) -> None:
        processes = WatchedProcesses()
        self.tail = LogThread(clock, errors, logs_polled)
        self.scrapes = ScrapeThread(clock, errors)
        self.probes = ProbeThread(clock, errors)
        self.discovery = DiscoveryThread(clock, errors, processes, follower, offer)
        self.alerts = AlertsThread(clock, errors)
        self.gpus = GpuThread(clock, errors, processes=processes)
        self.beating = (self.tail, self.scrapes, self.probes, self.discovery)
        """Those whose heartbeat is shown."""
        self.all: tuple[ServiceThread, ...] = (*self.beating, self.alerts, self.gpus)

    def follow(self, config: Config, servers: Sequence[ServerMonitor]) -> None:
        """Watch the servers of a configuration from now on; a thread starts when there is work for it."""
        self.tail.follow([server.log for server in servers if server.log is not None])
        self.scrapes.follow(servers)
        self.probes.follow(servers)
        self.discovery.follow(servers)
        self.alerts.follow(config.prometheus)
        self.gpus.follow(config, servers)


class DiscoveryThread(ServiceThread):
    """
    Looks for servers and for the processes of those that are watched, again and again.

    Nobody waits for its end: reading one process's entry in /proc can hang.

    Args:
        processes: Finds the processes of servers.
        follower: Looks for servers; without it those are watched that are configured.
        offer: Takes the configuration that follows from what was found.
    """

    is_awaited = False

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        processes: WatchedProcesses,
        follower: ServerWatcher | None,
        offer: Callable[[Config], None],
    ) -> None:
        super().__init__("discovery", clock, errors)
        self._processes = processes
        self._follower = follower
        self._offer = offer
        self._servers: tuple[ServerMonitor, ...] = ()

    @property
    def hanging_count(self) -> int | None:
        """How many processes are passed over because reading about them hangs; `None` if no server is looked for."""
        return None if self._follower is None else self._follower.hanging_count

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """Look for the processes of these servers from now on; the first one that may run here starts the thread."""
        self._servers = tuple(servers)
        self._wake.set()
        here = this_machine()
        if self._follower is not None or any(here.may_run(server.config) for server in servers):
            self.start()

    def _turn(self) -> float:
        is_asked = self._take_asked()  # Then also the servers that are known already are looked at.
        try:
            if self._follower is not None:
                self._offer(self._follower.poll(fully=is_asked))
            self._find_processes(anew=is_asked)
        except Exception:  # Untrusted processes must not be able to end discovery.
            log.exception("discovery.failed")
            self._errors.count("discovery")
        return POLL_SECONDS

    def _find_processes(self, *, anew: bool) -> None:
        """Tell each server which process it is; one that was started since the last look, soon."""
        servers = self._servers
        anew = anew or any(server.wants_process for server in servers)
        found = self._processes.running([server.config for server in servers], self._clock.now(), anew=anew)
        if found is not None:
            for server in servers:
                server.apply_process(found.servers.get(server.name), found.at)


class _Dispatcher(ServiceThread):
    """
    A thread that sends out what is due for its servers, each in a thread of its own.

    At its end nothing more is sent out; what is under way ends when its server is closed.
    """

    def __init__(
        self, clock: Clock, errors: InternalErrors, name: str, what: Part, work: Callable[[ServerMonitor], None]
    ) -> None:
        super().__init__(name, clock, errors)
        self._servers: tuple[ServerMonitor, ...] = ()
        self._workers = _Workers(what, work, errors)

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """Send out what is due for these servers from now on; the first one that it has work for starts the thread."""
        self._servers = tuple(filter(self._has_work, servers))
        self._wake.set()
        if self._servers:
            self.start()

    def _has_work(self, server: ServerMonitor) -> bool:
        raise NotImplementedError


class ScrapeThread(_Dispatcher):
    """
    Sends out each server's scrapes on time; a server that hangs delays only its own.

    They are spread over the interval: sent out at once, they would take as many threads as there are servers.
    """

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__(clock, errors, "scrapes", "scrape", lambda server: server.scrape())
        self._due: dict[ServerMonitor, float] = {}

    def _has_work(self, server: ServerMonitor) -> bool:
        return server.interval is not None

    def _turn(self) -> float:
        now = self._clock.now()
        self._schedule(self._servers, now)
        for server, due in self._due.items():
            if due <= now:
                self._workers.send(server, server)
                # Missed scrapes are not made up for, and the distance from other servers' is kept.
                interval = _interval(server)
                self._due[server] = due + interval * (1 + (now - due) // interval)
        return min([IDLE_SECONDS, *(due - now for due in self._due.values())])

    def _schedule(self, servers: Sequence[ServerMonitor], now: float) -> None:
        """Take over these servers: those that are known keep their turns."""
        new = [server for server in servers if server not in self._due]
        first = {
            server: now + number * min(SPACING_SECONDS, _interval(server) / len(new))
            for number, server in enumerate(new)
        }
        due = {**first, **self._due}
        self._due = {server: due[server] for server in servers}


def _interval(server: ServerMonitor) -> float:
    return server.interval or IDLE_SECONDS


class ProbeThread(_Dispatcher):
    """
    Sends out each server's probes when they are due, never two of one server at once.

    Servers are identified by name: after a reload, the new one's first probe waits until the old one's last has ended.
    """

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__(clock, errors, "probes", "probe", lambda server: server.probe())

    def _has_work(self, server: ServerMonitor) -> bool:
        return server.has_probe

    def _turn(self) -> float:
        now = self._clock.now()
        for server in self._servers:
            due = server.next_probe(now)
            if due is not None and due <= now:
                self._workers.send(server.name, server)
        return IDLE_SECONDS


class _Workers:
    """
    Does one thing for one server at a time, each in a thread of its own, up to a limit.

    Nobody waits for them at the end: a name's resolution cannot be interrupted.
    """

    def __init__(self, what: Part, work: Callable[[ServerMonitor], None], errors: InternalErrors) -> None:
        self._what: Part = what
        self._failure = f"{what}.failed"
        self._errors = errors
        self._do = work
        self._busy: set[Hashable] = set()
        self._has_logged_full = False

    def send(self, key: Hashable, server: ServerMonitor) -> None:
        """Have it done, unless it is being done under the same key, or too many hang: it will be due again."""
        if key in self._busy or len(self._busy) >= MAX_WORKERS:
            return
        self._busy.add(key)
        try:
            threading.Thread(target=self._work, args=(key, server), name=self._what, daemon=True).start()
        except RuntimeError as error:  # The system's limit.
            self._busy.discard(key)
            self._errors.count("threads")
            if not self._has_logged_full:
                log.warning("threads.start_failed", what=self._what, threads=len(self._busy), error=str(error))
            self._has_logged_full = True

    def _work(self, key: Hashable, server: ServerMonitor) -> None:
        try:
            self._do(server)
        except Exception:  # One server's failure must not stop the others'; it is tried again when it is next due.
            log.exception(self._failure, server=server.name)
            self._errors.count(self._what)
        finally:
            self._busy.discard(key)
