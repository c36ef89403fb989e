# SPDX-License-Identifier: Apache-2.0
"""
Hints that a log was rotated or began, by watchdog: with one, the logs are polled at once.

Nothing depends on them. Some file systems send none, a link's target lies in another folder, and the kernel's watches
are limited: logs are polled in any case. That a log grows is no hint: taking 500 of them a second costs more than
reading the lines.
"""

from __future__ import annotations

import os
import threading

from collections.abc import Collection
from typing import NamedTuple

import structlog

from watchdog.events import FileCreatedEvent, FileMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch


MAX_FOLDERS = 64
"""Each watched folder takes a thread; logs in further ones are only polled."""

log = structlog.get_logger("vllm_watch.sources")


class _Waker(FileSystemEventHandler):
    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        del event
        self._wake.set()


class _Watched(NamedTuple):
    watch: ObservedWatch
    identity: tuple[int, int]
    """A folder of the same name with another identity has taken its place, and sends nothing to this watch."""


class DirectoryWatcher:
    """Sets an event whenever a file in a watched folder is created or gets another name."""

    def __init__(self, wake: threading.Event) -> None:
        self._handler = _Waker(wake)
        self._observer: BaseObserver | None = None
        self._watched: dict[str, _Watched] = {}
        self._failed: set[str] = set()

    def watch(self, folders: Collection[str]) -> None:
        """Watch these folders, as far as they exist, and no others; like reading, this may hang."""
        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        there = {folder: identity for folder in folders if (identity := _identity(folder)) is not None}
        for folder, watched in list(self._watched.items()):
            if there.get(folder) != watched.identity:
                self._observer.unschedule(self._watched.pop(folder).watch)
        for folder in list(there)[:MAX_FOLDERS]:
            if folder not in self._watched:
                self._schedule(self._observer, folder, there[folder])

    def covers(self, folder: str | None) -> bool:
        """Tell whether a folder is watched."""
        return folder in self._watched

    def stop(self) -> None:
        """End the watching threads."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(2)
            self._observer = None
        self._watched.clear()

    def _schedule(self, observer: BaseObserver, folder: str, identity: tuple[int, int]) -> None:
        try:
            watch = observer.schedule(self._handler, folder, event_filter=[FileCreatedEvent, FileMovedEvent])
        except OSError as error:  # The folder has just gone, or the kernel has no more watches.
            if folder not in self._failed:
                log.warning("file_events.unavailable", folder=folder, error=str(error), effect="its logs are polled")
            self._failed.add(folder)
            return
        self._failed.discard(folder)
        self._watched[folder] = _Watched(watch, identity)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
