# SPDX-License-Identifier: Apache-2.0
"""
What probes report, and when the next one is due: one-token completions, as a user would request them.

A server that failed is probed again after the usual time, then after growing ones: more requests do not help a failing
server.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.daemon.catalog.reasons import ProbeReason


LONGEST_PAUSE = 300.0
"""The longest time between two probes of a server that keeps failing, unless it is probed less often anyway."""

LEAST_PAUSE = 10.0
"""The shortest time between the starts of two probes."""

EARLY_PAUSE = 30.0
"""The least time between a probe and one that is asked of an engine which stands still, as a witness."""

PAUSES_UNTIL_OVERDUE = 3


class ProbeResult(NamedTuple):
    """
    One probe.

    Args:
        at: When it ended.
        reason: ``ok``, or why there was no token.
        first_token_seconds: From the start to the first token, `None` if it failed.
    """

    at: float
    reason: ProbeReason
    first_token_seconds: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether there was a token."""
        return self.reason == "ok"


class ProbeSource:
    """Takes in one server's probes, in order; `every` is the seconds between the starts of two good ones."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._failures = 0
        self._started_at: float | None = None
        self._due_at: float | None = None
        self.last: ProbeResult | None = None
        self.succeeded_at: float | None = None

    def start(self, now: float) -> None:
        """Take in that a probe starts."""
        self._started_at = now
        self._due_at = now + self._pause()

    def apply(self, result: ProbeResult) -> None:
        """Take in how a probe ended."""
        self.last = result
        self._failures = 0 if result.is_success else self._failures + 1
        if result.is_success:
            self.succeeded_at = result.at
        self._due_at = (result.at if self._started_at is None else self._started_at) + self._pause()

    def start_life(self) -> None:
        """Take in that the server was started again: results of the old one are void, and it is probed soon."""
        self.last = None
        self._failures = 0
        self._due_at = None if self._started_at is None else self._started_at + LEAST_PAUSE

    def due_at(self, still_since: float | None = None) -> float | None:
        """
        Return when the next probe is due; `None` is at once.

        `still_since` is when an engine with work stood still for a while: a probe since then is its witness.
        """
        is_asked_for = (
            still_since is not None
            and not self._failures
            and (self._started_at is None or self._started_at < still_since - EARLY_PAUSE)
        )
        return None if is_asked_for else self._due_at

    def current(self, now: float) -> ProbeResult | None:
        """Return the last result, unless it is so old that probing itself must hang."""
        if self.last is None or self._is_overdue(self.last, now):
            return None
        return self.last

    def reason(self, now: float) -> ProbeReason:
        """Return the reason of the last result, or why there is none."""
        if self.last is None:
            return "starting"
        return "overdue" if self._is_overdue(self.last, now) else self.last.reason

    def _pause(self) -> float:
        longest = max(self._every, LONGEST_PAUSE)
        return min(self._every * 2.0 ** max(min(self._failures, 16) - 1, 0), longest)

    def _is_overdue(self, last: ProbeResult, now: float) -> bool:
        return now - last.at > PAUSES_UNTIL_OVERDUE * self._pause()
