# SPDX-License-Identifier: Apache-2.0
"""The thread that reads documents and makes frames of them, so that nothing that draws ever waits for a server."""

from __future__ import annotations

import threading

from collections import deque
from collections.abc import Callable, Collection

from vllm_watch.cli.terminal.frames import frame_of
from vllm_watch.cli.terminal.model import Frame, Lost, Point, View
from vllm_watch.cli.terminal.reader import DocumentReader
from vllm_watch.daemon.catalog.codes import SERVERS_WITH_HOUR
from vllm_watch.daemon.exposition.document import decode
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import VllmWatchError, WrongDaemonError


RECENT_POINTS = 150
"""So many of the last readings of a server are kept: five minutes at the usual delay."""

STOP_SECONDS = 2.0
"""How long `stop` waits for a reading that has to end."""

_FAILED = "reading fails inside this program: {}"


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
        self._delay = delay
        self._reader = reader
        self._clock = clock
        self._only = only
        self._view: View = None
        self._recent: dict[str, deque[Point]] = {}
        self._shown: frozenset[str] = frozenset()
        self._is_small = False
        """Whether there are so few servers that each has its last hour in every document."""
        self._changed: Callable[[], None] = _do_nothing
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="reading", daemon=True)

    @property
    def title(self) -> str:
        """What is read; of a recording also how far that is."""
        return self._reader.title

    @property
    def delay(self) -> float:
        """Seconds from the start of one reading to the next one's."""
        return self._delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        self._delay = seconds
        self._wake.set()

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the reading that is running, and the thread; one that cannot be ended is left behind."""
        self._is_stopping = True
        self._wake.set()
        self._reader.close()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def now(self) -> float:
        """Return the time, for the age of a frame."""
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
        """Ask for the last hour of these servers from now on; of few servers it is always there."""
        shown = frozenset(names)
        if not self._is_small and not shown <= self._shown:
            self._wake.set()
        self._shown = shown

    def hold(self, *, is_held: bool) -> bool:
        """Have what is read stand still, or go on where it was; return whether it can."""
        can_be_held = self._reader.hold(is_held=is_held)
        if can_be_held and not is_held:
            self._wake.set()
        return can_be_held

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
            self._clock.wait(self._wake, started + self._delay - self._clock.now())

    @property
    def _last(self) -> Frame | None:
        return self._view.last if isinstance(self._view, Lost) else self._view

    def _read(self) -> Frame:
        """Return the present frame; of few servers with their last hours, also the first one."""
        every = None if self._only is None else frozenset({self._only})
        frame = self._read_hours(every if self._is_small else self._shown)
        is_small = len(frame.servers) <= SERVERS_WITH_HOUR
        if is_small and not self._is_small:
            frame = self._read_hours(every)
        self._is_small = is_small
        return frame

    def _read_hours(self, hours: Collection[str] | None) -> Frame:
        return frame_of(decode(self._reader.read(hours)), self._clock.now(), self._only)

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


def _do_nothing() -> None:
    """Stand for a subscriber."""
