# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a Prometheus, or of what speaks like one: bounded in time and in bytes, and each failure in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import requests

from vllm_watch import __version__
from vllm_watch.config.times import TimeRange
from vllm_watch.loadtest.prometheus_answers import PromSeries, parse_matrix, parse_names, parse_rejection
from vllm_watch.sources.http_client import NO_HTTP, BoundedClient, RequestError, TlsOptions, body_pieces, is_encoded
from vllm_watch.support.errors import PrometheusError
from vllm_watch.support.tokens import read_token


MAX_BODY = 64 * 1024 * 1024

T = TypeVar("T")

_PIECE = 256 * 1024
_EXACT: Mapping[str, str] = {"nocache": "1", "deny_partial_response": "1", "partial_response": "false"}
"""
What a Prometheus ignores. VictoriaMetrics moves the moments to multiples of the step, unless it must not use its cache;
and a cluster of it, as Thanos, answers without the nodes that are down, unless that has to be an error.
"""
_TIMEOUT = 60.0

_REASONS: Mapping[str, str] = {
    "refused": "nothing listens at this address",
    "timeout": "no whole answer within a minute",
    "unreachable": "the address cannot be reached, or the connection broke",
    "name_not_resolved": "the host name cannot be resolved",
    "tls_error": "TLS failed; check the certificate, its certificate authority and the URL's scheme",
    "too_large": "an answer is over 64 MiB: ask for a shorter time",
    "incomplete": "an answer was cut off",
    "encoded": "an answer is compressed, which was not requested",
    NO_HTTP: "what answers there is not HTTP",
}


class PrometheusTarget(NamedTuple):
    """
    Which Prometheus.

    Args:
        url: Where it is, with its path if it is served below one.
        token_file: A file with its bearer token.
        ca_file: The authorities to trust instead of the usual ones.
    """

    url: str
    token_file: str | None = None
    ca_file: str | None = None


class PrometheusApi:
    """
    Asks one Prometheus, one request after the other.

    Raises:
        PrometheusError: The token cannot be read; and of each method: it cannot be reached, or rejects what is asked.
    """

    def __init__(self, target: PrometheusTarget) -> None:
        self.url = target.url.rstrip("/")
        self._token_file = target.token_file
        self._client = BoundedClient(_TIMEOUT, TlsOptions(ca_file=target.ca_file))
        self._headers = {"Accept": "application/json", "User-Agent": f"vllm-watch/{__version__}"}
        if target.token_file is not None:
            token = read_token(target.token_file)
            if token is None:
                raise PrometheusError(f"{target.token_file}: cannot be read, or has no token")
            self._headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def range(self, query: str, times: TimeRange, step: float) -> tuple[PromSeries, ...]:
        """Return an expression's series at moments `step` apart, from the first on."""
        moments = {"start": f"{times.start:.3f}", "end": f"{times.end:.3f}", "step": f"{step:.3f}"}
        return self._parsed(parse_matrix, "/api/v1/query_range", {"query": query, **moments, **_EXACT})

    def servers(self) -> tuple[str, ...]:
        """Return every name of a server that there ever was."""
        return self._parsed(parse_names, "/api/v1/label/server/values", {"match[]": "vllm_watch_source_up"})

    def _parsed(self, parse: Callable[[bytes], T], path: str, parameters: Mapping[str, str]) -> T:
        status, body = self._get(f"{path}?{urlencode(parameters)}")
        if status != requests.codes.ok:
            raise PrometheusError(f"{self.url}: {self._rejection(status, body)}")
        try:
            return parse(body)
        except ValueError as error:
            raise PrometheusError(f"{self.url}: {error}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        request = requests.Request("GET", self.url + path, headers=self._headers).prepare()

        def ask() -> tuple[int, bytes]:
            with self._client.send(request) as response:
                if is_encoded(response):
                    raise RequestError("encoded")
                body = b"".join(body_pieces(response, _PIECE, MAX_BODY))
                self._client.keep(response)
                return response.status, body

        try:
            return self._client.run(ask)
        except RequestError as error:
            raise PrometheusError(f"{self.url}: {_REASONS.get(error.reason, error.reason)}") from None

    def _rejection(self, status: int, body: bytes) -> str:
        if status == requests.codes.unauthorized:
            return (
                "it requires a token (401): give --bearer-token-file"
                if self._token_file is None
                else f"it rejects the token in {self._token_file} (401)"
            )
        if status == requests.codes.forbidden:
            return "it denies access (403)"
        if 300 <= status < 400:
            return "it redirects: give the final URL"
        said = parse_rejection(body)
        if said:
            return f"it rejects a query: {said}"
        if status == requests.codes.not_found:
            return "no Prometheus API there (404): check the URL's path"
        return f"it answered with an error ({status})"
