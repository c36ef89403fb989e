# SPDX-License-Identifier: Apache-2.0
"""
The threads that follow the logs: one for all of them, and one more for each log whose file system gives no answer.

Nothing ends a thread that waits in the kernel for a network's server that is gone. So it is left alone with its log,
and another one goes on with the others; when the file system answers again, it ends, and the log is one of all again.
`vllm_watch.discovery.patience` does the same for what is asked once of each of many processes.
"""

from __future__ import annotations

import threading
import time

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import structlog

from vllm_watch.service.monitor import ServerMonitor
from vllm_watch.service.threads import STOP_SECONDS, Heartbeat
from vllm_watch.sources.directory_watcher import DirectoryWatcher, Place, places
from vllm_watch.support.clock import Clock
from vllm_watch.support.internal_errors import InternalErrors


log = structlog.get_logger("vllm_watch.tail_loop")

POLL_SECONDS = 1.0
"""How often logs are looked at without a hint."""

PAUSE_SECONDS = 0.01
"""The least time between two looks: a busy log is read in pieces, not line by line."""

LEFT_AFTER = 1.0
"""How long a look may take before another thread goes on with the other logs."""

HANGS_AFTER = 10.0
"""Seconds that a look takes before its log is said to hang."""

MAX_LEFT = 256
"""So many logs may hang at once before they hold up another."""

_FOLDERS = object()
"""What a thread is at that watches the logs' folders; else it is at a log, which its server has the key of."""


class _Looker(threading.Thread):
    """
    A thread that looks at logs, one after the other.

    `key` is what it is at, nothing between two looks, and `since` when that began, by the monotonic clock. `is_left`
    tells that others go on without it, `is_named` that it was said what it hangs at.
    """

    def __init__(self, run: Callable[[_Looker], None]) -> None:
        super().__init__(name="tail", daemon=True)
        self.key: Hashable = None
        self.since = 0.0
        self.is_left = False
        self.is_named = False
        self._run_with = run

    def run(self) -> None:
        """Look until the end."""
        self._run_with(self)

    def is_overdue(self, now: float, seconds: float) -> bool:
        """Whether what it does takes longer than so many seconds."""
        return self.key is not None and now - self.since > seconds


