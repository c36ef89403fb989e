# SPDX-License-Identifier: Apache-2.0
"""Scrapes a vLLM server's /metrics: the result is what it reports, or one reason from a closed list."""

from __future__ import annotations

import time

from typing import NamedTuple

from vllm_watch import __version__
from vllm_watch.daemon.catalog.reasons import MetricsReason
from vllm_watch.daemon.config.server_config import MetricsConfig, TlsConfig
from vllm_watch.daemon.sources.http_client import TlsOptions
from vllm_watch.daemon.sources.metrics_fetch import OK, Feed, Fetcher
from vllm_watch.daemon.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.secret_files import read_token
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.repeated_bodies import RepeatedBodies
from vllm_watch_parsers.scrape import reading_of


# Without OpenMetrics: prometheus_client answers in it as soon as it is named, whatever its rank.
# Not compressed: the server's event loop would pay 4 ms for each thousand LoRA label sets. Nor is it asked for some
# names only (`name[]`): with several API servers the answer is then empty, and its log would get them all each time.
_HEADERS = {
    "Accept": "text/plain;version=0.0.4,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": f"vllm-watch/{__version__}",
}


class ScrapeTarget(NamedTuple):
    """
    Where /metrics is and how to ask for it.

    Args:
        url: The URL of /metrics.
        timeout: Seconds for the whole scrape, whatever the server drips.
        bearer_token_file: Holds the token to send; read again for every scrape.
        tls: For an ``https`` URL.
    """

    url: str
    timeout: float = 4.0
    bearer_token_file: str | None = None
    tls: TlsOptions = TlsOptions()


def tls_options(tls: TlsConfig | None) -> TlsOptions:
    """Return what a configuration says about TLS."""
    return TlsOptions(tls.ca_file, tls.cert_file, tls.key_file) if tls else TlsOptions()


def scrape_target(metrics: MetricsConfig) -> ScrapeTarget:
    """Return where a configuration says that /metrics is."""
    return ScrapeTarget(metrics.url, metrics.timeout, metrics.bearer_token_file, tls_options(metrics.tls))


class Scraper:
    """Scrapes one target; `scrape` is for one thread at a time, `close` for any."""

    def __init__(self, target: ScrapeTarget, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._bodies = RepeatedBodies(WANTED)
        self._fetcher = Fetcher(target.url, target.timeout, target.tls)

    def scrape(self) -> ScrapeResult:
        """Scrape once. Never raises: what goes wrong is the result's reason."""
        start = time.monotonic()
        self._bodies.start()
        outcome = self.fetch(self._bodies.feed)
        reading = reading_of(self._bodies.finish()) if outcome == OK else None
        duration = time.monotonic() - start
        at = self._clock.now()
        if reading is None:
            return ScrapeResult(at, duration, None, outcome)
        return scrape_result(at, duration, reading, ahead=self._clock.wall(at) - at)

    def close(self) -> None:
        """Close the connection; a scrape that is running ends as a timeout."""
        self._fetcher.close()

    def fetch(self, feed: Feed) -> MetricsReason:
        """Pass the body to `feed` in pieces; return ``ok`` if it was complete, or why it was not."""
        token_file = self._target.bearer_token_file
        if token_file is None:
            return self._fetcher.fetch(_HEADERS, feed)
        token = read_token(token_file)
        if token is None:
            return "token_unreadable"
        return self._fetcher.fetch({**_HEADERS, "Authorization": f"Bearer {token}"}, feed)
