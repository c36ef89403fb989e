# SPDX-License-Identifier: Apache-2.0
"""The section of the Prometheus whose alerts are shown."""

from __future__ import annotations

from vllm_watch.daemon.config.model import PrometheusConfig
from vllm_watch.daemon.config.section import Key, Section, duration_key, path_key, read_section
from vllm_watch.daemon.config.server_section import TLS
from vllm_watch.daemon.config.texts import parse_url
from vllm_watch.daemon.config.yaml_node import ConfigNode


LONGEST_TIMEOUT = "20s"


def parse_prometheus_url(text: str) -> str:
    """
    Return a Prometheus' URL as it is asked.

    Raises:
        ValueError: It is none, or has more than a path.
    """
    url = parse_url(text, path="")
    if "?" in url or "#" in url:
        raise ValueError("expected a URL without ? and #: paths of the API are put after it")
    return url


def _read_url(node: ConfigNode) -> str:
    return node.parsed(node.text(), parse_prometheus_url)


def _read_prometheus(node: ConfigNode) -> PrometheusConfig:
    """Read a mapping, or the URL alone."""
    if not node.is_mapping:
        return PrometheusConfig(url=_read_url(node))
    return read_section(node, PrometheusConfig, _PROMETHEUS)


_PROMETHEUS = {
    "url": Key(
        _read_url,
        "URL",
        "Where Prometheus is, or what speaks like one, with the path that it is served below. A user name or password "
        "in the URL is an error.",
        "http://127.0.0.1:9090",
    ),
    "timeout": duration_key(
        "100ms", LONGEST_TIMEOUT, "The limit for one whole request, however slowly the answer arrives.", "5s"
    ),
    "bearer_token_file": path_key(
        "A file with the token to send as `Authorization: Bearer`. It is read for each request.",
        "/etc/vllm-watch/prometheus-token",
    ),
    "tls": TLS,
}

PROMETHEUS = Key(
    _read_prometheus,
    "URL or mapping",
    "The Prometheus that evaluates vllm-watch's rules: the status page and the snapshot show its alerts. The URL alone "
    "is enough. See [Alerts of a Prometheus](#alerts-of-a-prometheus).",
    "http://127.0.0.1:9090",
    Section(PrometheusConfig, _PROMETHEUS),
)
