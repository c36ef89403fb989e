# SPDX-License-Identifier: Apache-2.0
"""Clocks that a test moves."""

from __future__ import annotations

import threading


class HandClock:
    """A clock that stands until the test sets `time`, in seconds since the epoch; its wall clock is right."""

    replay_speed = None

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time

    def now(self) -> float:
        """Return the time."""
        return self.time

    def wall(self, moment: float) -> float:
        """Return the same moment."""
        return moment

    def of_machine(self, at: float) -> float:
        """Return the same moment."""
        return at

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let the seconds pass at once."""
        self.time += max(seconds, 0)
        return event.is_set()
