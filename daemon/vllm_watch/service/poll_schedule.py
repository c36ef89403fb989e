# SPDX-License-Identifier: Apache-2.0
"""
Decides when which log is polled and which folders are watched. It reads no clock: every time is an argument.

A notification wakes four threads, a poll by the clock one, and each wake-up costs more than the lines that are read
then. So lines that come rarely are read at once. Lines that come often are read together, some times a second, and
their folder is not watched meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar


POLL_SECONDS = 1.0
"""How often all logs are polled, whatever is notified."""

BUSY_SECONDS = 0.175
"""How often logs are polled to which lines are written often: for so long a line waits there."""

SECONDS_PER_BUSY_LOG = 0.0025
MAX_BUSY_SECONDS = 0.5
"""
The same where there are many such logs: so many seconds for each of them, up to this limit. A poll costs most of a
tenth of a millisecond, however few lines it finds, and an answer about so many servers is half a second old anyway.
"""

PROMPT_POLLS = 4
"""So many polls in a row follow a notification at once; after that they are `BUSY_SECONDS` apart."""

GROWING_SECONDS = 10.0
"""A log whose changes are not notified is polled often until it has not grown for so long."""

MANY_EVENTS = 10
"""So many events within `WINDOW_SECONDS` are too many: those folders from which they come are busy."""

WINDOW_SECONDS = 1.0

REST_SECONDS = 5.0
"""How long a busy folder is not watched before it is looked at again."""

FEW_GROWTHS = 5
"""If its logs were found to have grown in fewer polls than this meanwhile, it is watched again."""

_Log = TypeVar("_Log", bound=Hashable)


class PollSchedule(Generic[_Log]):
    """
    Decides when which log is polled.

    Attributes:
        logs: All logs.
    """

    def __init__(self) -> None:
        self.logs: Sequence[_Log] = ()
        self._all_at = self._often_at = float("-inf")
        """When all were polled last, and those that are polled often."""
        self._grown_at: dict[_Log, float] = {}
        """The logs that are polled often, and when they were last found to have grown."""
        self._soon: set[_Log] = set()
        """The logs that are polled at once."""
        self._spent_until = float("-inf")
        """Each poll after a notification moves this on by `BUSY_SECONDS`; it may be `PROMPT_POLLS` of them ahead."""

    def follow(self, logs: Sequence[_Log]) -> None:
        """Poll these logs from now on, all of them at once."""
        self.logs = logs
        kept = set(logs)
        self._soon &= kept
        self._grown_at = {log: at for log, at in self._grown_at.items() if log in kept}
        self.poll_all()

    def poll_all(self) -> None:
        """Have all logs polled at once."""
        self._all_at = float("-inf")

    def poll_soon(self, logs: Iterable[_Log]) -> None:
        """Have these logs polled at once."""
        self._soon.update(logs)

    def take_due(self, changed: Collection[_Log], now: float) -> Sequence[_Log]:
        """
        Return which logs are to be polled now, given those of which a change was notified.

        They count as polled: after the poll of each `note_poll` says how it ended.
        """
        if changed:
            # A poll by the clock may come before the next one was allowed: from it on it is `BUSY_SECONDS` as well.
            self._spent_until = min(max(self._spent_until, now), now + PROMPT_POLLS * BUSY_SECONDS) + BUSY_SECONDS
        if now >= self._all_at + POLL_SECONDS:
            self._all_at = self._often_at = now
            self._soon.clear()
            return self.logs
        due = {*changed, *self._soon}
        self._soon.clear()
        if self._grown_at and now >= self._often_at + self._busy_seconds:
            self._often_at = now
            due.update(self._grown_at)
        return list(due)

    def note_poll(self, log: _Log, now: float, *, is_notified: bool, has_grown: bool, has_more: bool) -> None:
        """
        Take in how a poll ended.

        Args:
            log: The log.
            now: The time.
            is_notified: Whether its changes are notified at present.
            has_grown: Whether there was something to read, or may be soon.
            has_more: Whether there is more to read at once.
        """
        if has_more:
            self._soon.add(log)
        if is_notified:
            self._grown_at.pop(log, None)
        elif has_grown:
            self._grown_at[log] = now
        elif now - self._grown_at.get(log, now) >= GROWING_SECONDS:
            del self._grown_at[log]

    def wait(self, now: float) -> float:
        """Return the seconds until a poll is due if nothing is notified."""
        if self._soon:
            return 0.0
        due = self._all_at + POLL_SECONDS
        if self._grown_at:
            due = min(due, self._often_at + self._busy_seconds)
        return max(due - now, 0.0)

    @property
    def _busy_seconds(self) -> float:
        """How often those are polled that are polled often."""
        return min(max(BUSY_SECONDS, len(self._grown_at) * SECONDS_PER_BUSY_LOG), MAX_BUSY_SECONDS)

    def pause(self, now: float) -> float:
        """Return for how many seconds a notification that comes now waits for others, so that they share a poll."""
        return max(min(self._spent_until - PROMPT_POLLS * BUSY_SECONDS - now, self.wait(now)), 0.0)


class BusyFolders:
    """
    Decides which folders have so many events that they are better not watched.

    `current` are these folders. Their logs are polled often meanwhile.
    """

    def __init__(self) -> None:
        self.current: frozenset[str] = frozenset()
        self._events: Counter[str] = Counter()
        self._window_start = float("-inf")
        self._rests: dict[str, float] = {}
        """Until when each busy folder is not watched."""
        self._growths: Counter[str] = Counter()
        """In how many polls the logs of each have grown since it is not watched."""

    def note_events(self, events: Mapping[str, int], now: float) -> None:
        """Take in how many events of each folder came; one event proves nothing about its folder."""
        if now >= self._window_start + WINDOW_SECONDS:
            self._window_start = now
            self._events.clear()
        self._events.update(events)
        if self._events.total() >= MANY_EVENTS:
            for folder in (folder for folder, number in self._events.items() if number > 1):
                self._rest(folder, now)
            self._events.clear()

    def note_growth(self, folders: Iterable[str]) -> None:
        """Take in that a poll found a log in these folders to have grown."""
        for folder in folders:
            self._growths[folder] += 1

    def review(self, now: float) -> None:
        """Let those be watched again whose logs rarely grow now."""
        for folder in [folder for folder, until in self._rests.items() if now >= until]:
            if self._growths.pop(folder, 0) >= FEW_GROWTHS:
                self._rest(folder, now)
            else:
                del self._rests[folder]
                self.current -= {folder}

    def _rest(self, folder: str, now: float) -> None:
        self._rests[folder] = now + REST_SECONDS
        self.current |= {folder}
