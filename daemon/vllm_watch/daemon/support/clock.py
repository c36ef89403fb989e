# SPDX-License-Identifier: Apache-2.0
"""
Time as an argument: the daemon asks a clock for the time, and waits by it.

`now` never decreases. It starts at the wall clock's time, is not changed when that is corrected, and continues while
the machine is suspended. `wall` is for what leaves the process.
"""

from __future__ import annotations

import threading
import time

from typing import Protocol


class Clock(Protocol):
    """The time, in seconds since the epoch, and a way to wait."""

    @property
    def replay_speed(self) -> float | None:
        """How many seconds of a replay pass in one of the machine's; `None` for what happens now."""

    def now(self) -> float:
        """Return a time that never decreases, for ages and intervals."""

    def wall(self, moment: float) -> float:
        """Return what the wall clock shows at a moment of `now`."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the seconds have passed; return whether it is set."""


_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def steady_seconds() -> float:
    """
    Return seconds that never decrease and continue while the machine is suspended.

    `time.monotonic` stops meanwhile, but the counters of a server on another machine do not: an hour's increase would
    look like that of a few seconds.
    """
    return time.clock_gettime(_BOOT_CLOCK) if _BOOT_CLOCK is not None else time.monotonic()


class SystemClock:
    """The machine's time."""

    replay_speed = None

    def __init__(self) -> None:
        self._offset = time.time() - steady_seconds()

    def now(self) -> float:
        """Return the steady time."""
        return steady_seconds() + self._offset

    def wall(self, moment: float) -> float:
        """Return what the wall clock shows at a moment of `now`."""
        return moment + (time.time() - self.now())

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait on the event."""
        return event.wait(max(seconds, 0))


class ScaledClock:
    """
    A time that runs `speed` times as fast as the machine's, from now on.

    With it a recording is replayed through the code that watches a real server.
    """

    def __init__(self, speed: float) -> None:
        self.replay_speed = speed
        self._start = time.time()
        self._start_monotonic = time.monotonic()

    def now(self) -> float:
        """Return the scaled time."""
        return self._start + (time.monotonic() - self._start_monotonic) * self.replay_speed

    def wall(self, moment: float) -> float:
        """Return the moment itself: a replay has no other wall clock."""
        return moment

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait on the event for as long as the scaled seconds last."""
        return event.wait(max(seconds, 0) / self.replay_speed)


def seconds_ahead(clock: Clock) -> float:
    """
    Return how far the wall clock is ahead of a clock's steady time.

    In whole seconds: a timestamp whose moment does not change must not differ by milliseconds from scrape to scrape.
    """
    now = clock.now()
    return float(round(clock.wall(now) - now))


def wall_time(clock: Clock, moment: float) -> float:
    """Return a steady time as the wall clock's, for what leaves the process."""
    return moment + seconds_ahead(clock)


class RestartDelay:
    """
    When something is tried again: after a delay that doubles with each failure in a row.

    Args:
        first: The first delay, in seconds.
        longest: The longest.
    """

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first, self._longest = first, longest
        self._delay = first
        self._retry_at = float("-inf")

    def is_over(self, now: float) -> bool:
        """Tell whether it may be tried."""
        return now >= self._retry_at

    def fail(self, now: float) -> None:
        """Note that it failed."""
        self._retry_at = now + self._delay
        self._delay = min(2 * self._delay, self._longest)

    def reset(self) -> None:
        """Note that it works: the next failure is the first one."""
        self._delay = self._first
