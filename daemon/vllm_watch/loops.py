# SPDX-License-Identifier: Apache-2.0
"""The daemon's threads: one follows all logs, one sends out the scrapes. Each has a heartbeat."""

from __future__ import annotations

import threading
import time

from collections.abc import Sequence
from queue import SimpleQueue

import structlog

from vllm_watch.clock import Clock
from vllm_watch.sources.wake import FolderWatch
from vllm_watch.watched import WatchedServer


log = structlog.get_logger("vllm_watch.loops")

POLL_SECONDS = 1.0
"""How often logs are looked at without a hint."""

PAUSE_SECONDS = 0.01
"""The least time between two looks: a busy log is read in pieces, not line by line."""

MAX_SCRAPERS = 32
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


class TailLoop:
    """Follows the logs of all servers in one thread: a hint wakes it, and it looks every second anyway."""

    def __init__(self, clock: Clock) -> None:
        self._servers: tuple[WatchedServer, ...] = ()
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._folders = FolderWatch(self._wake)
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def follow(self, servers: Sequence[WatchedServer]) -> None:
        """From now on follow the logs of these servers; the thread begins with the first log."""
        self._servers = tuple(server for server in servers if server.has_log)
        self._wake.set()
        if self._servers and self.thread.ident is None:
            self._folders.start()
            self.heartbeat.beat()
            self.thread.start()

    def request_stop(self) -> None:
        """Make the thread look once more, then end."""
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the end."""
        if self.thread.ident is not None:
            self.thread.join(STOP_SECONDS)
            self._folders.stop()

    def _run(self) -> None:
        while True:
            is_last = self._stop.is_set()
            self._wake.clear()
            started = time.monotonic()
            has_more = self._look()
            self.heartbeat.beat()
            if is_last:
                return
            if not has_more:
                self._clock.wait(self._wake, POLL_SECONDS)
                self._stop.wait(max(started + PAUSE_SECONDS - time.monotonic(), 0))

    def _look(self) -> bool:
        servers = self._servers
        self._folders.refresh([path for server in servers for path in server.log_paths])
        for server in servers:
            server.has_hints = self._folders.covers(server.log_paths)
        looks = [self._look_at(server) for server in servers]
        return any(looks)

    def _look_at(self, server: WatchedServer) -> bool:
        self.heartbeat.beat()
        try:
            return server.look_at_log()
        except Exception:  # One server's log must not silence the others; the next look tries again.
            log.exception("tail.failed", server=server.name)
            return False


class ScrapeLoop:
    """
    Sends out each server's scrapes in time; a server that hangs holds up its own only.

    The threads that scrape are not waited for at the end: a name that is being resolved cannot be interrupted.
    """

    def __init__(self, clock: Clock) -> None:
        self._servers: tuple[WatchedServer, ...] = ()
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._waiting: SimpleQueue[WatchedServer | None] = SimpleQueue()
        self._busy: set[WatchedServer] = set()
        self._workers: list[threading.Thread] = []
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name="scrapes", daemon=True)

    def follow(self, servers: Sequence[WatchedServer]) -> None:
        """From now on scrape these servers; the thread begins with the first /metrics."""
        self._servers = tuple(server for server in servers if server.interval is not None)
        self._wake.set()
        if self._servers and self.thread.ident is None:
            self.heartbeat.beat()
            self.thread.start()

    def request_stop(self) -> None:
        """Make the threads end; a scrape under way ends when its server is closed."""
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait until no more scrapes are sent out."""
        if self.thread.ident is not None:
            self.thread.join(STOP_SECONDS)
        for _ in self._workers:
            self._waiting.put(None)

    def _run(self) -> None:
        due: dict[WatchedServer, float] = {}
        while not self._stop.is_set():
            self._wake.clear()
            self.heartbeat.beat()
            now = self._clock.now()
            due = {server: self._turn(server, due.get(server, now), now) for server in self._servers}
            if not self._stop.is_set():
                self._clock.wait(self._wake, min([POLL_SECONDS, *(at - now for at in due.values())]))

    def _turn(self, server: WatchedServer, due: float, now: float) -> float:
        """Send a server's scrape out if it is due; return when the next one is."""
        if due > now:
            return due
        self._send(server)
        # A turn that was missed is not made up for.
        return max(due, now - 1) + (server.interval or POLL_SECONDS)

    def _send(self, server: WatchedServer) -> None:
        if server in self._busy:
            return
        self._busy.add(server)
        self._waiting.put(server)
        if len(self._workers) < min(len(self._busy), MAX_SCRAPERS):
            worker = threading.Thread(target=self._work, name="scrape", daemon=True)
            self._workers.append(worker)
            worker.start()

    def _work(self) -> None:
        while (server := self._waiting.get()) is not None:
            _scrape(server)
            self._busy.discard(server)


def _scrape(server: WatchedServer) -> None:
    try:
        server.scrape()
    except Exception:  # One server's page must not end the others' scrapes; the next turn tries again.
        log.exception("scrape.failed", server=server.name)
