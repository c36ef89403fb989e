# SPDX-License-Identifier: Apache-2.0
"""
Which response a request gets.

Nothing that a client sends is sent back: responses are those of the endpoints, the status page's files, and fixed
sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

import structlog

from vllm_watch.daemon.support.internal_errors import InternalErrors
from vllm_watch.daemon.web.assets import Asset, load_assets
from vllm_watch.daemon.web.endpoints import PLAIN_TEXT, Endpoints, Response, accepts_gzip, compressed, plain_text


ALLOWED_METHODS = ("GET", "HEAD")

LONG_PATHS = frozenset({"/metrics", "/api/v1/snapshot"})
"""Responses about all servers, which take longer to make than others may wait."""

Headers = Mapping[str, str]
Route = Callable[[Headers, str], Response]

_NO_CONTENT = Response(b"", PLAIN_TEXT, 204)
_NOT_FOUND = plain_text("Nothing here: see / for the status page and /metrics for Prometheus.", 404)
_METHOD_NOT_ALLOWED = plain_text("Only GET and HEAD are answered.", 405)
_FAILED = plain_text("This request failed: see the log of vllm-watch.", 500)

log = structlog.get_logger("vllm_watch.web")


class Router:
    """
    Finds the response to a request.

    Args:
        endpoints: What to serve besides the status page's files.
        errors: Counts endpoints that fail.
    """

    def __init__(self, endpoints: Endpoints, errors: InternalErrors) -> None:
        self._errors = errors
        self._routes: dict[str, Route] = {
            "/metrics": lambda headers, _: endpoints.metrics(
                headers.get("Accept", ""), headers.get("Accept-Encoding", "")
            ),
            "/api/v1/snapshot": _snapshot(endpoints),
            "/api/v1/targets": _compressing(endpoints.targets),
            "/-/healthy": lambda *_: endpoints.healthy(),
            "/-/ready": lambda *_: endpoints.ready(),
            "/favicon.ico": lambda *_: _NO_CONTENT,
        }
        self._routes.update((path, _serving(asset)) for path, asset in load_assets().items())

    def respond(self, method: str, path: str, query: str, headers: Headers) -> Response:
        """Return the response, whatever the request is and however its endpoint fails."""
        route = self._routes.get(path)
        if route is None:
            return _NOT_FOUND
        if method not in ALLOWED_METHODS:
            return _METHOD_NOT_ALLOWED
        try:
            return route(headers, query)
        except Exception:  # One request that fails must not end the others.
            log.exception("web.request_failed", path=path)
            self._errors.count("web")
            return _FAILED


def _compressing(endpoint: Callable[[], Response]) -> Route:
    def route(headers: Headers, _query: str) -> Response:
        response = endpoint()
        return compressed(response) if _wants_gzip(headers) else response

    return route


def _snapshot(endpoints: Endpoints) -> Route:
    def route(headers: Headers, query: str) -> Response:
        named = parse_qs(query, keep_blank_values=True).get("history")
        histories = None if named is None else frozenset(named)
        return _compressing(lambda: endpoints.snapshot(histories))(headers, query)

    return route


def _serving(asset: Asset) -> Route:
    return lambda headers, _: asset.gzipped if _wants_gzip(headers) else asset.plain


def _wants_gzip(headers: Headers) -> bool:
    return accepts_gzip(headers.get("Accept-Encoding", ""))
