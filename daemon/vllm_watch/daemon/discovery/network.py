# SPDX-License-Identifier: Apache-2.0
"""The networks that processes are in: what listens there, their addresses, and the ports that a host forwards."""

from __future__ import annotations

import ipaddress
import os
import re
import sys

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_watch.daemon.discovery.processes import OWN, Process, ProcFiles


_LISTENS = "0A"
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n +/32 host LOCAL")


class Listener(NamedTuple):
    """A socket that listens: the address that it is bound to, its port, and its inode."""

    host: str
    port: int
    inode: int


def listeners(lines: Iterable[str]) -> Iterator[Listener]:
    """Yield the listening sockets; other lines, and lines that cannot be read, are skipped."""
    for line in lines:
        if _LISTENS not in line:
            continue
        fields = line.split(maxsplit=10)
        if len(fields) < 10 or fields[3] != _LISTENS:
            continue
        address, _, port = fields[1].partition(":")
        try:
            yield Listener(_host(address), int(port, 16), int(fields[9]))
        except ValueError:
            continue


def own_addresses(text: str) -> list[str]:
    """Return the IPv4 addresses of a network namespace but loopback, from the text of ``/proc/PID/net/fib_trie``."""
    found = dict.fromkeys(_LOCAL.findall(text))
    return [address for address in found if not address.startswith("127.")]


def _host(address: str) -> str:
    """Return an address that the kernel prints as numbers of 32 bits in the machine's byte order."""
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    host = ipaddress.ip_address(packed)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host)


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
