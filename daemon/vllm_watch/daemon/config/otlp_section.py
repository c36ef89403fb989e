# SPDX-License-Identifier: Apache-2.0
"""The section of the endpoint to which the series are pushed over OTLP."""

from __future__ import annotations

import msgspec

from vllm_watch.daemon.config.model import OtlpConfig
from vllm_watch.daemon.config.section import Key, Section, duration_key, path_key, read_section
from vllm_watch.daemon.config.server_section import TLS
from vllm_watch.daemon.config.texts import parse_url
from vllm_watch.daemon.config.yaml_node import ConfigNode


DEFAULT_PATH = "/v1/metrics"


def _parse_endpoint(text: str) -> str:
    return parse_url(text, path=DEFAULT_PATH, instead="headers_file")


def _read_endpoint(node: ConfigNode) -> str:
    return node.parsed(node.text(), _parse_endpoint)


def _read_otlp(node: ConfigNode) -> OtlpConfig:
    """Read a mapping, or the URL alone."""
    if not node.is_mapping:
        return OtlpConfig(endpoint=_read_endpoint(node))
    config = read_section(node, OtlpConfig, _OTLP)
    if config.timeout <= config.interval:
        return config
    timeout = node.mapping().get("timeout")
    if timeout is not None:
        raise timeout.error(f"{timeout.written()} is longer than the interval of {config.interval:g}s")
    return msgspec.structs.replace(config, timeout=config.interval)


_OTLP = {
    "endpoint": Key(
        _read_endpoint,
        "URL",
        f"Where OTLP over HTTP is received; without a path it is `{DEFAULT_PATH}`. A user name or password in the URL "
        "is an error.",
        "http://127.0.0.1:4318/v1/metrics",
    ),
    "interval": duration_key("5s", "1h", "From one export to the next.", "60s"),
    "timeout": duration_key(
        "100ms",
        "60s",
        "The limit for one whole export, however slowly the endpoint answers; at most `interval`.",
        "10s",
    ),
    "headers_file": path_key(
        "A file with headers to send, one `Name: value` on each line, such as `Authorization: Bearer …`. It is read "
        "for each export.",
        "/etc/vllm-watch/otlp-headers",
    ),
    "tls": TLS,
}

OTLP = Key(
    _read_otlp,
    "URL or mapping",
    "Pushes all series over OTLP, as /metrics shows them at that moment; needs the extra `otlp`. The URL alone is "
    "enough. See [Pushing over OTLP](#pushing-over-otlp).",
    "http://127.0.0.1:4318",
    Section(OtlpConfig, _OTLP),
)
