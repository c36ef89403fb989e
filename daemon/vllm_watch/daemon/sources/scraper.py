# SPDX-License-Identifier: Apache-2.0
"""
Scrapes a vLLM server's /metrics: the result is what it reports, or one reason from a closed list.

This module handles answers that are not /metrics, are too large, or end too early.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import cast

import requests

from vllm_watch.daemon.catalog.reasons import MetricsReason
from vllm_watch.daemon.config.server_config import MetricsConfig
from vllm_watch.daemon.sources.http_client import (
    NO_HTTP,
    HttpClient,
    RequestError,
    body_pieces,
    check_answer,
)
from vllm_watch.daemon.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.secret_files import read_token
from vllm_watch_parsers.exposition import ExpositionParser
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.scrape import reading_of


MAX_BODY = 64 * 1024 * 1024
"""The longest body that is read, in bytes; what grows without end at some servers takes hours to reach it."""

PIECE = 256 * 1024
"""In smaller pieces a body of megabytes costs up to a half more."""

_STATUS_REASONS: dict[int, MetricsReason] = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
_CONTENT_TYPES = ("text/plain", "application/openmetrics-text")

# Without OpenMetrics: prometheus_client answers in it as soon as it is named, whatever its rank.
# Not compressed: the server's event loop would pay 4 ms for each thousand LoRA label sets. Nor is it asked for some
# names only (`name[]`): with several API servers the answer is then empty, and its log would get them all each time.
_HEADERS = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "identity"}


class Scraper:
    """Scrapes one /metrics; the token is read every time. `scrape` is for one thread at a time, `close` for any."""

    def __init__(self, config: MetricsConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._client = HttpClient(config.timeout, config.tls)

    def scrape(self) -> ScrapeResult:
        """Scrape once. Never raises: what goes wrong is the result's reason."""
        start = time.monotonic()
        parser = ExpositionParser(WANTED)
        outcome = self.fetch(parser.feed)
        reading = reading_of(parser.finish()) if outcome == "ok" else None
        duration = time.monotonic() - start
        at = self._clock.now()
        if reading is None:
            return ScrapeResult(at, duration, None, outcome)
        return scrape_result(at, duration, reading, ahead=self._clock.wall(at) - at)

    def close(self) -> None:
        """Close the connection; a scrape that is running ends as a timeout."""
        self._client.close()

    def fetch(self, feed: Callable[[bytes], object]) -> MetricsReason:
        """Pass the body to `feed` in pieces, never held whole; return ``ok`` if it was complete, or why it was not."""
        headers = _HEADERS
        if self._config.bearer_token_file is not None:
            token = read_token(self._config.bearer_token_file)
            if token is None:
                return "token_unreadable"
            headers = {**_HEADERS, "Authorization": f"Bearer {token}"}
        try:
            with self._client.within_time(), self._client.send("GET", self._config.url, headers) as response:
                _check(response)
                for piece in body_pieces(response, PIECE, MAX_BODY):
                    feed(piece)
        except RequestError as error:
            return cast("MetricsReason", "not_metrics" if error.reason == NO_HTTP else error.reason)
        return "ok"


def _check(response: requests.Response) -> None:
    """Raise `RequestError` if a body is not worth reading."""
    check_answer(response, _STATUS_REASONS)
    headers = response.headers
    if not headers.get("Content-Type", "").strip().lower().startswith(_CONTENT_TYPES):
        raise RequestError("not_metrics")
    # A complete body must be told from one that broke off.
    if not response.raw.chunked and not headers.get("Content-Length", "").strip().isdecimal():
        raise RequestError("incomplete")
