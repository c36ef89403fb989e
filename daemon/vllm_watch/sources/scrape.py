# SPDX-License-Identifier: Apache-2.0
"""Reads a vLLM server's /metrics: one page, or one reason from a closed list why there is none."""

from __future__ import annotations

import os
import time

from pathlib import Path
from typing import NamedTuple

from vllm_watch import __version__
from vllm_watch.clock import Clock
from vllm_watch.sources.http_fetch import Answer, Fetcher
from vllm_watch.state.metrics_side import ScrapeResult
from vllm_watch_parsers.metrics import MetricsReading, Unreadable, read_metrics


REASONS: tuple[str, ...] = (
    "ok",
    "refused",
    "timeout",
    "unauthorized",
    "forbidden",
    "not_found",
    "http_error",
    "redirect",
    "not_metrics",
    "stats_disabled",
    "too_many_samples",
    "too_large",
    "incomplete",
    "encoded",
    "tls_error",
    "name_not_resolved",
    "unreachable",
    "token_unreadable",
)

MAX_TOKEN = 64 * 1024

# Without OpenMetrics: prometheus_client answers in it as soon as it is named, whatever its rank.
_HEADERS = {
    "Accept": "text/plain;version=0.0.4,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": f"vllm-watch/{__version__}",
}


class TlsOptions(NamedTuple):
    """Files for TLS: the authority to trust instead of the usual ones, and this side's certificate and key."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class ScrapeTarget(NamedTuple):
    """
    Where /metrics is and how to ask for it.

    Args:
        url: The page's URL.
        timeout: Seconds for the whole scrape, whatever the server drips.
        bearer_token_file: Holds the token to send; read anew for every scrape.
        tls: For an ``https`` URL.
    """

    url: str
    timeout: float = 4.0
    bearer_token_file: str | None = None
    tls: TlsOptions = TlsOptions()


class Scraper:
    """Reads one target's page whenever told to; `scrape` is for one thread at a time, `close` for any."""

    def __init__(self, target: ScrapeTarget, clock: Clock) -> None:
        tls = target.tls
        cert = (tls.cert_file, tls.key_file) if tls.cert_file and tls.key_file else tls.cert_file
        self._target = target
        self._clock = clock
        self._fetcher = Fetcher(target.url, target.timeout, verify=tls.ca_file or True, cert=cert)

    def scrape(self) -> ScrapeResult:
        """Read the page once. Never raises: what goes wrong is the result's reason."""
        start = time.monotonic()
        answer = self._fetch()
        reading: MetricsReading | Unreadable | None = None
        if answer.reason == "ok":
            reading = read_metrics(answer.body)
        duration = time.monotonic() - start
        at = self._clock.now()
        if isinstance(reading, Unreadable):
            return ScrapeResult(at, duration, None, reading.reason)
        return ScrapeResult(at, duration, reading, answer.reason, ahead=self._clock.wall(at) - at)

    def close(self) -> None:
        """Let go of the connection; a scrape under way ends as one that took too long."""
        self._fetcher.close()

    def _fetch(self) -> Answer:
        if not all(os.access(path, os.R_OK) for path in self._target.tls if path):
            return Answer("tls_error")
        token_file = self._target.bearer_token_file
        if token_file is None:
            return self._fetcher.fetch(_HEADERS)
        token = _read_token(token_file)
        if token is None:
            return Answer("token_unreadable")
        return self._fetcher.fetch({**_HEADERS, "Authorization": f"Bearer {token}"})


def _read_token(path: str) -> str | None:
    """Return a file's token, or `None` if it has none that a header could carry."""
    try:
        with Path(path).open("rb") as file:
            token = file.read(MAX_TOKEN).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return token if token and token.isprintable() else None
