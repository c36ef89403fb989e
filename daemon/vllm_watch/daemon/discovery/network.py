# SPDX-License-Identifier: Apache-2.0
"""The networks that processes are in: what listens there, their addresses, and the ports that a host forwards."""

from __future__ import annotations

import os

from collections.abc import Iterable
from typing import NamedTuple

from vllm_watch.daemon.discovery.proc_files import OWN, ProcFiles
from vllm_watch.daemon.discovery.processes import Process
from vllm_watch.daemon.discovery.sockets import Listener, listeners, own_addresses


class Network(NamedTuple):
    """
    A network namespace: whether it is this process's own, what listens in it, and its IPv4 addresses but loopback.

    There are no addresses where a user could choose them freely.
    """

    is_own: bool = True
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[str, ...] = ()


class PublishedPort(NamedTuple):
    """A port of a container that the host forwards: the host's end, and the container's."""

    host: str
    port: int
    container_host: str
    container_port: int


class Networks:
    """Reads the network namespaces of processes."""

    def __init__(self, files: ProcFiles) -> None:
        self._files = files

    def network(self, pid: int) -> Network:
        """Return a process's network namespace."""
        own, other = self._files.link(OWN, "ns/net"), self._files.link(pid, "ns/net")
        if own and other:
            is_own = own == other
        else:  # Another user's links are not shown, but its addresses are.
            is_own = self._files.text(OWN, "net/fib_trie") == self._files.text(pid, "net/fib_trie")
        listening = [*self._listeners(pid, "tcp"), *self._listeners(pid, "tcp6")]
        addresses = (
            tuple(own_addresses(self._files.text(pid, "net/fib_trie")))
            if is_own or self._has_real_addresses(pid)
            else ()
        )
        return Network(is_own, tuple(listening), addresses)

    def _has_real_addresses(self, pid: int) -> bool:
        """Whether a process's addresses can be trusted: in a user namespace of their own, users choose any address."""
        own, other = self._files.link(OWN, "ns/user"), self._files.link(pid, "ns/user")
        return not own or not other or own == other

    def own_addresses(self) -> tuple[str, ...]:
        """Return the IPv4 addresses of this process's network namespace but loopback."""
        return tuple(own_addresses(self._files.text(OWN, "net/fib_trie")))

    def published_ports(self, processes: Iterable[Process]) -> list[PublishedPort]:
        """Return the ports of containers that Docker forwards by its proxy."""
        found = []
        for process in processes:
            if process.name == "docker-proxy" and self._files.user(process.pid) in {0, os.geteuid()}:
                words = self._files.arguments(process.pid)
                options = dict(zip(words[1::2], words[2::2], strict=False))
                try:
                    port, inside = int(options["-host-port"]), int(options["-container-port"])
                    found.append(PublishedPort(options["-host-ip"], port, options["-container-ip"], inside))
                except (KeyError, ValueError):
                    continue
        return found

    def _listeners(self, pid: int, table: str) -> Iterable[Listener]:
        return listeners(self._files.text(pid, f"net/{table}").splitlines())
