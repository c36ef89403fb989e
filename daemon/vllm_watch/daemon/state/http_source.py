# SPDX-License-Identifier: Apache-2.0
"""
Which source counts a server's HTTP requests, its access log, or /metrics where the log has none.

The log has each code, /metrics only classes of codes, and both count at different moments: the log when an answer
starts, /metrics when it ends. So requests are counted by one of them, never by both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from vllm_watch_parsers.readings import HttpRequests


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


def http_requests(
    logged: Mapping[HttpRequestKey, int] | None, counts: Mapping[HttpRequests, float], *, has_lines: bool
) -> dict[HttpRequestKey, float]:
    """
    Return how many requests were answered, by the source that counts them.

    Args:
        logged: Those by the log, `None` without one.
        counts: Those by /metrics.
        has_lines: Whether the log has ever had an access line (``--disable-uvicorn-access-log``): then it counts.
    """
    # Other methods are used by monitoring, whose access lines an operator may have switched off.
    posts = sum(count for request, count in counts.items() if request.method == "POST")
    if logged is not None and (has_lines or posts < PROVING_REQUESTS):
        return dict(logged)
    counted: Counter[HttpRequestKey] = Counter()
    for request, count in counts.items():
        counted[http_request_key(request.method, request.handler, request.status)] += int(count)
    return dict(counted)
