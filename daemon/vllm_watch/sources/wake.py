# SPDX-License-Identifier: Apache-2.0
"""
Hints that a log may have grown, so that its reader looks at once instead of at its next turn.

A hint may be missing: events are lost when the kernel's queue overflows, come not at all from some file systems,
and end when a watched folder is removed. So folders are watched anew when they change, and polling goes on.
"""

from __future__ import annotations

import os
import re
import threading

from collections.abc import Iterable

import structlog

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch


_GLOB_SIGN = re.compile(r"[*?\[]")

log = structlog.get_logger("vllm_watch.wake")


_CHANGES = frozenset({"modified", "created", "moved", "deleted"})
"""What happens to a log; that it is opened and read is an event, too."""


class _Hint(FileSystemEventHandler):
    """Wakes for changes of the paths that begin as a log's does: a folder may be busy with other files."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self.beginnings: tuple[str, ...] = ()
        self.gone: set[str] = set()
        """Watched folders that were removed: a new one of the same name may even have the same inode."""

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type in {"deleted", "moved"} and event.is_directory:
            self.gone.add(os.fsdecode(event.src_path))
        if event.event_type in _CHANGES and self._concerns(event):
            self._wake.set()

    def _concerns(self, event: FileSystemEvent) -> bool:
        paths = (os.fsdecode(event.src_path), os.fsdecode(event.dest_path))
        return any(path.startswith(self.beginnings) for path in paths if path)


class FolderWatch:
    """
    Sets an event whenever something in some folders changes.

    Where that is impossible (no watches left, no such folder) it says so once and does nothing.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._handler = _Hint(wake)
        self._observer = Observer()
        self._watches: dict[str, tuple[ObservedWatch, tuple[int, int]]] = {}
        self._refused: set[str] = set()
        self._is_running = False

    def start(self) -> None:
        """Begin; without means to watch, hints never come."""
        try:
            self._observer.start()
            self._is_running = True
        except OSError as error:
            log.warning("wake.unavailable", error=error.strerror)

    def refresh(self, patterns: Iterable[str]) -> None:
        """Watch the folders of these paths and globs that are there now, and anew those that were replaced."""
        if not self._is_running:
            return
        self._handler.beginnings = tuple({_GLOB_SIGN.split(pattern, maxsplit=1)[0] for pattern in patterns})
        for folder in {os.path.dirname(beginning) for beginning in self._handler.beginnings}:
            identity = _identity(folder)
            known = self._watches.get(folder)
            if known is not None and known[1] == identity and folder not in self._handler.gone:
                continue
            self._handler.gone.discard(folder)
            if known is not None:
                self._forget(folder)
            if identity is not None:
                self._watch(folder, identity)

    def stop(self) -> None:
        """End the watching thread."""
        if self._is_running:
            self._observer.stop()
            self._observer.join(2)
            self._is_running = False

    def _watch(self, folder: str, identity: tuple[int, int]) -> None:
        try:
            self._watches[folder] = (self._observer.schedule(self._handler, folder), identity)
            self._refused.discard(folder)
        except OSError as error:
            if folder not in self._refused:
                self._refused.add(folder)
                log.warning("wake.refused", folder=folder, error=error.strerror, effect="the log is polled")

    def _forget(self, folder: str) -> None:
        watch, _ = self._watches.pop(folder)
        try:
            self._observer.unschedule(watch)
        except (KeyError, OSError):
            return  # It went with its folder.


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
