# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a Prometheus, or of what speaks like one: bounded in time and in bytes, and each failure in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import requests

from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.prometheus.answers import (
    PromAlert,
    PromSeries,
    parse_alerts,
    parse_matrix,
    parse_names,
    parse_rejection,
)
from vllm_watch.daemon.sources.http_reader import LIMITS, HttpLimits, HttpReader
from vllm_watch.daemon.support.errors import PrometheusError
from vllm_watch.daemon.support.secret_files import read_token


T = TypeVar("T")

_EXACT: Mapping[str, str] = {"nocache": "1", "deny_partial_response": "1", "partial_response": "false"}
"""
What a Prometheus ignores. VictoriaMetrics moves the moments to multiples of the step, unless it must not use its cache;
and a cluster of it, as Thanos, answers without the nodes that are down, unless that has to be an error.
"""


class PrometheusTarget(NamedTuple):
    """
    Which Prometheus.

    Args:
        url: Where it is, with its path if it is served below one.
        token_file: A file with its bearer token.
        tls: Whom to trust instead of the usual authorities, and what to present.
        token_named_by: What names the token's file: a variable of the environment, or a key of the configuration.
    """

    url: str
    token_file: str | None = None
    tls: TlsConfig | None = None
    token_named_by: str = "PROMETHEUS_TOKEN_FILE"  # noqa: S105 - A name.


class PrometheusApi:
    """
    Asks one Prometheus, one request after the other.

    Args:
        target: Which one.
        limits: How much is waited for.

    Raises:
        PrometheusError: The token cannot be read; and of each method: it cannot be reached, or rejects what is asked.
    """

    def __init__(self, target: PrometheusTarget, limits: HttpLimits = LIMITS) -> None:
        self._target = target
        token = None if target.token_file is None else read_token(target.token_file)
        if target.token_file is not None and token is None:
            raise PrometheusError(f"{target.token_file}: cannot be read, or has no token")
        authorization = None if token is None else f"Bearer {token}"
        self._reader = HttpReader(target.url, authorization, target.tls, limits)
        self.url = self._reader.url

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def range(self, query: str, times: TimeRange, step: float) -> tuple[PromSeries, ...]:
        """Return an expression's series at moments `step` apart, from the first on."""
        moments = {"start": f"{times.start:.3f}", "end": f"{times.end:.3f}", "step": f"{step:.3f}"}
        return self._parsed(parse_matrix, "/api/v1/query_range", {"query": query, **moments, **_EXACT})

    def servers(self) -> tuple[str, ...]:
        """Return every name of a server that there ever was."""
        return self._parsed(parse_names, "/api/v1/label/server/values", {"match[]": "vllm_watch_source_up"})

    def alerts(self) -> tuple[PromAlert, ...]:
        """Return all alerts that are pending or firing now."""
        return self._parsed(parse_alerts, "/api/v1/alerts", {})

    def _parsed(self, parse: Callable[[bytes], T], path: str, parameters: Mapping[str, str]) -> T:
        status, body = self._get(f"{path}?{urlencode(parameters)}" if parameters else path)
        if status != requests.codes.ok:
            raise PrometheusError(f"{self.url}: {self._rejection(status, body)}")
        try:
            return parse(body)
        except ValueError as error:
            raise PrometheusError(f"{self.url}: {error}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            return self._reader.get(path)
        except ValueError as error:
            raise PrometheusError(f"{self.url}: {error}") from error

    def _rejection(self, status: int, body: bytes) -> str:
        if status == requests.codes.unauthorized:
            return (
                f"it requires a token (401): its file is named by {self._target.token_named_by}"
                if self._target.token_file is None
                else f"it rejects the token in {self._target.token_file} (401)"
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
