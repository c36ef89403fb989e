# SPDX-License-Identifier: Apache-2.0
"""
What fails inside the daemon for no fault of its sources, counted by the part that failed.

A thread's heartbeat says only that it goes on: one that fails at every turn goes on, and a restart would mend nothing
and cost the other servers their values. So failures have a series of their own, and a rule watches that.
"""

from __future__ import annotations

import threading

from collections import Counter
from collections.abc import Mapping

from vllm_watch.catalog.parts import PARTS, Part


class InternalErrors:
    """Counts failures; any thread may. Whoever counts one also logs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Part] = Counter()

    def count(self, part: Part) -> None:
        """Count a failure of a part."""
        with self._lock:
            self._counts[part] += 1

    def counts(self) -> Mapping[Part, int]:
        """Return the failures so far of every part, those that never failed included."""
        with self._lock:
            return {part: self._counts[part] for part in PARTS}
