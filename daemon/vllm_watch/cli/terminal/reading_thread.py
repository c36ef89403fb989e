# SPDX-License-Identifier: Apache-2.0
"""
What every mode of `top` reads its documents with, and the thread that makes frames of them.

Nothing that draws ever waits for a server.
"""

from __future__ import annotations

import threading

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from vllm_watch.cli.terminal.frames import Frame, Lost, Point, View, frame_of
from vllm_watch.daemon.catalog.codes import SERVERS_WITH_HOUR
from vllm_watch.daemon.exposition.document import decode
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import VllmWatchError, WrongDaemonError


if TYPE_CHECKING:  # It loads requests, which the other modes do without.
    from vllm_watch.daemon.sources.daemon_client import DaemonClient


RECENT_POINTS = 150
"""How many of the last readings of a server are kept: five minutes at the usual delay."""

STOP_SECONDS = 2.0
"""How long `stop` waits for a reading that has to end."""

ANSWER_SECONDS = 5.0
"""How long a request to a daemon may take: longer than one of 200 servers needs, and no longer than people wait."""

_PAUSE_SECONDS = 0.25
_FAILED = "reading fails inside this program: {}"


class DocumentReader(ABC):
    """What returns the document of ``/api/v1/snapshot``; all but `close` is called from one thread."""

    title: str
    """What is read, in a few words."""

    @property
    def is_settled(self) -> bool:
        """Whether every source has been read as often as its numbers need."""
        return True

    def start(self) -> None:  # noqa: B027  # Most have nothing to start, or to close.
        """Start to watch; it is called once, before the first `read`, and may raise a `VllmWatchError`."""

    @abstractmethod
    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return a document of now.

        Args:
            hours: Of which servers it has the last hour; `None` for all.

        Raises:
            VllmWatchError: There is none now.
        """

    def close(self) -> None:  # noqa: B027
        """End what is running, a `read` included, and give everything back. Any thread may call it."""


class DaemonReader(DocumentReader):
    """Reads the snapshot of a running vllm-watch, over HTTP."""

    def __init__(self, title: str, client: DaemonClient) -> None:
        self.title = title
        self._client = client

    def read(self, hours: Collection[str] | None) -> bytes:
        """Return the snapshot; raise a `DaemonError` if it cannot be reached, or answers something else."""
        return self._client.snapshot(hours)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Settled(NamedTuple):
    """A document, and the same as values."""

    body: bytes
    frame: Frame


def read_settled(reader: DocumentReader, clock: Clock, seconds: float, only: str | None = None) -> Settled:
    """
    Return what is known once each source has been read as often as its numbers need, or when the time is over.

    Args:
        reader: What is read; it is started, and not closed.
        clock: The time.
        seconds: How long to wait at most, beside what one reading takes.
        only: The only server that counts.

    Raises:
        VllmWatchError: Nothing can be read.
    """

    def read(hours: Collection[str]) -> Settled:
        body = reader.read(hours)
        return Settled(body, frame_of(decode(body), clock.now(), only))

    end = clock.now() + seconds
    never = threading.Event()
    reader.start()
    while True:
        servers = read(frozenset()).frame.servers
        if reader.is_settled or clock.now() >= end:
            break
        clock.wait(never, _PAUSE_SECONDS)
    names = {server.name for server in servers}
    return read(names if len(names) <= SERVERS_WITH_HOUR else {servers[0].name})


class ReadingThread:
    """
    Reads again and again, and keeps the last frame. What was never read and cannot get better is not tried again.

    Args:
        reader: Where documents come from.
        clock: The time; ages of frames are by it.
        delay: Seconds from the start of one reading to the next one's.
        only: The only server to show.
    """

    def __init__(self, reader: DocumentReader, clock: Clock, delay: float, only: str | None = None) -> None:
        self.delay = delay
        self._reader = reader
        self._clock = clock
        self._only = only
        self._view: View = None
        self._recent: dict[str, deque[Point]] = {}
        self._shown: frozenset[str] = frozenset()
        self._changed: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="reading", daemon=True)

    @property
    def title(self) -> str:
        """What is read; of a recording also how far that is."""
        return self._reader.title

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the reading that is running, and the thread; one that cannot be ended is left behind."""
        self._is_stopping = True
        self._wake.set()
        self._reader.close()
        self._thread.join(STOP_SECONDS)

    def now(self) -> float:
        """Return the reader's time, for the age of a frame."""
        return self._clock.now()

    def latest(self) -> View:
        """Return the last frame, or that there is none now: the same object until something has changed."""
        return self._view

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have this called after each change, from the thread that reads."""
        self._changed = changed

    def read_now(self) -> None:
        """Read at once instead of at the end of the delay."""
        self._wake.set()

    def show_hours(self, names: Collection[str]) -> None:
        """Ask for the last hour of these servers from now on."""
        shown = frozenset(names)
        if not shown <= self._shown:
            self._wake.set()
        self._shown = shown

    def _run(self) -> None:
        has_started = False
        while not self._is_stopping:
            started = self._clock.now()
            self._wake.clear()
            try:
                if not has_started:
                    self._reader.start()
                    has_started = True
                self._show(self._read())
            except VllmWatchError as error:
                self._lose(str(error), is_final=isinstance(error, WrongDaemonError) and self._last is None)
            except Exception as error:  # noqa: BLE001 - Whatever a source sends, the screen says so and stays.
                self._lose(_FAILED.format(repr(error)))
            if isinstance(self._view, Lost) and self._view.is_final:
                return
            self._clock.wait(self._wake, started + self.delay - self._clock.now())

    @property
    def _last(self) -> Frame | None:
        return self._view.last if isinstance(self._view, Lost) else self._view

    def _read(self) -> Frame:
        return frame_of(decode(self._reader.read(self._shown)), self._clock.now(), self._only)

    def _show(self, frame: Frame) -> None:
        recent = {server.name: self._recent.get(server.name, deque(maxlen=RECENT_POINTS)) for server in frame.servers}
        for server in frame.servers:
            points = recent[server.name]
            if not points or points[-1].at != server.now.at:  # What stands still has no new numbers.
                points.append(server.now)
        self._recent = recent
        servers = tuple(server._replace(recent=tuple(recent[server.name])) for server in frame.servers)
        self._replace(frame._replace(servers=servers))

    def _lose(self, reason: str, *, is_final: bool = False) -> None:
        before = self._view
        since = before.since if isinstance(before, Lost) else self._clock.now()
        lost = Lost(since, reason, self._last, is_final)
        if lost != before:  # The same object, until something has changed.
            self._replace(lost)

    def _replace(self, view: View) -> None:
        if not self._is_stopping:
            self._view = view
            self._changed()
