# SPDX-License-Identifier: Apache-2.0
"""
Which source a server's HTTP requests are counted by: its access log, or its page where the log has none.

The log knows each code, the page only classes of codes, and both count at different moments, the log when an answer
begins and the page when it ends: requests are counted by one of them, never by both.
"""

from __future__ import annotations

from vllm_watch_parsers.scrape import MetricsReading


PROVING_REQUESTS = 5
"""So many requests, counted by the page and not one of them in the log, prove that the log has no access lines."""

LATE_SECONDS = 15.0
"""An access line is read at the latest so long after the page has counted its request."""

_IN_FLIGHT = ("requests_running", "requests_waiting")


class HttpSource:
    """
    Takes in when access lines were read and what pages count.

    The page is chosen on proof that the log has no access line at all (``--disable-uvicorn-access-log``), or if there
    is no log. One access line shows that the log counts, for as long as the server lives: what the page has more of
    are answers that began long ago, or lines that cannot be read now.
    """

    def __init__(self, *, has_log: bool) -> None:
        self.is_page = not has_log
        self._has_lines = False
        self._enough: float | None = None
        """The page's count from which on the log's silence is a proof."""
        self._before = 0.0
        self._enough_at: float | None = None

    def begin_life(self) -> None:
        """Take in that the server was started anew, perhaps otherwise: what was chosen holds until a line shows it."""
        self._has_lines = False
        self._enough = None

    def note_lines(self) -> None:
        """Take in that the log has access lines."""
        self._has_lines = True
        self.is_page = False

    def note_page(self, at: float, reading: MetricsReading, *, is_log_up: bool) -> None:
        """
        Take in what a page counts.

        Args:
            at: When it was read, in seconds since the epoch.
            reading: The page.
            is_log_up: Whether the log can be read: what stands there meanwhile is not known.
        """
        if self.is_page or self._has_lines:
            return
        # Other methods are asked for by monitoring, whose access lines an operator may have switched off.
        count = sum(each for request, each in reading.http_requests.items() if request.method == "POST")
        if self._enough is None or count < self._before or not is_log_up:
            self._enough, self._enough_at = count + _in_flight(reading) + PROVING_REQUESTS, None
        elif count >= self._enough:
            self._enough_at = at if self._enough_at is None else self._enough_at
            self.is_page = at - self._enough_at >= LATE_SECONDS
        self._before = count


def _in_flight(reading: MetricsReading) -> float:
    """Return how many requests a server has, whose access lines may stand where nobody has read."""
    return sum(engine.gauges.get(name, 0.0) for engine in reading.engines.values() for name in _IN_FLIGHT)
