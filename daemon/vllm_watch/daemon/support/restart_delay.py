# SPDX-License-Identifier: Apache-2.0
"""The delay before what has failed is tried again."""

from __future__ import annotations


class RestartDelay:
    """
    When something is tried again: after a delay that doubles with each failure in a row.

    Args:
        first: The first delay, in seconds.
        longest: The longest.
    """

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first, self._longest = first, longest
        self._delay = first
        self._retry_at = float("-inf")

    def is_over(self, now: float) -> bool:
        """Tell whether it may be tried."""
        return now >= self._retry_at

    def fail(self, now: float) -> None:
        """Note that it failed."""
        self._retry_at = now + self._delay
        self._delay = min(2 * self._delay, self._longest)

    def reset(self) -> None:
        """Note that it works: the next failure is the first one."""
        self._delay = self._first
