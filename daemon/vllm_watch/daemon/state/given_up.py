# SPDX-License-Identifier: Apache-2.0
"""
Requests that gave up: the clients that hung up, which no counter of vLLM has (its reason ``abort`` reads 0 for them).

vLLM's HTTP server counts a request when its answer has ended, as 2xx also if the client ended it; the engine counts
those that finished. So what the HTTP server has counted beyond the engine was given up. An answer that has just
finished may not have ended yet: the difference may be too small for a moment, never too large. So it never falls.
"""

from __future__ import annotations

from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import EngineReading, MetricsReading


_ANSWERED, _FAILED_STATUS = "2xx", "5xx"
_FAILED = "error"

_COPIES = "request_params_n"
"""One request of the HTTP server may ask for several answers, of which the engine finishes each by itself."""

_THERE = ("requests_running", "requests_waiting")


class GivenUp:
    """Counts the requests of one life of a server that gave up, scrape by scrape."""

    def __init__(self) -> None:
        self._most: float | None = None
        self._last: float | None = None
        self._is_inexact = False

    @property
    def count(self) -> float | None:
        """How many; `None` where the two counts cannot be compared: several prompts in one HTTP request."""
        return None if self._is_inexact else self._most

    @property
    def difference(self) -> float:
        """What the last scrape has counted of answers beyond finished requests; it may be too small for a moment."""
        return self._last or 0.0

    def note(self, reading: MetricsReading) -> None:
        """Take in a scrape."""
        if not reading.http_requests or not reading.engines:
            return
        failed = _answered(reading, _FAILED_STATUS)
        errors = sum(engine.requests_finished.get(_FAILED, 0.0) for engine in reading.engines.values())
        # A stream that fails in the engine has been answered 200 before; others have a status of their own.
        finished = sum(_finished(engine) for engine in reading.engines.values()) + max(errors - failed, 0.0)
        difference = _answered(reading, _ANSWERED) - finished
        if not _in_flight(reading) and self._last is not None:
            # Nothing is about to end, so the difference is what it is, but for what failed after it was finished.
            self._is_inexact |= max(difference, self._last) + failed < 0
        # Several API servers write what they count at moments of their own: two scrapes must say it.
        if self._last is not None:
            self._most = max(self._most or 0.0, min(difference, self._last))
        self._last = difference


def _answered(reading: MetricsReading, status: str) -> float:
    return sum(
        count
        for request, count in reading.http_requests.items()
        if request.method == "POST" and request.handler in INFERENCE_HANDLERS and request.status == status
    )


def _finished(engine: EngineReading) -> float:
    finished = sum(count for reason, count in engine.requests_finished.items() if reason != _FAILED)
    copies = engine.histograms.get(_COPIES)
    return finished - (copies.sum - copies.observations if copies is not None else 0.0)


def _in_flight(reading: MetricsReading) -> bool:
    return any(engine.gauges.get(name) for engine in reading.engines.values() for name in _THERE)
