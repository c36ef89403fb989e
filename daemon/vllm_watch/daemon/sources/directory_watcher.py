# SPDX-License-Identifier: Apache-2.0
"""
Hints that a log may have changed, through inotify, so that it is polled at once instead of at its next turn.

Hints may be missing: they are lost when the kernel's queue overflows, some file systems send none, and they end when a
watched folder is removed. So folders that were replaced are watched again, and polling never stops.
"""

from __future__ import annotations

import os
import re
import threading
import time

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import structlog

from watchdog.events import (
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch


MAX_FOLDERS = 64
"""Each watched folder takes a thread; logs in further ones are polled."""

RETRY_SECONDS = 60.0
"""Seconds until a folder that could not be watched is tried again."""

_GLOB_SIGN = re.compile(r"[*?\[]")

log = structlog.get_logger("vllm_watch.wake")

_CHANGES: list[type[FileSystemEvent]] = [
    FileModifiedEvent, FileCreatedEvent, FileMovedEvent, FileDeletedEvent, DirMovedEvent, DirDeletedEvent
]  # fmt: skip
"""The changes of a log, and of its folder; the kernel is asked for no others, such as that a file is opened."""


class Place(NamedTuple):
    """
    The folder in which changes of a path or glob are seen.

    `prefix` is what all its paths start with: the folder with all links resolved, up to the first glob sign.
    `identity` tells the folder from another one of the same name; it is `None` if there is no folder.
    """

    prefix: str
    folder: str
    identity: tuple[int, int] | None


def places(paths: Iterable[str]) -> tuple[Place, ...]:
    """Return where changes of these paths and globs are seen now; like reading, this may hang."""
    return tuple(_place(path) for path in paths)


class _Notifier(FileSystemEventHandler):
    """Sets the event for changes of paths that start like a log's: a folder may be busy with other files."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self.prefixes: Mapping[str, Collection[str]] = {}
        """What the logs' paths start with, by folder."""
        self.changed: set[str] = set()
        """The prefixes of the logs that may have changed."""
        self.gone: set[str] = set()
        """Watched folders that were removed: a new one of the same name may have the same inode."""

    def on_any_event(self, event: FileSystemEvent) -> None:
        source, target = os.fsdecode(event.src_path), os.fsdecode(event.dest_path)
        if event.event_type in {"deleted", "moved"} and event.is_directory:
            self.gone.add(source)
        for prefix in self.prefixes.get(os.path.dirname(source), ()):
            if source.startswith(prefix) or target.startswith(prefix):
                self.changed.add(prefix)
                self._wake.set()


class _Watched(NamedTuple):
    watch: ObservedWatch
    identity: tuple[int, int]


class DirectoryWatcher:
    """
    Sets an event whenever a followed log may have changed.

    If that is impossible (no watches left, no such folder) it logs that once; `covers` tells whether it is possible.
    The clock is for trying again after a failure.
    """

    def __init__(self, wake: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._handler = _Notifier(wake)
        self._clock = clock
        self._observer: BaseObserver | None = None
        self._watches: dict[str, _Watched] = {}
        self._failed: dict[str, float] = {}

    def start(self) -> None:
        """Start the watching thread; if that fails, no hint ever comes."""
        try:
            observer = Observer()
            observer.start()
        except (OSError, RuntimeError) as error:  # No inotify, no room for a thread.
            log.warning("file_events.unavailable", error=str(error), effect="logs are polled")
            return
        self._observer = observer

    def take_changed(self) -> Collection[str]:
        """Return the prefixes of the logs that may have changed since this was asked last."""
        changed, self._handler.changed = self._handler.changed, set()
        return changed

    def refresh(self, found: Iterable[Place]) -> None:
        """Watch the folders of these places that exist, and again those that were replaced; stop watching others."""
        observer = self._living()
        if observer is None:
            return
        found = tuple(found)
        prefixes: dict[str, set[str]] = {}
        for place in found:
            prefixes.setdefault(place.folder, set()).add(place.prefix)
        self._handler.prefixes = prefixes
        wanted = dict(list({place.folder: place.identity for place in found}.items())[:MAX_FOLDERS])
        self._failed = {folder: at for folder, at in self._failed.items() if folder in wanted}
        deaf = {emitter.watch for emitter in observer.emitters if not emitter.is_alive()}
        for folder, (watch, identity) in list(self._watches.items()):
            if wanted.get(folder) != identity or folder in self._handler.gone or watch in deaf:
                self._forget(observer, folder)
        for folder, wanted_identity in wanted.items():
            if wanted_identity is not None and folder not in self._watches:
                self._watch(observer, folder, wanted_identity)

    def covers(self, found: Iterable[Place]) -> bool:
        """Tell whether changes of all these places are notified; without places they are not."""
        folders = [place.folder for place in found]
        return bool(folders) and self._living() is not None and all(folder in self._watches for folder in folders)

    def stop(self) -> None:
        """End the watching thread."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(2)
            self._observer = None

    def _living(self) -> BaseObserver | None:
        if self._observer is not None and not self._observer.is_alive():
            log.warning("file_events.stopped", effect="logs are polled")
            self.stop()
            self._watches.clear()
        return self._observer

    def _watch(self, observer: BaseObserver, folder: str, identity: tuple[int, int]) -> None:
        failed_at = self._failed.get(folder)
        if failed_at is not None and self._clock() - failed_at < RETRY_SECONDS:
            return
        try:
            self._watches[folder] = _Watched(observer.schedule(self._handler, folder, event_filter=_CHANGES), identity)
            self._failed.pop(folder, None)
        except (OSError, RuntimeError) as error:
            self._failed[folder] = self._clock()
            if failed_at is None:
                log.warning("file_events.watch_failed", folder=folder, error=str(error), effect="the log is polled")

    def _forget(self, observer: BaseObserver, folder: str) -> None:
        watch, _ = self._watches.pop(folder)
        self._handler.gone.discard(folder)
        try:
            observer.unschedule(watch)
        except (KeyError, OSError):
            return  # It went with its folder.


def _place(path: str) -> Place:
    folder, name = os.path.split(_GLOB_SIGN.split(path, maxsplit=1)[0])
    folder = os.path.realpath(folder)
    return Place(os.path.join(folder, name), folder, _identity(folder))


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
