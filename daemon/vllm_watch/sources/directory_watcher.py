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
import time

from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch


MAX_FOLDERS = 64
"""Each watched folder takes a thread; logs in further ones are polled."""

RETRY_SECONDS = 60.0
"""How long after a watch was refused it is asked for again."""

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


class Place(NamedTuple):
    """
    Where changes of a path or glob are to be seen.

    `beginning` is how their names begin: the folder behind all links, up to the first glob sign. `identity` tells the
    folder from another one of the same name; there is none where there is no folder.
    """

    beginning: str
    folder: str
    identity: tuple[int, int] | None


class _Watched(NamedTuple):
    watch: ObservedWatch
    identity: tuple[int, int]


class DirectoryWatcher:
    """
    Sets an event whenever a followed log may have changed.

    Where that is impossible (no watches left, no such folder) it says so once and does nothing: `covers` tells.

    Args:
        wake: The event.
        clock: Seconds, for trying again where there was no watch left.
    """

    def __init__(self, wake: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._handler = _Hint(wake)
        self._clock = clock
        self._observer: BaseObserver | None = None
        self._watches: dict[str, _Watched] = {}
        self._refused: dict[str, float] = {}

    def start(self) -> None:
        """Begin; without means to watch, hints never come."""
        try:
            observer = Observer()
            observer.start()
        except (OSError, RuntimeError) as error:  # No inotify, no room for a thread.
            log.warning("file_events.unavailable", error=str(error), effect="logs are polled")
            return
        self._observer = observer

    def refresh(self, found: Iterable[Place]) -> bool:
        """
        Watch the folders of these places that are there, and anew those that were replaced.

        Folders of none of them are not watched any more. Return whether one is watched that was not before.
        """
        observer = self._living()
        if observer is None:
            return False
        found = tuple(found)
        self._handler.beginnings = tuple(dict.fromkeys(place.beginning for place in found))
        wanted = dict(list({place.folder: place.identity for place in found}.items())[:MAX_FOLDERS])
        for folder in self._watches.keys() - wanted.keys():
            self._forget(observer, folder)
        self._refused = {folder: at for folder, at in self._refused.items() if folder in wanted}
        deaf = {emitter.watch for emitter in observer.emitters if not emitter.is_alive()}
        before = set(self._watches.values())
        for folder, identity in wanted.items():
            known = self._watches.get(folder)
            if known is not None:
                if known.identity == identity and folder not in self._handler.gone and known.watch not in deaf:
                    continue
                self._forget(observer, folder)
            if identity is not None:
                self._watch(observer, folder, identity)
        return not before.issuperset(self._watches.values())

    def covers(self, found: Iterable[Place]) -> bool:
        """Tell whether changes of all these places, of which there are some, give hints."""
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
        refused_at = self._refused.get(folder)
        if refused_at is not None and self._clock() - refused_at < RETRY_SECONDS:
            return
        try:
            self._watches[folder] = _Watched(observer.schedule(self._handler, folder), identity)
            self._refused.pop(folder, None)
        except (OSError, RuntimeError) as error:
            self._refused[folder] = self._clock()
            if refused_at is None:
                log.warning("file_events.watch_failed", folder=folder, error=str(error), effect="the log is polled")

    def _forget(self, observer: BaseObserver, folder: str) -> None:
        watch, _ = self._watches.pop(folder)
        self._handler.gone.discard(folder)
        try:
            observer.unschedule(watch)
        except (KeyError, OSError):
            return  # It went with its folder.


def places(paths: Iterable[str]) -> tuple[Place, ...]:
    """Return where changes of these paths and globs are to be seen now; asking for that may hang as reading may."""
    return tuple(_place(path) for path in paths)


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
