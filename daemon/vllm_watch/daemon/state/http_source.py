# SPDX-License-Identifier: Apache-2.0
"""
Which source counts a server's HTTP requests: its access log, or /metrics where the log has none.

The log has each code, /metrics only classes of codes, and both count at different moments: the log when an answer
starts, /metrics when it ends. So requests are counted by one of them, never by both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus

from vllm_watch.daemon.state.snapshot import HttpRequestKey
from vllm_watch_parsers.scrape import MetricsReading


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

LATE_SECONDS = 15.0
"""An access line is read at most this long after /metrics has counted its request."""

_IN_FLIGHT = ("requests_running", "requests_waiting")


class HttpSource:
    """
    Takes in when access lines were read and what /metrics counts.

    /metrics is chosen once it is proven that the log has no access lines (``--disable-uvicorn-access-log``), or if
    there is no log. One access line shows that the log counts, for as long as the server lives: what /metrics has more
    of are answers that started long ago, or lines that cannot be read now.
    """

    def __init__(self, *, has_log: bool) -> None:
        self.is_metrics = not has_log
        self._has_lines = False
        self._enough: float | None = None
        """The count in /metrics from which on the log's silence is a proof."""
        self._before = 0.0
        self._enough_at: float | None = None

    def start_life(self) -> None:
        """Take in that the server was started again, perhaps with other options; the choice stays until a line."""
        self._has_lines = False
        self._enough = None

    def note_lines(self) -> None:
        """Take in that the log has access lines."""
        self._has_lines = True
        self.is_metrics = False

    def note_scrape(self, at: float, reading: MetricsReading, *, is_log_up: bool) -> None:
        """
        Take in what /metrics counts.

        Args:
            at: When it was read, in seconds since the epoch.
            reading: What was read.
            is_log_up: Whether the log can be read: what is written meanwhile is not known.
        """
        if self.is_metrics or self._has_lines:
            return
        # Other methods are used by monitoring, whose access lines an operator may have switched off.
        count = sum(each for request, each in reading.http_requests.items() if request.method == "POST")
        if self._enough is None or count < self._before or not is_log_up:
            self._enough, self._enough_at = count + _in_flight(reading) + PROVING_REQUESTS, None
        elif count >= self._enough:
            self._enough_at = at if self._enough_at is None else self._enough_at
            self.is_metrics = at - self._enough_at >= LATE_SECONDS
        self._before = count

    def count(
        self, logged: Mapping[HttpRequestKey, int] | None, reading: MetricsReading | None
    ) -> dict[HttpRequestKey, float]:
        """Return how many requests were answered, by the source that counts them; `logged` is `None` without a log."""
        if logged is not None and not self.is_metrics:
            return dict(logged)
        counted: Counter[HttpRequestKey] = Counter()
        for request, count in (reading.http_requests if reading else {}).items():
            counted[http_request_key(request.method, request.handler, request.status)] += int(count)
        return dict(counted)


def _in_flight(reading: MetricsReading) -> float:
    """Return how many requests a server has at present: their access lines may still be unread."""
    return sum(engine.gauges.get(name, 0.0) for engine in reading.engines.values() for name in _IN_FLIGHT)
