# SPDX-License-Identifier: Apache-2.0
"""
One server's log and how far it was read, and the thread that polls the logs of all servers.

It polls each four times a second, and sooner after a hint that a log was rotated. What may hang, a look at a log or at
its folder, is done by `support.hang_guard`: a log whose file system does not answer is left alone until it does, and
the others are read on.
"""

from __future__ import annotations

import math
import re
import threading

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path

import structlog

from vllm_watch.daemon.catalog.reasons import LogReason
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts
from vllm_watch.daemon.service.changes import SourceReports
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.sources.checkpoint import JournalPosition, Positions
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher
from vllm_watch.daemon.sources.journal_tailer import JournalTailer
from vllm_watch.daemon.sources.log_tailer import LogTailer, Tailer, tailer_of
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.hang_guard import HangGuard
from vllm_watch.daemon.support.own_health import InternalErrors, running_seconds


log = structlog.get_logger("vllm_watch.service")

CLOSE_SECONDS = 0.5
"""How long after a poll started `LogMonitor.close` waits for it to end."""

POLL_SECONDS = 0.25
"""How long a line may wait: all logs are polled as often."""

PAUSE_SECONDS = 0.1
"""The least time between two turns, also in a folder where many files are created."""

FOLDER_SECONDS = 5.0
"""How often it is looked up whether the logs' folders are there and the same."""

HANGS_AFTER = 10.0
"""How long a poll takes before its log is reported as hanging."""

MAX_HANGING = 256
"""How many logs may hang at once before they delay another one."""

_FOLDERS = object()
"""The key of watching the logs' folders; a log's is `LogMonitor.key`."""

_GLOB_SIGN = re.compile(r"[*?\[]")

Take = Callable[[Sequence[LogBatch], LogStatus], None]
"""Takes what was read, and how reading goes."""


class LogMonitor:
    """
    Polls one server's log and knows how far it has been read.

    `poll` may be called from several threads, one at a time gets in; once closed it reads nothing. `close` waits for a
    running poll only briefly, since a file system may hang.

    Args:
        config: The server, which has a log.
        clock: The time.
        before: How far an earlier run, or an earlier configuration, has read the logs.
        reports: Where a change of the log's reason is logged.
        take: Takes what was read.
    """

    def __init__(
        self, config: ServerConfig, clock: Clock, before: Positions, *, reports: SourceReports, take: Take
    ) -> None:
        self.server = config.name
        self.key = f"journal {config.journal}" if config.journal is not None else config.log or ""
        """Identifies the log, also across configurations of its server; it stays when the log gets another path."""
        self._clock = clock
        self._reports = reports
        self._take = take
        self._polling = threading.Lock()
        self._poll_started = 0.0
        self._is_closed = False
        self._tailer = tailer_of(config, before, clock)
        self._moves: deque[str] = deque()
        self.positions = before.of(config.log, config.journal)
        """How far the log had been read at the end of the last poll."""
        self._has_positions = self.positions != Positions()
        self._status = LogStatus(is_up=False, reason="starting", tail=TailCounts())
        self._has_warned_of_nuls = False
        self.goes_on: bool | None = None
        """Whether reading went on where the earlier run has stopped, so that it missed no line; `None` until known."""
        self.was_polled = False
        """Whether a first poll has ended, or was given up because it hangs or fails."""
        self.is_overdue = False
        """Whether the running poll takes so long that it may hang; `LogThread` sets it."""
        self.has_events = False
        """Whether the kernel reports changes in the log's folder; `LogThread` sets it."""

    @property
    def folder(self) -> str | None:
        """The folder whose changes mean that there may be something to read; `None` for a journal."""
        if not isinstance(self._tailer, LogTailer):
            return None
        return str(Path(_GLOB_SIGN.split(self._tailer.pattern, maxsplit=1)[0] + "_").parent)  # A folder ends in "/_".

    @property
    def is_waiting(self) -> bool:
        """Whether the log is a program's output and nothing has come yet."""
        return isinstance(self._tailer, JournalTailer) and self._tailer.is_waiting

    def poll(self) -> bool:
        """Read what is new; return whether there is more to read at once."""
        with self._polling:
            if self._is_closed:
                self._tailer.close()  # `close` left it to the next poll.
                return False
            self._poll_started = running_seconds()
            try:
                return self._poll()
            finally:
                if self._is_closed:  # Meanwhile, by a `close` that did not wait.
                    self._tailer.close()

    def move(self, log: str) -> None:
        """Follow another path from the next poll on; what was written to the present file until then is read first."""
        self._moves.append(log)

    def note_failure(self, reason: LogReason) -> None:
        """Report the log as not readable, for a reason that no poll could return; a poll that ends corrects it."""
        self._status = LogStatus(is_up=False, reason=reason, tail=self._status.tail._replace(lag=None))
        self._take((), self._status)
        self._reports.report("log", reason, is_up=False)
        self.was_polled = True

    def close(self) -> None:
        """Close the files, in a thread of its own: closing may hang as well."""
        self._is_closed = True
        if self.is_overdue:
            return
        patience = max(self._poll_started + CLOSE_SECONDS - running_seconds(), 0.0)
        closing = threading.Thread(target=self._close_tailer, args=(patience,), name="close", daemon=True)
        closing.start()
        closing.join(patience + CLOSE_SECONDS)

    def _close_tailer(self, patience: float) -> None:
        # A poll that hangs keeps its files and closes them when it ends: a number closed under it could be another's.
        if self._polling.acquire(timeout=patience):
            self._tailer.close()
            self._polling.release()

    def _poll(self) -> bool:
        tailer, now = self._tailer, self._clock.now()
        batches = tailer.poll(now)
        if isinstance(tailer, LogTailer):
            while self._moves and not tailer.has_more:
                tailer.move(self._moves.popleft(), now)
                batches += tailer.poll(now)
            tailer.watch_mode = "events" if self.has_events else "poll"
        status = tailer.status()
        goes_on = self._goes_on(status)
        if batches or status != self._status or goes_on != self.goes_on:
            self._status, self.goes_on = status, goes_on
            self._take(batches, status)
        self.positions = _positions(tailer)
        if not self.is_waiting:
            self._reports.report("log", status.reason, is_up=status.is_up)
        if status.tail.nul_bytes and not self._has_warned_of_nuls:
            self._warn_of_nuls(status.tail.nul_bytes)
        self.was_polled = True
        return tailer.has_more

    def _goes_on(self, status: LogStatus) -> bool | None:
        if not status.is_up or self.is_waiting:
            return None
        if isinstance(self._tailer, JournalTailer) and self._tailer.has_lost_place:
            return False
        return self._has_positions and not (
            status.tail.files_lost or status.tail.truncations or status.tail.skipped_bytes
        )

    def _warn_of_nuls(self, nul_bytes: int) -> None:
        """Log that truncating this log leaves holes in it."""
        self._has_warned_of_nuls = True
        log.warning(
            "log.nul_bytes",
            server=self.server,
            bytes=nul_bytes,
            meaning="The log's writer lacks O_APPEND, so that truncating the log leaves a hole: start the server with "
            ">> instead of >.",
        )