class LogThread:
    """
    Follows the logs of all servers: a hint wakes it, and it looks every second anyway.

    Someone else calls `attend` about once a second: whoever hangs cannot tell.

    Args:
        clock: The time.
        errors: Where it is counted what fails.
        looked: Told that all logs were looked at that a new set of servers has.
    """

    def __init__(self, clock: Clock, errors: InternalErrors, looked: Callable[[], None] = lambda: None) -> None:
        self._servers: tuple[ServerMonitor, ...] = ()
        self._clock = clock
        self._errors = errors
        self._looked = looked
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._folders = DirectoryWatcher(self._wake)
        self._refreshed: tuple[tuple[ServerMonitor, ...], float] = ((), 0.0)
        self._places: dict[ServerMonitor, tuple[float, tuple[Place, ...]]] = {}
        self._lock = threading.Lock()
        self._busy: dict[Hashable, _Looker] = {}
        self.heartbeat = Heartbeat()
        self.thread = _Looker(self._run)

    def follow(self, servers: Sequence[ServerMonitor]) -> None:
        """From now on follow the logs of these servers; the thread begins with the first log."""
        self._servers = tuple(server for server in servers if server.has_log)
        self._wake.set()
        if self._servers and self.thread.ident is None:
            self._folders.start()
            self.heartbeat.beat()
            self.thread.start()

    def attend(self) -> None:
        """Let other threads go on where one does not, and name the logs that hang."""
        now = time.monotonic()
        with self._lock:
            left = {key: looker for key, looker in self._busy.items() if looker.is_overdue(now, LEFT_AFTER)}
            for looker in list(left.values())[:MAX_LEFT]:
                looker.is_left = True
            for server in self._servers:
                # One that was configured anew waits for the look at the same log that the one before it began.
                server.is_overdue = server.log_key in left
        if self.thread.is_left:
            # As many more as were held up lately: a hundred logs of one dead server are found to hang in seconds.
            self._go_on(helpers=sum(not looker.is_named for looker in left.values()) - 1)
        for looker in left.values():
            if looker.is_overdue(now, HANGS_AFTER):
                self._name(looker)

    def request_stop(self) -> None:
        """Make the thread look once more, then end."""
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the end; not for what hangs."""
        if self.thread.ident is not None:
            self.thread.join(STOP_SECONDS)
            if _FOLDERS not in self._busy:
                self._folders.stop()

    def _go_on(self, helpers: int) -> None:
        """Have another thread look at all logs for good, and so many help it once."""
        try:
            thread = _Looker(self._run)
            thread.start()
            self.thread = thread
            self.heartbeat.beat()
            for _ in range(helpers):
                _Looker(self._help).start()
        except RuntimeError as error:  # The system's limit: the next turn tries again.
            log.warning("workers.no_thread", what="tail", error=str(error))
            self._errors.count("threads")

    def _name(self, looker: _Looker) -> None:
        """Say of what a thread is at that it hangs."""
        looker.is_named = True
        key = looker.key
        for server in self._servers:
            if key is _FOLDERS:
                server.has_hints = False
            elif server.log_key == key and server.is_overdue:
                server.note_log_failure("hangs")

    def _run(self, looker: _Looker) -> None:
        seen: tuple[ServerMonitor, ...] = ()
        while True:
            is_last = self._stop.is_set()
            self._wake.clear()
            started = time.monotonic()
            servers = self._servers
            has_more = self._look_at_all(looker, servers)
            if not looker.is_left and self._is_refresh_due(servers):
                self._do(looker, _FOLDERS, partial(self._refresh, servers))
            if looker.is_left:
                self._wake.set()  # What it was left alone with is one of all again.
                return
            self.heartbeat.beat()
            if seen is not servers:
                seen = servers
                self._looked()
            if is_last:
                return
            if not has_more:
                self._clock.wait(self._wake, POLL_SECONDS)
                self._stop.wait(max(started + PAUSE_SECONDS - time.monotonic(), 0))

    def _help(self, looker: _Looker) -> None:
        """Look at the logs that nobody is at, the last one first: from both ends it takes half as long."""
        self._look_at_all(looker, self._servers[::-1])
        self._wake.set()

    def _look_at_all(self, looker: _Looker, servers: tuple[ServerMonitor, ...]) -> bool:
        has_more = False
        for server in servers:
            if self._do(looker, server.log_key, partial(self._look_at, server)):
                has_more = True
            if looker.is_left:
                break
            if looker is self.thread:
                self.heartbeat.beat()
        return has_more

    def _do(self, looker: _Looker, key: Hashable, work: Callable[[], bool | None]) -> bool:
        """Do something that may hang, unless it is being done; return what comes of it."""
        with self._lock:
            if key in self._busy:
                return False
            self._busy[key] = looker
            looker.key, looker.since, looker.is_named = key, time.monotonic(), False
        try:
            return bool(work())
        finally:
            with self._lock:
                del self._busy[key]
                looker.key = None

    def _look_at(self, server: ServerMonitor) -> bool:
        try:
            now = time.monotonic()
            if now >= self._places.get(server, (-POLL_SECONDS, ()))[0] + POLL_SECONDS:
                # Where the folders are is asked here: if that hangs, it costs this log.
                found = places(server.log_paths)
                with self._lock:
                    self._places[server] = (now, found)
            return server.look_at_log()
        except Exception:  # One server's log must not silence the others; the next look tries again.
            log.exception("tail.failed", server=server.name)
            self._errors.count("tail")
            server.note_log_failure("internal_error")
            return False

    def _is_refresh_due(self, servers: tuple[ServerMonitor, ...]) -> bool:
        """Tell whether folders are to be watched anew: at once for others, then as often as logs are polled."""
        followed, at = self._refreshed
        return followed is not servers or time.monotonic() >= at + POLL_SECONDS

    def _refresh(self, servers: tuple[ServerMonitor, ...]) -> None:
        """Watch the servers' folders as they were at the last look."""
        self._refreshed = (servers, time.monotonic())
        try:
            with self._lock:  # Threads that help look at logs meanwhile.
                self._places = {server: self._places[server] for server in servers if server in self._places}
                known = {server: found for server, (_, found) in self._places.items()}
            if self._folders.refresh([place for found in known.values() for place in found]):
                self._wake.set()  # What came before the watch gave no hint.
            for server in servers:
                server.has_hints = self._folders.covers(known.get(server, ()))
        except Exception:  # Without hints logs are polled.
            log.exception("wake.failed")
            self._errors.count("wake")
