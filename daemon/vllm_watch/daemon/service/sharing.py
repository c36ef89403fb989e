# SPDX-License-Identifier: Apache-2.0
"""What is made once for all who ask for it at about the same time."""

from __future__ import annotations

import threading

from collections.abc import Callable
from typing import Generic, TypeVar

from vllm_watch.daemon.catalog.limits import AGE_PER_SERVER, FEW_SERVERS, MAX_AGE
from vllm_watch.daemon.support.clock import Clock


Key = TypeVar("Key")
Made = TypeVar("Made")


def shared_seconds(servers: int) -> float:
    """Return how long what was made of this many servers may be used."""
    return min(max(servers - FEW_SERVERS, 0) * AGE_PER_SERVER, MAX_AGE)


class Shared(Generic[Key, Made]):
    """
    Keeps what was made last, and returns it again while it is young; any thread may ask.

    Who asks while it is being made waits for it. If making fails, whoever asks next tries again.

    Args:
        clock: The time.
        make: Makes what is asked for by a key.
    """

    def __init__(self, clock: Clock, make: Callable[[Key], Made]) -> None:
        self._clock = clock
        self._make = make
        self._lock = threading.Lock()
        self._kept: dict[Key, tuple[float, Made]] = {}

    def get(self, key: Key, max_age: float) -> Made:
        """Return what was made for this key less than `max_age` seconds ago, or make it now."""
        with self._lock:
            at = self._clock.now()  # Before it is made: it is no younger than what it is made of.
            # What is old is freed before the next one is made: each may be megabytes.
            self._kept = {known: kept for known, kept in self._kept.items() if at - kept[0] < max_age}
            if key not in self._kept:
                self._kept[key] = (at, self._make(key))
            return self._kept[key][1]
