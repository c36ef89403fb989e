# SPDX-License-Identifier: Apache-2.0
"""A configuration from the command line's options. A wrong option is a `UsageError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import msgspec

from vllm_watch.daemon.config.model import Config, PrometheusConfig
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.config.texts import (
    DEFAULT_NAME,
    as_name,
    check_listen,
    check_path,
    host_and_port,
    parse_prometheus_url,
    parse_url,
    quote,
    unique_name,
)
from vllm_watch.daemon.support.errors import UsageError


Value = TypeVar("Value")


def config_from_options(logs: Sequence[str], metrics: Sequence[str], listen: str | None) -> Config:
    """
    Return the configuration that the options make.

    The first log and the first URL belong to one server, the second ones to the next.
    """
    servers = [_server_of_options(log, url) for log, url in zip_longest(logs, metrics)]
    if len(servers) == 1:
        servers = [msgspec.structs.replace(servers[0], name=DEFAULT_NAME)]
    config = Config(servers=tuple(_with_unique_names(servers)))
    return config if listen is None else with_listen(config, listen)


def with_listen(config: Config, listen: str) -> Config:
    """Return a configuration with the address of ``--listen`` in place of its own."""
    return msgspec.structs.replace(config, listen=_option("--listen", listen, check_listen))


def with_prometheus(config: Config, url: str) -> Config:
    """Return a configuration with the Prometheus of ``--prometheus`` in place of its own."""
    prometheus = PrometheusConfig(url=_option("--prometheus", url, parse_prometheus_url))
    return msgspec.structs.replace(config, prometheus=prometheus)


def _option(option: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _server_of_options(log: str | None, url: str | None) -> ServerConfig:
    path = None if log is None else _option("--log", log, _absolute)
    metrics = None if url is None else MetricsConfig(url=_option("--metrics", url, parse_url))
    name = host_and_port(metrics.url) if metrics is not None else Path(path or "").stem
    return ServerConfig(name=as_name(name), log=path, metrics=metrics)


def _absolute(text: str) -> str:
    path = check_path(text)
    try:
        return str(Path(path).absolute())
    except FileNotFoundError:
        raise ValueError(f"{quote(path)} is relative to a folder that was deleted") from None


def _with_unique_names(servers: Iterable[ServerConfig]) -> Iterable[ServerConfig]:
    taken: set[str] = set()
    for server in servers:
        name = unique_name(server.name, taken)
        taken.add(name)
        yield msgspec.structs.replace(server, name=name)
