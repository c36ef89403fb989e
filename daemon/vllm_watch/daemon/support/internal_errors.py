# SPDX-License-Identifier: Apache-2.0
"""
Failures of the daemon itself, not of its sources, counted by the part that failed.

A heartbeat shows only that a thread runs. One that fails again and again still runs, and a restart would repair nothing
and cost the other servers their values. So failures have a series of their own, which an alert watches.
"""

from __future__ import annotations

import threading

from collections import Counter
from collections.abc import Mapping

from vllm_watch.daemon.catalog.parts import PARTS, Part


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
