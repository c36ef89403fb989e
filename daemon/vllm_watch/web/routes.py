# SPDX-License-Identifier: Apache-2.0
"""
Which page a request gets.

Nothing that a client sends comes back to it: answers are the pages, the files of the status page, and fixed sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

import structlog

from vllm_watch.support.internal_errors import InternalErrors
from vllm_watch.web.assets import Asset, load_assets
from vllm_watch.web.pages import PLAIN_TEXT, Answer, Pages, accepts_gzip, compressed, plain_text


ALLOWED_METHODS = ("GET", "HEAD")

Headers = Mapping[str, str]
Route = Callable[[Headers, str], Answer]

_NO_CONTENT = Answer(b"", PLAIN_TEXT, 204)
_NOT_FOUND = plain_text("Nothing here: see / for the status page and /metrics for Prometheus.", 404)
_METHOD_NOT_ALLOWED = plain_text("Only GET and HEAD are answered.", 405)
_FAILED = plain_text("This request failed: see the log of vllm-watch.", 500)

log = structlog.get_logger("vllm_watch.web")


class Router:
    """
    Finds the answer to a request.

    Args:
        pages: What to serve beside the status page's files.
        errors: Where a page that fails is counted.
    """

    def __init__(self, pages: Pages, errors: InternalErrors) -> None:
        self._errors = errors
        self._routes: dict[str, Route] = {
            "/metrics": lambda headers, _: pages.metrics(headers.get("Accept", ""), headers.get("Accept-Encoding", "")),
            "/api/v1/snapshot": _snapshot(pages),
            "/api/v1/targets": _compressing(pages.targets),
            "/-/healthy": lambda *_: pages.healthy(),
            "/-/ready": lambda *_: pages.ready(),
            "/favicon.ico": lambda *_: _NO_CONTENT,
        }
        self._routes.update((path, _serving(asset)) for path, asset in load_assets().items())

    def answer(self, method: str, path: str, query: str, headers: Headers) -> Answer:
        """Return the answer, whatever the request is and however its page fails."""
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


def _compressing(page: Callable[[], Answer]) -> Route:
    def route(headers: Headers, _query: str) -> Answer:
        answer = page()
        return compressed(answer) if _wants_gzip(headers) else answer

    return route


def _snapshot(pages: Pages) -> Route:
    def route(headers: Headers, query: str) -> Answer:
        named = parse_qs(query, keep_blank_values=True).get("history")
        histories = None if named is None else frozenset(named)
        return _compressing(lambda: pages.snapshot(histories))(headers, query)

    return route


def _serving(asset: Asset) -> Route:
    return lambda headers, _: asset.gzipped if _wants_gzip(headers) else asset.plain


def _wants_gzip(headers: Headers) -> bool:
    return accepts_gzip(headers.get("Accept-Encoding", ""))
