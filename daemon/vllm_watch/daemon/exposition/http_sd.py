# SPDX-License-Identifier: Apache-2.0
"""
The watched servers as Prometheus finds targets over HTTP (``http_sd_configs``), so that it may scrape vLLM itself, too.

Tokens and certificates, which Prometheus also needs, are in its own configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict
from urllib.parse import urlsplit

from vllm_watch.daemon.config.model import ServerConfig


class TargetGroup(TypedDict):
    """Targets with the labels they share, with the names that Prometheus gives them."""

    targets: list[str]
    labels: dict[str, str]


def target_groups(servers: Iterable[ServerConfig]) -> list[TargetGroup]:
    """
    Return one group for each server whose /metrics is watched.

    A URL's query is left out: it may hold a secret, and Prometheus shows labels to everybody.
    """
    return [_group(server.metrics.url, server.name, server.labels) for server in servers if server.metrics is not None]


def _group(url: str, name: str, labels: Mapping[str, str]) -> TargetGroup:
    parts = urlsplit(url)
    # Without a port Prometheus takes the one of the scheme, as the daemon does.
    return {
        "targets": [parts.netloc],
        "labels": {**labels, "server": name, "__scheme__": parts.scheme, "__metrics_path__": parts.path},
    }
