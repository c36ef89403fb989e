# SPDX-License-Identifier: Apache-2.0
"""One bounded GET of a page, again and again: bounded in time and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import requests

from urllib3.exceptions import HTTPError

from vllm_watch.catalog.reasons import MetricsReason
from vllm_watch.sources.http_client import (
    NO_HTTP,
    BoundedClient,
    RequestError,
    TlsOptions,
    is_encoded,
    is_timeout,
    version_of,
)


MAX_BODY = 64 * 1024 * 1024
"""The longest body that is read, in bytes: of what a server may add to its page for ever, some hours' worth."""

PIECE = 256 * 1024
"""Received in smaller pieces a body of megabytes costs up to a half more."""

HTTP_2 = 20

_STATUS_REASONS: dict[int, MetricsReason] = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
_CONTENT_TYPES = ("text/plain", "application/openmetrics-text")


OK: Final = "ok"

Feed = Callable[[bytes], None]


class Fetcher:
    """GETs one URL; `fetch` is for one thread at a time, `close` for any. The body is never held whole."""

    def __init__(self, url: str, timeout: float, tls: TlsOptions) -> None:
        self._url = url
        self._exchange = BoundedClient(timeout, tls)

    def fetch(self, headers: Mapping[str, str], feed: Feed) -> MetricsReason:
        """Give the page's body away in pieces; return ``ok`` once it was whole, or why it was not."""
        try:
            self._exchange.run(lambda: self._ask(headers, feed))
        except RequestError as error:
            return cast("MetricsReason", "not_metrics" if error.reason == NO_HTTP else error.reason)
        return OK

    def close(self) -> None:
        """End a request under way, and let go of the connection."""
        self._exchange.close()

    def _ask(self, headers: Mapping[str, str], feed: Feed) -> None:
        request = requests.Request("GET", self._url, headers=headers).prepare()
        with self._exchange.send(request) as response:
            refusal = _refusal(response)
            if refusal is not None:
                raise RequestError(refusal)
            _read(response, feed)
            self._exchange.keep(response)


def _refusal(response: requests.Response) -> MetricsReason | None:
    """Return why a body is not worth reading, or `None`."""
    status = response.status_code
    if status != requests.codes.ok:
        return "redirect" if 300 <= status < 400 else _STATUS_REASONS.get(status, "http_error")
    headers = response.headers
    if is_encoded(response):
        return "encoded"
    if not headers.get("Content-Type", "").strip().lower().startswith(_CONTENT_TYPES):
        return "not_metrics"
    return None if _says_its_end(response) else "incomplete"


def _says_its_end(response: requests.Response) -> bool:
    """Whether a whole body can be told from one that broke off."""
    headers = response.headers
    is_chunked = headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
    has_length = headers.get("Content-Length", "").strip().isdecimal()
    return is_chunked or has_length or version_of(response) >= HTTP_2


def _read(response: requests.Response, feed: Feed) -> None:
    size = 0
    try:
        # Not `stream`, which reads the sizes of chunks as lines of any length.
        while piece := response.raw.read(PIECE, decode_content=False):
            size += len(piece)
            if size > MAX_BODY:
                raise RequestError("too_large")
            feed(piece)
    except (HTTPError, OSError) as error:
        raise RequestError("timeout" if is_timeout(error) else "incomplete") from None
