# SPDX-License-Identifier: Apache-2.0
"""
Which source counts a server's HTTP requests, its access log, or /metrics where the log has none; and who gave up.

The log has each code, /metrics only classes of codes, and both count at different moments: the log when an answer
starts, /metrics when it ends. So requests are counted by one of them, never by both.

No counter of vLLM has the clients that hung up (its reason ``abort`` reads 0 for them). Its HTTP server counts a
request when its answer has ended, as 2xx also if the client ended it; the engine counts those that finished. So what
the HTTP server has counted beyond the engine was given up. An answer that has just finished may not have ended yet: the
difference may be too small for a moment, never too large. So it never falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import EngineReading, MetricsReading


class HttpRequestKey(NamedTuple):
    """Labels of a counted request: `handler` is from a closed list, `code` a status or a class such as ``2xx``."""

    method: str
    handler: str
    code: str


OTHER = "other"
ANY_OTHER = HttpRequestKey(OTHER, OTHER, OTHER)

# Labels are from closed lists: no text of a client becomes one.
HANDLERS = frozenset(
    {
        "/classify", "/cohere/v2/embed", "/detokenize", "/health", "/inference/v1/generate", "/invocations",
        "/is_sleeping", "/load", "/metrics", "/pause", "/ping", "/pooling", "/ready", "/rerank",
        "/reset_prefix_cache", "/resume", "/score", "/server_info", "/sleep", "/tokenize",
        "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/chat/completions", "/v1/completions",
        "/v1/embeddings", "/v1/load_lora_adapter", "/v1/messages", "/v1/messages/count_tokens", "/v1/models",
        "/v1/realtime", "/v1/rerank", "/v1/responses", "/v1/score", "/v1/unload_lora_adapter", "/v2/rerank",
        "/version", "/wake_up",
    }
)  # fmt: skip

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_CODES = frozenset({"1xx", "2xx", "3xx", "4xx", "5xx", "499", *(str(status.value) for status in HTTPStatus)})


def http_request_key(method: str, path: str, code: str) -> HttpRequestKey:
    """Return the labels for one request; `code` is a status of three digits or a class such as ``2xx``."""
    handler = path if path in HANDLERS else OTHER
    return HttpRequestKey(method if method in METHODS else OTHER, handler, code if code in _CODES else OTHER)


PROVING_REQUESTS = 5
"""If /metrics counts this many requests and the log none of them, the log has no access lines."""

_IN_FLIGHT = ("requests_running", "requests_waiting")


def http_requests(
    logged: Mapping[HttpRequestKey, int] | None, reading: MetricsReading | None, *, has_lines: bool
) -> dict[HttpRequestKey, float]:
    """
    Return how many requests were answered, by the source that counts them.

    Args:
        logged: Those by the log, `None` without one.
        reading: What /metrics shows, if it was read.
        has_lines: Whether the log has ever had an access line (``--disable-uvicorn-access-log``): then it counts.
    """
    counts = reading.http_requests if reading is not None else {}
    # Other methods are used by monitoring, whose access lines an operator may have switched off.
    posts = sum(count for request, count in counts.items() if request.method == "POST")
    if logged is not None and (has_lines or posts < PROVING_REQUESTS):
        return dict(logged)
    counted: Counter[HttpRequestKey] = Counter()
    for request, count in counts.items():
        counted[http_request_key(request.method, request.handler, request.status)] += int(count)
    return dict(counted)


def _in_flight(reading: MetricsReading) -> float:
    """Return how many requests a server has at present: their access lines may still be unread."""
    return sum(engine.gauges.get(name, 0.0) for engine in reading.engines.values() for name in _IN_FLIGHT)


_ANSWERED, _FAILED_STATUS = "2xx", "5xx"
_FAILED = "error"

_COPIES = "request_params_n"
"""One request of the HTTP server may ask for several answers, of which the engine finishes each by itself."""


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
