# SPDX-License-Identifier: Apache-2.0
"""Labels of counted HTTP requests, from closed lists: no text of a client becomes a label."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from vllm_watch.daemon.state.snapshot import HttpRequestKey
from vllm_watch_parsers.events import SleepKind


OTHER = "other"
ANY_OTHER = HttpRequestKey(OTHER, OTHER, OTHER)

HANDLERS = frozenset(
    {
        "/classify",
        "/cohere/v2/embed",
        "/detokenize",
        "/health",
        "/inference/v1/generate",
        "/invocations",
        "/is_sleeping",
        "/load",
        "/metrics",
        "/pause",
        "/ping",
        "/pooling",
        "/ready",
        "/rerank",
        "/reset_prefix_cache",
        "/resume",
        "/score",
        "/server_info",
        "/sleep",
        "/tokenize",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/load_lora_adapter",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/realtime",
        "/v1/rerank",
        "/v1/responses",
        "/v1/score",
        "/v1/unload_lora_adapter",
        "/v2/rerank",
        "/version",
        "/wake_up",
    }
)

PAUSING: Mapping[str, SleepKind] = {"/pause": "paused", "/resume": "resumed"}
"""Handlers by which an operator pauses and resumes an engine."""

WAKE_UP = "/wake_up"
"""The handler by which an operator wakes an engine up; that also ends a pause."""

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_CODES = frozenset({"1xx", "2xx", "3xx", "4xx", "5xx", "499", *(str(status.value) for status in HTTPStatus)})


def http_request_key(method: str, path: str, code: str) -> HttpRequestKey:
    """Return the labels for one request; `code` is a status of three digits or a class such as ``2xx``."""
    handler = path if path in HANDLERS else OTHER
    return HttpRequestKey(method if method in METHODS else OTHER, handler, code if code in _CODES else OTHER)
