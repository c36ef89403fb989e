# SPDX-License-Identifier: Apache-2.0
"""A source as every command names it: a file, a folder, or ``prom:URL/SERVER@FROM/TO``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from vllm_watch.analysis.loadtest.prometheus_source import SCHEME, PrometheusQuery
from vllm_watch.daemon.config.moments import parse_from_to
from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.config.texts import check_name, parse_url
from vllm_watch.daemon.prometheus.api import PrometheusTarget
from vllm_watch.daemon.support.errors import UsageError


TOKEN_FILE = "PROMETHEUS_TOKEN_FILE"  # noqa: S105 - The name of a variable.
CA_FILE = "PROMETHEUS_CA_FILE"

Source = str | PrometheusQuery
"""The path of a file or folder, or a time of a server that a Prometheus has."""

ParseSource = Callable[[str], Source]
"""Reads a source as it is given; raises `UsageError` if it is wrong."""

_EXAMPLE = f"{SCHEME}http://localhost:9090/qwen@-2h/-1h"


def parse_source(text: str, now: float, environment: Mapping[str, str]) -> Source:
    """
    Return what a source names: what does not begin with ``prom:`` is a path.

    Args:
        text: As given. Of a Prometheus what is after the last slash is the server, ``%2F`` for a slash in its
            name, and may be empty: ``prom:http://host/path/@-2h``. Without ``TO`` the time ends now.
        now: The present, in seconds since the epoch.
        environment: Names the files of the Prometheus' bearer token and of the authorities to trust, if it does.

    Raises:
        UsageError: It is no source; the message says what is wrong with it, without a password.
    """
    if not text.startswith(SCHEME):
        return text
    address, at, times = text.removeprefix(SCHEME).rpartition("@")
    if not at:
        raise UsageError(f"{text}: expected {SCHEME}URL/SERVER@FROM/TO, such as {_EXAMPLE}")
    try:
        url = parse_url(address, path="/", instead=TOKEN_FILE)
        base, server = _parts(url)
        if server is not None:
            check_name(server)
        found = parse_from_to(times, now)
    except ValueError as error:
        raise UsageError(f"{SCHEME}URL/SERVER@FROM/TO: {error}") from None
    tls = TlsConfig(ca_file=environment.get(CA_FILE))
    return PrometheusQuery(PrometheusTarget(base, environment.get(TOKEN_FILE), tls, TOKEN_FILE), server, found)


def _parts(url: str) -> tuple[str, str | None]:
    base, _, server = url.rpartition("/")
    return base, unquote(server) or None


def queries_of(sources: Sequence[Source]) -> tuple[PrometheusQuery, ...]:
    """Return those sources that a Prometheus has."""
    return tuple(source for source in sources if isinstance(source, PrometheusQuery))


def paths_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """Return those sources that are files and folders."""
    return tuple(source for source in sources if isinstance(source, str))
