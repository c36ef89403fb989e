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


_ANSWERED = "2xx"
_FAILED = "error"
"""A request that fails in the engine is answered with another status."""

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

    def note(self, reading: MetricsReading) -> None:
        """Take in a scrape."""
        if not reading.http_requests or not reading.engines:
            return
        difference = _answered(reading) - sum(_finished(engine) for engine in reading.engines.values())
        if not _in_flight(reading) and self._last is not None:
            # Nothing is about to end, so the difference is what it is.
            self._is_inexact |= max(difference, self._last) < 0
        # Several API servers write what they count at moments of their own: two scrapes must say it.
        if self._last is not None:
            self._most = max(self._most or 0.0, min(difference, self._last))
        self._last = difference


def _answered(reading: MetricsReading) -> float:
    return sum(
        count
        for request, count in reading.http_requests.items()
        if request.method == "POST" and request.handler in INFERENCE_HANDLERS and request.status == _ANSWERED
    )


def _finished(engine: EngineReading) -> float:
    finished = sum(count for reason, count in engine.requests_finished.items() if reason != _FAILED)
    copies = engine.histograms.get(_COPIES)
    return finished - (copies.sum - copies.observations if copies is not None else 0.0)


def _in_flight(reading: MetricsReading) -> bool:
    return any(engine.gauges.get(name) for engine in reading.engines.values() for name in _THERE)
