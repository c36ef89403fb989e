# SPDX-License-Identifier: Apache-2.0
"""Work on an engine that stops its tokens while it lasts: weights that a trainer updates, a sleep, a waking up."""

from __future__ import annotations

import math

from vllm_watch_parsers.scrape import MetricsReading
from vllm_watch_parsers.server_families import IN_FLIGHT


MAX_SECONDS = 600.0
"""An operation that is in flight for longer hangs, and excuses nothing."""


class Operations:
    """Takes in which operations are in flight, scrape by scrape."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.until = -math.inf
        """When one was last in flight that does not hang: no progress before that proves nothing."""

    def apply_scrape(self, at: float, reading: MetricsReading) -> None:
        """Take in a scrape."""
        if not any(value for series, value in reading.server_values.items() if series.name in IN_FLIGHT):
            self._since = None
            return
        self._since = at if self._since is None else self._since
        if at - self._since <= MAX_SECONDS:
            self.until = at

    def forget(self) -> None:
        """Take in that the server was started again."""
        self._since, self.until = None, -math.inf