def _positions(tailer: Tailer) -> Positions:
    if isinstance(tailer, LogTailer):
        return Positions(files=tailer.positions())
    if tailer.cursor is None:
        return Positions()
    return Positions(journals=(JournalPosition(tailer.unit, tailer.cursor),))


class LogThread(ServiceThread):
    """
    Polls the logs of all servers.

    Args:
        polled: Called when all logs of a new set were polled once.
    """

    def __init__(self, clock: Clock, errors: InternalErrors, polled: Callable[[], None] = lambda: None) -> None:
        super().__init__("tail", clock, errors)
        self._logs: tuple[LogMonitor, ...] = ()
        self._polled_logs: tuple[LogMonitor, ...] | None = None
        """The logs of the last turn."""
        self._polled = polled
        self._guard = HangGuard[Hashable](MAX_HANGING)
        self._watcher = DirectoryWatcher(self._wake)
        self._folders_at = -math.inf

    def follow(self, logs: Sequence[LogMonitor]) -> None:
        """Poll these logs from now on; the first one starts the thread."""
        self._logs = tuple(logs)
        self._wake.set()
        if self._logs:
            self.start()

    def _turn(self) -> float:
        """Poll each log at which nothing hangs."""
        logs = self._logs
        by_key: dict[Hashable, list[LogMonitor]] = {}
        for each in logs:
            by_key.setdefault(each.key, []).append(each)
        have_more = self._guard.run_each({key: partial(self._poll, same) for key, same in by_key.items()})
        self._note_hanging(logs)
        is_new = logs is not self._polled_logs
        if is_new or self._clock.now() >= self._folders_at + FOLDER_SECONDS:
            self._watch(logs)
        if is_new:
            self._polled_logs = logs
            self._polled()
        if any(have_more.values()):
            return 0.0
        # Not by the clock: the pause spares this machine's processor, however fast a replay's clock runs.
        self._stop.wait(PAUSE_SECONDS)
        return POLL_SECONDS - PAUSE_SECONDS

    def _close(self) -> None:
        """Read what was written last, and end the watch of the folders, unless that hangs."""
        self._turn()
        if _FOLDERS not in self._guard.hanging:
            self._watcher.stop()

    def _watch(self, logs: Sequence[LogMonitor]) -> None:
        """Watch the logs' folders."""
        self._folders_at = self._clock.now()
        folders = {each.folder for each in logs if each.folder is not None}
        self._guard.run_each({_FOLDERS: partial(self._refresh, folders)})
        for each in logs:
            each.has_events = _FOLDERS not in self._guard.hanging and self._watcher.covers(each.folder)

    def _refresh(self, folders: Collection[str]) -> None:
        try:
            self._watcher.watch(folders)
        except Exception:  # Without hints logs are polled.
            log.exception("file_events.failed")
            self._errors.count("file_events")

    def _poll(self, logs: Iterable[LogMonitor]) -> bool:
        """Poll the logs of one path; return whether there is more to read of any."""
        have_more = [self._poll_one(each) for each in logs]
        return any(have_more)

    def _poll_one(self, monitor: LogMonitor) -> bool:
        try:
            return monitor.poll()
        except Exception:  # One server's log must not silence the others; the next poll tries again.
            log.exception("tail.failed", server=monitor.server)
            self._errors.count("tail")
            monitor.note_failure("internal_error")
            return False

    def _note_hanging(self, logs: Sequence[LogMonitor]) -> None:
        """Report the logs that hang. One whose server was configured again waits for its predecessor's poll."""
        hanging, now = self._guard.hanging, running_seconds()
        for each in logs:
            each.is_overdue = each.key in hanging
            if each.is_overdue and now - self._guard.since[each.key] > HANGS_AFTER:
                each.note_failure("hangs")
