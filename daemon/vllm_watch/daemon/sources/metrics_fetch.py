# SPDX-License-Identifier: Apache-2.0
"""
Fetches the body of /metrics, bounded in time and in bytes.

This module handles answers that are not /metrics, are too large, or end too early.
"""

from __future__ import annotations

import http.client

from collections.abc import Callable, Mapping
from typing import Final, cast

import requests

from vllm_watch.daemon.catalog.reasons import MetricsReason
from vllm_watch.daemon.sources.http_client import (
    NO_HTTP,
    BoundedClient,
    RequestError,
    TlsOptions,
    body_pieces,
    is_encoded,
)


MAX_BODY = 64 * 1024 * 1024
"""The longest body that is read, in bytes; what grows without end at some servers takes hours to reach it."""

PIECE = 256 * 1024
"""In smaller pieces a body of megabytes costs up to a half more."""

_STATUS_REASONS: dict[int, MetricsReason] = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
_CONTENT_TYPES = ("text/plain", "application/openmetrics-text")


OK: Final = "ok"

Feed = Callable[[bytes], None]


class Fetcher:
    """GETs one URL; `fetch` is for one thread at a time, `close` for any. The body is never held whole."""

    def __init__(self, url: str, timeout: float, tls: TlsOptions) -> None:
        self._url = url
        self._request: requests.PreparedRequest | None = None
        """The last request: the next one is usually the same."""
        self._client = BoundedClient(timeout, tls)

    def fetch(self, headers: Mapping[str, str], feed: Feed) -> MetricsReason:
        """Pass the body to `feed` in pieces; return ``ok`` if it was complete, or why it was not."""
        try:
            self._client.run(lambda: self._ask(headers, feed))
        except RequestError as error:
            return cast("MetricsReason", "not_metrics" if error.reason == NO_HTTP else error.reason)
        return OK

    def close(self) -> None:
        """End a request that is running, and close the connection."""
        self._client.close()

    def _ask(self, headers: Mapping[str, str], feed: Feed) -> None:
        if self._request is None or self._request.headers != headers:
            self._request = requests.Request("GET", self._url, headers=headers).prepare()
        with self._client.send(self._request) as response:
            rejection = _rejection(response)
            if rejection is not None:
                raise RequestError(rejection)
            for piece in body_pieces(response, PIECE, MAX_BODY):
                feed(piece)
            self._client.keep(response)


def _rejection(response: http.client.HTTPResponse) -> MetricsReason | None:
    """Return why a body is not worth reading, or `None`."""
    status = response.status
    if status != requests.codes.ok:
        return "redirect" if 300 <= status < 400 else _STATUS_REASONS.get(status, "http_error")
    headers = response.headers
    if is_encoded(response):
        return "encoded"
    if not headers.get("Content-Type", "").strip().lower().startswith(_CONTENT_TYPES):
        return "not_metrics"
    return None if _has_known_end(response) else "incomplete"


def _has_known_end(response: http.client.HTTPResponse) -> bool:
    """Tell whether a complete body can be distinguished from one that broke off."""
    lengths = response.headers.get_all("Content-Length", [])
    return bool(response.chunked) or (len(lengths) == 1 and lengths[0].strip().isdecimal())
