# SPDX-License-Identifier: Apache-2.0
"""
How the daemon itself is: its threads' signs of life, and failures of its own, counted by the part that failed.

A heartbeat shows only that a thread runs. One that fails again and again still runs, and a restart would repair nothing
and cost the other servers their values. So failures have a series of their own, which an alert watches.
"""

from __future__ import annotations

import threading
import time

from collections import Counter
from collections.abc import Mapping

from vllm_watch.daemon.catalog.codes import PARTS, Part


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


class InternalErrors:
    """Counts failures, from any thread. The code that counts one also logs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Part] = Counter()

    def count(self, part: Part) -> None:
        """Count a failure of a part."""
        with self._lock:
            self._counts[part] += 1

    def counts(self) -> Mapping[Part, int]:
        """Return the failures so far of every part, also of those that never failed."""
        with self._lock:
            return {part: self._counts[part] for part in PARTS}
