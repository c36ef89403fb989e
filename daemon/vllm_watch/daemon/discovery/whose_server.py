# SPDX-License-Identifier: Apache-2.0
"""Which of the servers that run here a configured one is: by its address, its unit or its log. Pure."""

from __future__ import annotations

import ipaddress

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.config.texts import host_and_port
from vllm_watch.daemon.discovery.servers import DiscoveredServer


class Here(NamedTuple):
    """This machine, or the container that this process is in: its name, and its addresses but loopback."""

    hostname: str
    addresses: Collection[str]

    def has(self, host: str) -> bool:
        """Whether a host of a URL is this machine."""
        return host in {"localhost", self.hostname, *self.addresses} or _is_loopback(host)

    def runs(self, server: ServerConfig) -> bool:
        """Whether a server seems to run here: by its unit, its address, or else its log."""
        if server.journal is not None or server.metrics is None:
            return True
        return self.has(urlsplit(server.metrics.url).hostname or "")

    def may_run(self, server: ServerConfig) -> bool:
        """Whether a server may run here; its log tells which process it is also where its address has another name."""
        return server.log is not None or self.runs(server)


def server_of(config: ServerConfig, found: Sequence[DiscoveredServer], here: Here) -> DiscoveredServer | None:
    """Return the server that a configuration means; `None` if it is not clear."""
    for is_meant in (_by_address(config, here), _by_unit(config), _by_log(config)):
        meant = [server for server in found if is_meant(server)]
        if len(meant) == 1:
            return meant[0]
    return None


def _by_address(config: ServerConfig, here: Here) -> Callable[[DiscoveredServer], bool]:
    url = None if config.metrics is None else config.metrics.url
    return lambda server: url is not None and server.url is not None and _place(url, here) == _place(server.url, here)


def _by_unit(config: ServerConfig) -> Callable[[DiscoveredServer], bool]:
    return lambda server: config.journal is not None and server.journal == config.journal


def _by_log(config: ServerConfig) -> Callable[[DiscoveredServer], bool]:
    pattern = config.log
    return lambda server: (
        pattern is not None
        and any(log is not None and fnmatchcase(log, pattern) for log in (server.log, server.lasting_log))
    )


def _place(url: str, here: Here) -> tuple[str, str]:
    """Return host and port of a URL; all names and addresses of this machine are the same host."""
    host, _, port = host_and_port(url).rpartition(":")
    return ("" if here.has(host) else host), port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
