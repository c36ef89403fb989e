# SPDX-License-Identifier: Apache-2.0
"""
The threads that poll the logs: one for all of them, and one more for each log whose file system does not answer.

A thread that waits in the kernel for a file server that is gone cannot be ended. So this thread is left alone with its
log, and a new thread polls the other logs. When the file system answers again, the old thread ends, and its log is
polled together with the others. `vllm_watch.discovery.hang_guard` does the same where details of processes are read.
"""

from __future__ import annotations

import threading

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import structlog

from vllm_watch.service.log_monitor import LogMonitor
from vllm_watch.service.service_thread import ServiceThread
from vllm_watch.sources.directory_watcher import DirectoryWatcher, Place, places
from vllm_watch.support.clock import Clock
from vllm_watch.support.heartbeat import running_seconds
from vllm_watch.support.internal_errors import InternalErrors


log = structlog.get_logger("vllm_watch.service")

POLL_SECONDS = 1.0
"""How often logs are polled without a notification."""

PAUSE_SECONDS = 0.01
"""The least time between two polls: a busy log is read in pieces, not line by line."""

ABANDONED_AFTER = 1.0
"""How long a poll may take before another thread continues with the other logs."""

HANGS_AFTER = 10.0
"""How long a poll takes before its log is reported as hanging."""

MAX_ABANDONED = 256
"""How many logs may hang at once before they delay another one."""

_DIRECTORIES = object()
"""The key of watching the logs' directories; a log's is `LogMonitor.key`."""


class _Poller(threading.Thread):
    """
    A thread that polls logs, one after the other.

    `key` is what it works on, `None` between two polls, and `since` when that started, in seconds that the machine has
    run. `is_abandoned` is set when others continue without it, `is_reported` when what it works on is reported as
    hanging.
    """

    def __init__(self, run: Callable[[_Poller], None]) -> None:
        super().__init__(name="tail", daemon=True)
        self.key: Hashable = None
        self.since = 0.0
        self.is_abandoned = False
        self.is_reported = False
        self._run_with = run

    def run(self) -> None:
        """Poll until the end."""
        self._run_with(self)

    def is_overdue(self, now: float, seconds: float) -> bool:
        """Whether what it works on takes longer than these seconds."""
        return self.key is not None and now - self.since > seconds


