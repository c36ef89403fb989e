# SPDX-License-Identifier: Apache-2.0
"""The folders of the logs that are polled: which of them are watched, and which logs an event is about."""

from __future__ import annotations

import threading

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vllm_watch.daemon.service.log_monitor import LogMonitor
from vllm_watch.daemon.service.poll_schedule import POLL_SECONDS, BusyFolders
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher, Place, is_current, places


FIND_SECONDS = 10.0
"""How often the places of a log are looked up from the start, for its path may lead through a link that was changed."""


class _Found(NamedTuple):
    """Where changes of a log's paths are seen, when that was looked up and when it was last checked."""

    places: tuple[Place, ...]
    paths: tuple[str, ...]
    found_at: float
    checked_at: float


class LogFolders:
    """
    Watches the folders of logs, and lets those rest in which too much happens.

    `check` may be called from several threads, everything else from one at a time.

    Args:
        wake: The event that is set when a log may have changed.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._watcher = DirectoryWatcher(wake)
        self._busy = BusyFolders()
        self._lock = threading.Lock()
        self._found: dict[LogMonitor, _Found] = {}
        self._logs_by_prefix: dict[str, list[LogMonitor]] = {}
        self._refreshed: tuple[Sequence[LogMonitor], float] = ((), float("-inf"))
        self._resting: frozenset[str] = frozenset()
        self.start, self.stop = self._watcher.start, self._watcher.stop

    def check(self, log: LogMonitor, now: float) -> None:
        """Look up where changes of a log are seen, about once a second; like reading, this may hang."""
        found = self._found.get(log)
        if found is not None and now < found.checked_at + POLL_SECONDS:
            return
        paths = log.paths
        if (
            found is None
            or now >= found.found_at + FIND_SECONDS
            or paths != found.paths
            or not all(map(is_current, found.places))
        ):
            found = _Found(places(paths), paths, now, now)
        with self._lock:
            self._found[log] = found._replace(checked_at=now)

    def take_changed(self, now: float) -> set[LogMonitor]:
        """Return the logs of which a change was notified since the last time."""
        changes = self._watcher.take_changes()
        if changes is None:
            return set()
        self._busy.note_events(changes.events, now)
        return {log for prefix in changes.prefixes for log in self._logs_by_prefix.get(prefix, ())}

    def note_poll(self, log: LogMonitor) -> None:
        """Take in that a log was polled: whether those in a folder that rests have grown decides how long it does."""
        if self._resting and log.has_grown and log in self._found:
            self._busy.note_growth(place.folder for place in self._found[log].places if place.folder in self._resting)

    def is_refresh_due(self, logs: Sequence[LogMonitor], now: float) -> bool:
        """Tell whether to update the watches: at once for other logs and busy folders, then about once a second."""
        refreshed, at = self._refreshed
        return refreshed is not logs or self._resting != self._busy.current or now >= at + POLL_SECONDS

    def refresh(self, logs: Sequence[LogMonitor], now: float) -> set[LogMonitor]:
        """
        Watch the logs' folders as they were found last; like reading, this may hang.

        Return the logs that may have changed without a notification: their folders were not watched before, or are
        not watched any more.
        """
        self._refreshed = (logs, now)
        self._busy.review(now)
        before, self._resting = self._resting, self._busy.current
        with self._lock:  # Others may check logs meanwhile.
            self._found = {log: self._found[log] for log in logs if log in self._found}
            known = {log: found.places for log, found in self._found.items()}
        self._logs_by_prefix = _by_prefix(known.items())
        watched = self._watcher.refresh([place for found in known.values() for place in found], self._resting)
        for log in logs:
            log.has_events = self._watcher.covers(known.get(log, ()))
        changed = {*watched, *(self._resting - before)}
        return {log for log, found in known.items() if any(place.folder in changed for place in found)}


def _by_prefix(known: Iterable[tuple[LogMonitor, tuple[Place, ...]]]) -> dict[str, list[LogMonitor]]:
    found: dict[str, list[LogMonitor]] = {}
    for log, log_places in known:
        for place in log_places:
            found.setdefault(place.prefix, []).append(log)
    return found
