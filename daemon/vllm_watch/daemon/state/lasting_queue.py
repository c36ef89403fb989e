# SPDX-License-Identifier: Apache-2.0
"""
Whether requests wait for capacity, by what a source reports from time to time.

One reading shows the queue of one moment, and a queue of a second is usual: the state that derives from it is of the
same seconds as the rates.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_watch.daemon.state.window import lasts


@dataclass(slots=True)
class LastingQueue:
    """
    The queue of one engine: it lasts once each reading of 10 s had one, until none of as long has.

    Of the first reading the moment is all that is known.
    """

    lasts: bool | None = None
    _otherwise_since: float | None = None
    """The first of the last readings that all say the contrary."""

    def note(self, at: float, running: float, waiting: float, deferred: float) -> None:
        """
        Take in the next reading; an engine without any request has no queue, whatever was before.

        Args:
            at: When it was taken.
            running: How many requests run.
            waiting: How many wait.
            deferred: How many of these wait for something else than capacity.
        """
        is_queued = waiting > deferred
        if self.lasts is None:
            self.lasts = is_queued
        if is_queued == self.lasts:
            self._otherwise_since = None
            return
        if self._otherwise_since is None:
            self._otherwise_since = at
        if lasts(at - self._otherwise_since) or not running + waiting:
            self.lasts, self._otherwise_since = is_queued, None
