# SPDX-License-Identifier: Apache-2.0
"""
The threads that poll the logs: one for all of them, and one more for each log whose file system does not answer.

A thread that waits in the kernel for a file server that is gone cannot be ended. So this thread is left alone with its
log, and a new thread polls the other logs. When the file system answers again, the old thread ends, and its log is
polled together with the others. `discovery.hang_guard` does the same where details of processes are read.
"""

from __future__ import annotations

import threading

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import structlog

from vllm_watch.daemon.service.log_folders import LogFolders
from vllm_watch.daemon.service.log_monitor import LogMonitor
from vllm_watch.daemon.service.poll_schedule import PollSchedule
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors, running_seconds


log = structlog.get_logger("vllm_watch.service")

PAUSE_SECONDS = 0.01
"""The least time between two turns: a busy log is read in pieces, not line by line."""

ABANDONED_AFTER = 1.0
"""How long a poll may take before another thread continues with the other logs."""

CATCH_UP_SECONDS = 0.05
"""How long who asks for what the logs report waits until the last lines are read."""

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
    Polls the logs of all servers, as `PollSchedule` decides: every second, when it is notified of a change, and when
    somebody asks for what they report.

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
        self._folders = LogFolders(self._wake)
        self._schedule = PollSchedule[LogMonitor]()
        self._is_all_due = self._has_backlog = False
        self._hurry = threading.Event()
        """Set when a poll must not wait for notifications with which it would be shared."""
        self._askers: list[threading.Event] = []
        """Set at the end of the next turn."""
        self._lock = threading.Lock()
        self._busy: dict[Hashable, _Poller] = {}

    def follow(self, logs: Sequence[LogMonitor]) -> None:
        """Poll these logs from now on; the first one starts the thread."""
        self._logs = tuple(logs)
        self._poll_all_now()
        if self._logs and not self.is_started:
            self._folders.start()
            self.start()

    def catch_up(self) -> None:
        """Have lines read that would wait for the next poll, and wait for that, but not for long; for any thread."""
        if not self.is_started or self._has_backlog:
            return
        caught_up = threading.Event()
        with self._lock:
            self._askers.append(caught_up)
        self._hurry.set()
        self._wake.set()
        caught_up.wait(CATCH_UP_SECONDS)

    def request_stop(self) -> None:
        """Make it end soon; this does not wait for the end."""
        super().request_stop()
        self._hurry.set()

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
            self._folders.stop()

    def _go_on(self, helpers: int) -> None:
        """Have another thread poll all logs from now on, and let helpers poll them once."""
        try:
            thread = _Poller(self._run)
            self._is_all_due = True
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

    def _poll_all_now(self) -> None:
        """Have the thread poll all logs at once; any thread may call this."""
        self._is_all_due = True
        self._hurry.set()
        self._wake.set()

    def _run(self, poller: _Poller) -> None:
        polled: tuple[LogMonitor, ...] = ()
        while True:
            is_last = self._stop.is_set()
            self._wake.clear()
            self._hurry.clear()
            with self._lock:
                askers, self._askers = self._askers, []
            started = running_seconds()
            logs, now = self._logs, self._clock.now()
            due = self._due(logs, now, is_last=is_last, is_asked=bool(askers))
            has_more = self._poll_all(poller, due, now)
            if not poller.is_abandoned and self._folders.is_refresh_due(logs, now):
                self._work_on(poller, _DIRECTORIES, partial(self._refresh, logs))
            if poller.is_abandoned:
                self._poll_all_now()  # Its log can be polled with the others again.
                return
            self._has_backlog = bool(has_more)
            self._schedule.poll_soon(has_more)
            self.heartbeat.beat()
            for asker in askers:
                asker.set()
            if polled is not logs:
                polled = logs
                self._polled()
            if is_last:
                return
            self._wait(started)

    def _due(self, logs: tuple[LogMonitor, ...], now: float, *, is_last: bool, is_asked: bool) -> Sequence[LogMonitor]:
        """Return the logs that are to be polled now."""
        schedule = self._schedule
        changed = self._folders.take_changed(now)
        if schedule.logs is not logs:
            schedule.follow(logs)
        if self._is_all_due or is_last:
            self._is_all_due = False
            schedule.poll_all()
        return schedule.take_due(changed, now, is_asked=is_asked)

    def _wait(self, started: float) -> None:
        """Wait until a log is due, after a turn that began at `started`, in seconds that the machine has run."""
        seconds = self._schedule.wait(self._clock.now())
        if not seconds:
            return
        if self._clock.wait(self._wake, seconds):
            self._clock.wait(self._hurry, self._schedule.pause(self._clock.now()))
        # Not by the clock: the pause spares this machine's processor, however fast a replay's clock runs.
        pause = started + PAUSE_SECONDS - running_seconds()
        if pause > 0:
            self._stop.wait(pause)

    def _help(self, poller: _Poller) -> None:
        """Poll the logs that no thread works on, the last one first: from both ends it takes half as long."""
        self._poll_all(poller, self._logs[::-1], self._clock.now())
        self._poll_all_now()

    def _poll_all(self, poller: _Poller, logs: Sequence[LogMonitor], now: float) -> Sequence[LogMonitor]:
        """Poll each log, until this thread is abandoned; return those of which there is more to read at once."""
        more = []
        for each in logs:
            if self._work_on(poller, each.key, partial(self._poll, each, now)):
                more.append(each)
            if poller.is_abandoned:
                break
            if poller is self.thread:
                self._folders.note_poll(each)
                self.heartbeat.beat()
        return more

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

    def _poll(self, monitor: LogMonitor, now: float) -> bool:
        try:
            self._folders.check(monitor, now)  # Here: if that hangs, only this log is affected.
            return monitor.poll()
        except Exception:  # One server's log must not silence the others; the next poll tries again.
            log.exception("tail.failed", server=monitor.server)
            self._errors.count("tail")
            monitor.note_failure("internal_error")
            return False

    def _refresh(self, logs: tuple[LogMonitor, ...]) -> None:
        """Watch the logs' folders as the last polls found them."""
        try:
            self._schedule.poll_soon(self._folders.refresh(logs, self._clock.now()))
        except Exception:  # Without notifications logs are polled.
            log.exception("file_events.failed")
            self._errors.count("file_events")