class LogThread(ServiceThread):
    """
    Polls the logs of all servers: when it is notified of a change, and every second anyway.

    Another thread calls `attend` about once a second: one that hangs cannot report itself.

    Args:
        clock: The time.
        errors: Counts failures.
        polled: Called when all logs of a new set were polled once.
    """

    thread: _Poller

    def __init__(self, clock: Clock, errors: InternalErrors, polled: Callable[[], None] = lambda: None) -> None:
        super().__init__(_Poller(self._run), clock)
        self._logs: tuple[LogMonitor, ...] = ()
        self._errors = errors
        self._polled = polled
        self._directories = DirectoryWatcher(self._wake)
        self._refreshed: tuple[tuple[LogMonitor, ...], float] = ((), 0.0)
        self._places: dict[LogMonitor, tuple[float, tuple[Place, ...]]] = {}
        self._lock = threading.Lock()
        self._busy: dict[Hashable, _Poller] = {}

    def follow(self, logs: Sequence[LogMonitor]) -> None:
        """Poll these logs from now on; the first one starts the thread."""
        self._logs = tuple(logs)
        self._wake.set()
        if self._logs and not self.is_started:
            self._directories.start()
            self.start()

    def attend(self) -> None:
        """Let another thread continue for one that hangs, and report the logs that hang."""
        now = running_seconds()
        with self._lock:
            overdue = {key: poller for key, poller in self._busy.items() if poller.is_overdue(now, ABANDONED_AFTER)}
            for poller in list(overdue.values())[:MAX_ABANDONED]:
                poller.is_abandoned = True
            for each in self._logs:
                # A log whose server was configured again waits for the poll that its predecessor started.
                each.is_overdue = each.key in overdue
        if self.thread.is_abandoned:
            # As many helpers as pollers were lately held up: a hundred logs of one dead file server are found in
            # seconds.
            self._go_on(helpers=sum(not poller.is_reported for poller in overdue.values()) - 1)
        for poller in overdue.values():
            if poller.is_overdue(now, HANGS_AFTER):
                self._report(poller)

    def join(self) -> None:
        """Wait for the end of the last poll, but not for what hangs."""
        super().join()
        if self.is_started and _DIRECTORIES not in self._busy:
            self._directories.stop()

    def _go_on(self, helpers: int) -> None:
        """Have another thread poll all logs from now on, and let helpers poll them once."""
        try:
            thread = _Poller(self._run)
            thread.start()
            self.thread = thread
            self.heartbeat.beat()
            for _ in range(helpers):
                _Poller(self._help).start()
        except RuntimeError as error:  # The system's limit: the next `attend` tries again.
            log.warning("threads.start_failed", what="tail", error=str(error))
            self._errors.count("threads")

    def _report(self, poller: _Poller) -> None:
        """Report what a thread works on as hanging."""
        poller.is_reported = True
        key = poller.key
        for each in self._logs:
            if key is _DIRECTORIES:
                each.has_events = False
            elif each.key == key and each.is_overdue:
                each.note_failure("hangs")

    def _run(self, poller: _Poller) -> None:
        polled: tuple[LogMonitor, ...] = ()
        while True:
            is_last = self._stop.is_set()
            self._wake.clear()
            started = running_seconds()
            logs = self._logs
            has_more = self._poll_all(poller, logs)
            if not poller.is_abandoned and self._is_refresh_due(logs):
                self._work_on(poller, _DIRECTORIES, partial(self._refresh, logs))
            if poller.is_abandoned:
                self._wake.set()  # Its log can be polled with the others again.
                return
            self.heartbeat.beat()
            if polled is not logs:
                polled = logs
                self._polled()
            if is_last:
                return
            if not has_more:
                self._clock.wait(self._wake, POLL_SECONDS)
                # Not by the clock: the pause spares this machine's processor, however fast a replay's clock runs.
                self._stop.wait(max(started + PAUSE_SECONDS - running_seconds(), 0))

    def _help(self, poller: _Poller) -> None:
        """Poll the logs that no thread works on, the last one first: from both ends it takes half as long."""
        self._poll_all(poller, self._logs[::-1])
        self._wake.set()

    def _poll_all(self, poller: _Poller, logs: tuple[LogMonitor, ...]) -> bool:
        """Poll each log, until this thread is abandoned; return whether one has more to read at once."""
        has_more = False
        for each in logs:
            if self._work_on(poller, each.key, partial(self._poll, each)):
                has_more = True
            if poller.is_abandoned:
                break
            if poller is self.thread:
                self.heartbeat.beat()
        return has_more

    def _work_on(self, poller: _Poller, key: Hashable, work: Callable[[], bool | None]) -> bool:
        """Do work that may hang, unless another thread does it; return its result."""
        with self._lock:
            if key in self._busy:
                return False
            self._busy[key] = poller
            poller.key, poller.since, poller.is_reported = key, running_seconds(), False
        try:
            return bool(work())
        finally:
            with self._lock:
                del self._busy[key]
                poller.key = None

    def _poll(self, monitor: LogMonitor) -> bool:
        try:
            now = self._clock.now()
            if now >= self._places.get(monitor, (-POLL_SECONDS, ()))[0] + POLL_SECONDS:
                # The directories are looked up here: if that hangs, only this log is affected.
                found = places(monitor.paths)
                with self._lock:
                    self._places[monitor] = (now, found)
            return monitor.poll()
        except Exception:  # One server's log must not silence the others; the next poll tries again.
            log.exception("tail.failed", server=monitor.server)
            self._errors.count("tail")
            monitor.note_failure("internal_error")
            return False

    def _is_refresh_due(self, logs: tuple[LogMonitor, ...]) -> bool:
        """Tell whether to update the watched directories: at once for another set of logs, then once per poll."""
        refreshed, at = self._refreshed
        return refreshed is not logs or self._clock.now() >= at + POLL_SECONDS

    def _refresh(self, logs: tuple[LogMonitor, ...]) -> None:
        """Watch the logs' directories as the last polls found them."""
        self._refreshed = (logs, self._clock.now())
        try:
            with self._lock:  # Helpers may poll meanwhile.
                self._places = {each: self._places[each] for each in logs if each in self._places}
                known = {each: found for each, (_, found) in self._places.items()}
            if self._directories.refresh([place for found in known.values() for place in found]):
                self._wake.set()  # What was written before the watch gave no notification.
            for each in logs:
                each.has_events = self._directories.covers(known.get(each, ()))
        except Exception:  # Without notifications logs are polled.
            log.exception("file_events.failed")
            self._errors.count("file_events")
