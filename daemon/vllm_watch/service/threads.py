# SPDX-License-Identifier: Apache-2.0
"""
The daemon's threads that send out scrapes and probes and look for servers, each with a heartbeat.

Those that follow the logs are in `vllm_watch.service.log_thread`.
"""

from __future__ import annotations

import threading
import time

from collections.abc import Callable, Hashable, Iterable, Sequence
from queue import SimpleQueue

import structlog

from vllm_watch.catalog.parts import Part
from vllm_watch.config.model import Config
from vllm_watch.discovery.watcher import LOOK_SECONDS, Follower
from vllm_watch.service.monitor import ServerMonitor
from vllm_watch.support.clock import Clock
from vllm_watch.support.internal_errors import InternalErrors


log = structlog.get_logger("vllm_watch.loops")

IDLE_SECONDS = 1.0
"""How long a loop waits when nothing is due."""

SPACING_SECONDS = 0.02
"""How far apart the first scrapes of servers that begin together are, and so all their later ones."""

MAX_WORKERS = 256
"""So many servers may hang at once before they hold up another."""

STOP_SECONDS = 1.5
"""How long a thread that is to end is waited for; one that hangs dies with the process."""


class Heartbeat:
    """When a thread last gave a sign of life, by the machine's monotonic clock."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        """Give a sign of life."""
        self._at = time.monotonic()

    def age(self) -> float:
        """Return the seconds since the last sign."""
        return time.monotonic() - self._at


class DiscoveryThread:
    """
    Looks for servers again and again; a thread of its own, since the process table can hang on one process.

    Args:
        clock: The time.
        follower: Who looks.
        offer: Takes what was found.
        errors: Where it is counted what fails.
    """

    def __init__(
        self, clock: Clock, follower: Follower, offer: Callable[[Config], None], errors: InternalErrors
    ) -> None:
        self._clock = clock
        self._errors = errors
        self._follower = follower
        self._offer = offer
        self._wake = threading.Event()
        self._is_stopping = False
        self._is_asked = False
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self.heartbeat.beat()
        self.thread.start()

    @property
    def hanging_count(self) -> int:
        """How many processes are passed over because asking about them hangs."""
        return self._follower.hanging_count

    def look_now(self) -> None:
        """Look at once, and closely."""
        self._is_asked = True
        self._wake.set()

    def request_stop(self) -> None:
        """Make the thread end; it is not waited for."""
        self._is_stopping = True
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._clock.wait(self._wake, LOOK_SECONDS)
            self._wake.clear()
            if self._is_stopping:
                return
            is_asked, self._is_asked = self._is_asked, False
            try:
                self._offer(self._follower.look(closely=is_asked))
            except Exception:  # What a stranger's process shows must not end the looking.
                log.exception("discovery.failed")
                self._errors.count("discovery")
            self.heartbeat.beat()


class _TurnLoop:
    """A thread that sends out what is due for its servers, each in a thread of its own."""

    def __init__(
        self, clock: Clock, errors: InternalErrors, name: str, what: Part, work: Callable[[ServerMonitor], None]
    ) -> None:
        self._servers: tuple[ServerMonitor, ...] = ()
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._workers = _Workers(what, work, errors)
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def request_stop(self) -> None:
        """Make the threads end; what is under way ends when its server is closed."""
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait until nothing more is sent out."""
        if self.thread.ident is not None:
            self.thread.join(STOP_SECONDS)
        self._workers.end()

    def _follow(self, servers: Iterable[ServerMonitor]) -> None:
        self._servers = tuple(servers)
        self._wake.set()
        if self._servers and self.thread.ident is None:
            self.heartbeat.beat()
            self.thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.heartbeat.beat()
            pause = self._send_due(self._clock.now())
            if not self._stop.is_set():
                self._clock.wait(self._wake, min(IDLE_SECONDS, pause))

    def _send_due(self, now: float) -> float:
        """Send out what is due; return the seconds until something else may be."""
        raise NotImplementedError


class ScrapeThread(_TurnLoop):
    """
    Sends out each server's scrapes in time; a server that hangs holds up its own only.

    They are spread over the interval: sent out at once, they would take as many threads as there are servers.
    """

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__(clock, errors, "scrapes", "scrape", lambda server: server.scrape())
        self._due: dict[ServerMonitor, float] = {}

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """From now on scrape these servers; the thread begins with the first /metrics."""
        self._follow(server for server in servers if server.interval is not None)

    def _send_due(self, now: float) -> float:
        servers = self._servers
        new = [server for server in servers if server not in self._due]
        first = {server: now + number * _spacing(server, len(new)) for number, server in enumerate(new)}
        due = {**first, **self._due}
        self._due = {server: self._turn(server, due[server], now) for server in servers}
        return min((at - now for at in self._due.values()), default=IDLE_SECONDS)

    def _turn(self, server: ServerMonitor, due: float, now: float) -> float:
        """Send a server's scrape out if it is due; return when the next one is."""
        if due > now:
            return due
        self._workers.send(server, server)
        interval = _interval(server)
        # Turns that were missed are not made up for, and the distance from other servers' is kept.
        return due + interval * (1 + (now - due) // interval)


def _interval(server: ServerMonitor) -> float:
    return server.interval or IDLE_SECONDS


def _spacing(server: ServerMonitor, servers: int) -> float:
    return min(SPACING_SECONDS, _interval(server) / servers)


class ProbeThread(_TurnLoop):
    """
    Sends out each server's probes when they are due, never two of one server at once.

    Servers are told apart by name: after a reload the new one's first probe waits until the old one's last has ended.
    """

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__(clock, errors, "probes", "probe", lambda server: server.probe())

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """From now on probe these servers; the thread begins with the first that is to be."""
        self._follow(server for server in servers if server.has_probe)

    def _send_due(self, now: float) -> float:
        for server in self._servers:
            due = server.next_probe(now)
            if due is not None and due <= now:
                self._workers.send(server.name, server)
        return IDLE_SECONDS


class _Workers:
    """
    Threads that do one thing for a server at a time, as many as there are servers, up to a limit.

    They are not waited for at the end: a name that is being resolved cannot be interrupted.
    """

    def __init__(self, what: Part, work: Callable[[ServerMonitor], None], errors: InternalErrors) -> None:
        self._what: Part = what
        self._errors = errors
        self._failure = f"{what}.failed"
        self._do = work
        self._waiting: SimpleQueue[tuple[Hashable, ServerMonitor] | None] = SimpleQueue()
        self._busy: set[Hashable] = set()
        self._threads: list[threading.Thread] = []
        self._has_said_full = False

    def send(self, key: Hashable, server: ServerMonitor) -> None:
        """Have it done, unless it is being done under the same key."""
        if key in self._busy:
            return
        self._busy.add(key)
        self._waiting.put((key, server))
        if len(self._threads) < min(len(self._busy), MAX_WORKERS):
            self._start_thread()

    def end(self) -> None:
        """Let each thread end after what it does."""
        for _ in self._threads:
            self._waiting.put(None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=self._what, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # The system's limit: those that are there do it when they can.
            self._errors.count("threads")
            if not self._has_said_full:
                log.warning("workers.no_thread", what=self._what, threads=len(self._threads), error=str(error))
            self._has_said_full = True
            return
        self._threads.append(thread)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            key, server = item
            try:
                self._do(server)
            except Exception:  # One server must not end the others' turns; the next turn tries again.
                log.exception(self._failure, server=server.name)
                self._errors.count(self._what)
            self._busy.discard(key)
