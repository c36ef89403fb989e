# SPDX-License-Identifier: Apache-2.0
"""
Decides when which log is polled and which folders are watched. It reads no clock: every time is an argument.

A notification wakes four threads, a poll by the clock one, and each wake-up costs more than the lines that are read
then. So lines that come rarely are read at once. Lines that come often are read together: once a second, and whenever
somebody asks for what they report. Their folder is not watched meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar


POLL_SECONDS = 1.0
"""How often all logs are polled, whatever is notified."""

PROMPT_POLLS = 4
"""So many polls in a row follow a notification at once; after that they are `POLL_SECONDS` apart."""

MANY_EVENTS = 10
"""So many events within `WINDOW_SECONDS` are too many: those folders from which they come are busy."""

WINDOW_SECONDS = 1.0

REST_SECONDS = 5.0
"""How long a busy folder is not watched before it is looked at again."""

FEW_GROWTHS = 4
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
        self._all_at = float("-inf")
        """When all were polled last."""
        self._soon: set[_Log] = set()
        """The logs that are polled at once."""
        self._spent_until = float("-inf")
        """Each poll after a notification moves this on by `POLL_SECONDS`; it may be `PROMPT_POLLS` of them ahead."""

    def follow(self, logs: Sequence[_Log]) -> None:
        """Poll these logs from now on, all of them at once."""
        self.logs = logs
        kept = set(logs)
        self._soon &= kept
        self.poll_all()

    def poll_all(self) -> None:
        """Have all logs polled at once."""
        self._all_at = float("-inf")

    def poll_soon(self, logs: Iterable[_Log]) -> None:
        """Have these logs polled at once: there is more to read, or may be."""
        self._soon.update(logs)

    def take_due(self, changed: Collection[_Log], now: float, *, is_asked: bool = False) -> Sequence[_Log]:
        """
        Return which logs are to be polled now. They count as polled.

        Args:
            changed: Those of which a change was notified.
            now: The time.
            is_asked: Whether somebody waits for what the logs report: then all are polled, before their time.
        """
        if changed:
            # A poll by the clock may come before the next one was allowed: from it on it is `POLL_SECONDS` as well.
            self._spent_until = min(max(self._spent_until, now), now + PROMPT_POLLS * POLL_SECONDS) + POLL_SECONDS
        if is_asked or now >= self._all_at + POLL_SECONDS:
            self._all_at = now
            self._soon.clear()
            return self.logs
        due = {*changed, *self._soon}
        self._soon.clear()
        return list(due)

    def wait(self, now: float) -> float:
        """Return the seconds until a poll is due if nothing is notified."""
        return 0.0 if self._soon else max(self._all_at + POLL_SECONDS - now, 0.0)

    def pause(self, now: float) -> float:
        """Return for how many seconds a notification that comes now waits for others, so that they share a poll."""
        return max(min(self._spent_until - PROMPT_POLLS * POLL_SECONDS - now, self.wait(now)), 0.0)


class BusyFolders:
    """
    Decides which folders have so many events that they are better not watched.

    `current` are these folders.
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
