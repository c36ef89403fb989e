# SPDX-License-Identifier: Apache-2.0
"""
The thread that polls the logs: each four times a second, and at once when its folder gives a hint.

What may hang, a look at a log or at its folder, is done by `support.hang_guard`: a log whose file system does not
answer is left alone until it does, and the others are read on.
"""

from __future__ import annotations

import threading

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial

import structlog

from vllm_watch.daemon.service.log_monitor import LogMonitor
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher, Place, places
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.hang_guard import HangGuard
from vllm_watch.daemon.support.own_health import InternalErrors, running_seconds


log = structlog.get_logger("vllm_watch.service")

POLL_SECONDS = 0.25
"""How often all logs are polled, whatever is hinted."""

FOLDER_SECONDS = 5.0
"""How often it is looked up which folders logs are in, for their paths may lead through links that change."""

PAUSE_SECONDS = 0.05
"""The least time between two turns: a busy log is read in pieces, not line by line."""

HANGS_AFTER = 10.0
"""How long a poll takes before its log is reported as hanging."""

MAX_HANGING = 256
"""How many logs may hang at once before they delay another one."""

_FOLDERS = object()
"""The key of watching the logs' folders; a log's is `LogMonitor.key`."""


class LogThread(ServiceThread):
    """
    Polls the logs of all servers.

    Args:
        clock: The time.
        errors: Counts failures.
        polled: Called when all logs of a new set were polled once.
    """

    def __init__(self, clock: Clock, errors: InternalErrors, polled: Callable[[], None] = lambda: None) -> None:
        super().__init__(threading.Thread(target=self._run, name="tail", daemon=True), clock)
        self._logs: tuple[LogMonitor, ...] = ()
        self._errors = errors
        self._polled = polled
        self._guard = HangGuard[Hashable](MAX_HANGING)
        self._watcher = DirectoryWatcher(self._wake)
        self._places: dict[LogMonitor, tuple[Place, ...]] = {}
        self._are_places_due = False

    def follow(self, logs: Sequence[LogMonitor]) -> None:
        """Poll these logs from now on; the first one starts the thread."""
        self._logs = tuple(logs)
        self._wake.set()
        if self._logs and not self.is_started:
            self._watcher.start()
            self.start()

    def join(self) -> None:
        """Wait for the end of the last poll, but not for what hangs."""
        super().join()
        if self.is_started and _FOLDERS not in self._guard.hanging:
            self._watcher.stop()

    def _run(self) -> None:
        logs: tuple[LogMonitor, ...] = ()
        backlogs: Collection[LogMonitor] = ()
        all_at = folders_at = float("-inf")
        while True:
            is_last, started = self._stop.is_set(), running_seconds()
            self._wake.clear()
            now = self._clock.now()
            is_new = logs is not self._logs
            logs = self._logs
            self._are_places_due = is_new or now >= folders_at + FOLDER_SECONDS
            if is_last or is_new or now >= all_at + POLL_SECONDS:
                all_at = now
                backlogs = self._poll_all(logs)
            else:
                backlogs = self._poll_all(self._hinted(backlogs))
            if self._are_places_due:
                folders_at = now
                self._watch(logs)
            self._note_hanging(logs)
            self.heartbeat.beat()
            if is_new:
                self._polled()
            if is_last:
                return
            if not backlogs:
                self._wait(all_at, started)

    def _hinted(self, backlogs: Collection[LogMonitor]) -> Sequence[LogMonitor]:
        """Return the logs with a backlog, and those that may have changed."""
        changed = self._watcher.take_changed()
        return [
            each
            for each in self._logs
            if each in backlogs or any(place.prefix in changed for place in self._places.get(each, ()))
        ]

    def _wait(self, all_at: float, started: float) -> None:
        """Wait until a log is due, after a turn that began at `started`, in seconds that the machine has run."""
        # Not by the clock: the pause spares this machine's processor, however fast a replay's clock runs.
        self._stop.wait(max(started + PAUSE_SECONDS - running_seconds(), 0.0))
        self._clock.wait(self._wake, max(all_at + POLL_SECONDS - self._clock.now(), 0.0))

    def _poll_all(self, logs: Iterable[LogMonitor]) -> Collection[LogMonitor]:
        """Poll each log at which nothing hangs; return those of which there is more to read at once."""
        by_key: dict[Hashable, list[LogMonitor]] = {}
        for each in logs:
            by_key.setdefault(each.key, []).append(each)
        more = self._guard.run_each({key: partial(self._poll, same) for key, same in by_key.items()})
        return [each for same in more.values() for each in same]

    def _poll(self, logs: Sequence[LogMonitor]) -> Sequence[LogMonitor]:
        """Poll the logs of one path; return those of which there is more to read."""
        return [each for each in logs if self._poll_one(each)]

    def _poll_one(self, monitor: LogMonitor) -> bool:
        try:
            if self._are_places_due:
                self._places[monitor] = places(monitor.paths)  # Here: if that hangs, only this log is affected.
            return monitor.poll()
        except Exception:  # One server's log must not silence the others; the next poll tries again.
            log.exception("tail.failed", server=monitor.server)
            self._errors.count("tail")
            monitor.note_failure("internal_error")
            return False

    def _watch(self, logs: Sequence[LogMonitor]) -> None:
        """Watch the logs' folders as the last polls found them."""
        self._places = {each: self._places[each] for each in logs if each in self._places}
        self._guard.run_each({_FOLDERS: partial(self._refresh, dict(self._places))})
        for each in logs:
            each.has_events = _FOLDERS not in self._guard.hanging and self._watcher.covers(self._places.get(each, ()))

    def _refresh(self, found: dict[LogMonitor, tuple[Place, ...]]) -> None:
        try:
            self._watcher.refresh([place for in_one in found.values() for place in in_one])
        except Exception:  # Without hints logs are polled.
            log.exception("file_events.failed")
            self._errors.count("file_events")

    def _note_hanging(self, logs: Sequence[LogMonitor]) -> None:
        """Report the logs that hang. One whose server was configured again waits for its predecessor's poll."""
        hanging, now = self._guard.hanging, running_seconds()
        for each in logs:
            each.is_overdue = each.key in hanging
            if each.is_overdue and now - self._guard.since[each.key] > HANGS_AFTER:
                each.note_failure("hangs")
