# SPDX-License-Identifier: Apache-2.0
"""
Which source a server's HTTP requests are counted by: its access log, or its page where the log has none.

The log knows each code, the page only classes of codes, and both begin to count at different moments: requests are
counted by one of them, never by both.
"""

from __future__ import annotations


LATE_SECONDS = 15.0
"""An access line stands in the log at the latest so long after the page has counted its request."""


class HttpSource:
    """
    Takes in when access lines were read and what pages count.

    The page is chosen once it has counted requests of which the log says nothing (``--disable-uvicorn-access-log``, or
    no log at all), and stays chosen: its counts go on whatever the log does later.
    """

    def __init__(self, *, has_log: bool) -> None:
        self.is_page = not has_log
        self._before: float | None = None
        self._grew_at: float | None = None

    def note_lines(self) -> None:
        """Take in that the log had access lines: what the page has counted until now is in them."""
        self._before = self._grew_at = None

    def note_page(self, at: float, count: float) -> None:
        """Take in how many requests a page has counted, of all kinds."""
        if self._before is None or count < self._before:
            self._before, self._grew_at = count, None
        elif count > self._before and self._grew_at is None:
            self._grew_at = at
        elif self._grew_at is not None and at - self._grew_at >= LATE_SECONDS:
            self.is_page = True
