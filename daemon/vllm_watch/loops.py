# SPDX-License-Identifier: Apache-2.0
"""The daemon's threads: one follows all logs, one sends out the scrapes. Each has a heartbeat."""

from __future__ import annotations

import heapq
import threading
import time

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

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

    def __init__(self, servers: Sequence[WatchedServer], clock: Clock) -> None:
        self._servers = [server for server in servers if server.log_pattern is not None]
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._folders = FolderWatch(self._wake)
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        """Begin, if any server has a log."""
        if self._servers:
            self._folders.start()
            self.thread.start()

    def stop(self) -> None:
        """Look once more, then end."""
        self._stop.set()
        self._wake.set()
        if self._servers:
            self.thread.join(2)
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
        self._folders.refresh(server.log_pattern for server in self._servers if server.log_pattern is not None)
        looks = [self._look_at(server) for server in self._servers]
        return any(looks)

    def _look_at(self, server: WatchedServer) -> bool:
        try:
            return server.look_at_log()
        except Exception:  # One server's log must not silence the others; the next look tries again.
            log.exception("tail.failed", server=server.name)
            return False


class ScrapeLoop:
    """Sends out each server's scrapes in time; a server that hangs holds up its own only."""

    def __init__(self, servers: Sequence[WatchedServer], clock: Clock) -> None:
        self._servers = [server for server in servers if server.interval is not None]
        self._clock = clock
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(min(MAX_SCRAPERS, max(len(self._servers), 1)), "scrape")
        self._running: dict[str, Future[None]] = {}
        self.heartbeat = Heartbeat()
        self.thread = threading.Thread(target=self._run, name="scrapes", daemon=True)

    def start(self) -> None:
        """Begin, if any server has /metrics."""
        if self._servers:
            self.thread.start()

    def stop(self) -> None:
        """End; a scrape under way is not waited for."""
        self._stop.set()
        if self._servers:
            self.thread.join(2)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        now = self._clock.now()
        due = [(now, index) for index in range(len(self._servers))]
        while not self._stop.is_set():
            at, index = due[0]
            wait = min(at - self._clock.now(), POLL_SECONDS)
            self.heartbeat.beat()
            if wait > 0:
                self._clock.wait(self._stop, wait)
                continue
            server = self._servers[index]
            self._send(server)
            # A turn that was missed is not made up for.
            heapq.heapreplace(due, (max(at, self._clock.now() - 1) + (server.interval or POLL_SECONDS), index))

    def _send(self, server: WatchedServer) -> None:
        running = self._running.get(server.name)
        if running is None or running.done():
            self._running[server.name] = self._pool.submit(_scrape, server)


def _scrape(server: WatchedServer) -> None:
    try:
        server.scrape()
    except Exception:  # One server's page must not end the others' scrapes; the next turn tries again.
        log.exception("scrape.failed", server=server.name)
