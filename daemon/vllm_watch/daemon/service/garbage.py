# SPDX-License-Identifier: Apache-2.0
"""
How often Python searches for garbage: objects that only refer to each other. All other objects are freed at once.

By default all objects are searched whenever there are a quarter more of them. What is known of 200 servers is 150,000
objects, renewed every few seconds: such a search holds up everything for 0.1 s, twice a minute, and finds nothing, for
what the daemon uses again and again refers to nothing that refers to it. Servers that are not watched any more do.
"""

from __future__ import annotations

import gc
import math

from vllm_watch.daemon.support.clock import Clock


NEW_OBJECTS = 2000
"""So many objects more than at the last search begin a search through the new ones: some milliseconds."""

SEARCHES = 3
"""After so many of these, what is new since the last time is searched once more, and then counts as old."""

LONG_SEARCHES = 3000
"""After so many of the latter all objects are searched: with 200 servers every half hour."""


AFTER_SECONDS = 30.0
"""What was replaced is searched for after so long: threads and answers that use it still end first."""


class RareSearch:
    """
    Has garbage searched for rarely, and once more after much was replaced.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = math.inf

    def start(self) -> None:
        """Have it searched for rarely from now on, in the whole process."""
        gc.set_threshold(NEW_OBJECTS, SEARCHES, LONG_SEARCHES)

    def note_replaced(self) -> None:
        """Note that servers were replaced: much of them is garbage soon."""
        self._due = self._clock.now() + AFTER_SECONDS

    def search_if_due(self) -> None:
        """Free all garbage if servers were replaced a while ago."""
        if self._clock.now() >= self._due:
            self._due = math.inf
            gc.collect()
