# SPDX-License-Identifier: Apache-2.0
"""A thread's sign of life, and the time by which a thread is found to hang."""

from __future__ import annotations

import time


def running_seconds() -> float:
    """
    Return the seconds that this machine has run, without those in which it was suspended.

    What hangs is found by this time and not by a `Clock`: a replay's clock runs faster than the threads do, and after a
    suspension every thread would seem to have hung all the while.
    """
    return time.monotonic()


class Heartbeat:
    """When a thread last gave a sign of life; any thread may ask."""

    def __init__(self) -> None:
        self._at = running_seconds()

    def beat(self) -> None:
        """Give a sign of life."""
        self._at = running_seconds()

    def age(self) -> float:
        """Return the seconds since the last sign."""
        return running_seconds() - self._at

    def timestamp(self) -> float:
        """Return when the last sign was, by the wall clock, in seconds since the epoch."""
        return time.time() - self.age()
