# SPDX-License-Identifier: Apache-2.0
"""
The address of a server's /metrics: its command line, compared with what listens.

The networks that processes are in are read here, too: what listens there, their addresses, and the ports that a host
forwards.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_watch.daemon.config.texts import is_loopback, parse_url
from vllm_watch.daemon.discovery.processes import OWN, Process, ProcFiles
from vllm_watch.daemon.discovery.serve_command import ServeCommand
from vllm_watch.daemon.support.printable import ReportLine


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


def network_of(files: ProcFiles, pid: int) -> Network:
    """Return a process's network namespace."""
    own, other = files.link(OWN, "ns/net"), files.link(pid, "ns/net")
    if own and other:
        is_own = own == other
    else:  # Another user's links are not shown, but its addresses are.
        is_own = files.text(OWN, "net/fib_trie") == files.text(pid, "net/fib_trie")
    listening = [*_listeners(files, pid, "tcp"), *_listeners(files, pid, "tcp6")]
    addresses = (
        tuple(own_addresses(files.text(pid, "net/fib_trie"))) if is_own or _has_real_addresses(files, pid) else ()
    )
    return Network(is_own, tuple(listening), addresses)


def _has_real_addresses(files: ProcFiles, pid: int) -> bool:
    """Whether a process's addresses can be trusted: in a user namespace of their own, users choose any address."""
    own, other = files.link(OWN, "ns/user"), files.link(pid, "ns/user")
    return not own or not other or own == other


def published_ports(files: ProcFiles, processes: Iterable[Process]) -> list[PublishedPort]:
    """Return the ports of containers that Docker forwards by its proxy."""
    found = []
    for process in processes:
        if process.name == "docker-proxy" and files.user(process.pid) in {0, os.geteuid()}:
            words = files.arguments(process.pid)
            options = dict(zip(words[1::2], words[2::2], strict=False))
            try:
                port, inside = int(options["-host-port"]), int(options["-container-port"])
                found.append(PublishedPort(options["-host-ip"], port, options["-container-ip"], inside))
            except (KeyError, ValueError):
                continue
    return found


def _listeners(files: ProcFiles, pid: int, table: str) -> Iterable[Listener]:
    return listeners(files.text(pid, f"net/{table}").splitlines())


def addresses_here(files: ProcFiles) -> tuple[str, ...]:
    """Return the IPv4 addresses of this process's network namespace but loopback."""
    return tuple(own_addresses(files.text(OWN, "net/fib_trie")))


LOOPBACK = "127.0.0.1"


class MetricsAddress(NamedTuple):
    """The URL of /metrics, `None` if it cannot be reached, and findings about it."""

    url: str | None = None
    findings: tuple[ReportLine, ...] = ()


def address_of(
    command: ServeCommand, network: Network, sockets: frozenset[int] | None, published: Iterable[PublishedPort]
) -> MetricsAddress:
    """
    Return where a server's /metrics is.

    `sockets` are the inodes of its processes' sockets, `None` if reading them is not permitted; `published` are ports
    of containers that the host forwards.
    """
    if command.is_headless:
        return MetricsAddress(
            findings=(ReportLine("It is a headless node: only the node with the API server has /metrics."),)
        )
    if command.uds is not None:
        text = f"It listens on a Unix socket, {command.uds}, which cannot be scraped: start it with --port instead."
        return MetricsAddress(findings=(ReportLine(text, is_wrong=True),))
    port = command.port
    if not port:
        return MetricsAddress(findings=(ReportLine("It was started with --port 0: give it a port.", is_wrong=True),))
    if _is_taken(port, network, sockets):
        text = f"Another process listens on its port {port}, so /metrics is not read there: stop one of the two, "
        return MetricsAddress(findings=(ReportLine(text + "or start it with another --port.", is_wrong=True),))
    host, port_outside, flaw = _outside(command, port, network, sockets, published)
    if flaw is not None:
        return MetricsAddress(findings=(flaw,))
    try:
        url = parse_url(f"{'https' if command.uses_tls else 'http'}://{_in_url(host)}:{port_outside}/metrics")
    except ValueError as error:
        return MetricsAddress(findings=(ReportLine(f"Its --host gives no valid URL: {error}.", is_wrong=True),))
    return MetricsAddress(url, tuple(_remarks(command, port, network)))


def _is_taken(port: int, network: Network, sockets: frozenset[int] | None) -> bool:
    """Whether another process listens on a port instead of the server, as far as the server's sockets are visible."""
    listening = [each for each in network.listeners if each.port == port]
    return sockets is not None and bool(listening) and not any(each.inode in sockets for each in listening)


def _outside(
    command: ServeCommand,
    port: int,
    network: Network,
    sockets: frozenset[int] | None,
    published: Iterable[PublishedPort],
) -> tuple[str, int, ReportLine | None]:
    """Return the host and port by which this process reaches a server, or a finding why it cannot."""
    host = _unless_any(command.host)
    if network.is_own:
        here = _here(host, port, network, sockets)
        if here is not None:
            return here, port, None
        text = f"Its --host {host} does not look like an address of this machine and is not used: if it is correct, "
        return "", port, ReportLine(text + "give its URL with --metrics or in a configuration.", is_wrong=True)
    for each in published:
        if each.container_host in network.addresses and each.container_port == port:
            return _unless_any(each.host) or LOOPBACK, each.port, None
    if host is not None and is_loopback(host):
        text = f"It listens on {host} inside its container only: start it with --host 0.0.0.0 and publish the port."
        return host, port, ReportLine(text, is_wrong=True)
    if not network.addresses:
        text = f"It is in a container that has no address on this machine: publish its port (-p {port}:{port})."
        return "", port, ReportLine(text, is_wrong=True)
    return host if host in network.addresses else network.addresses[0], port, None


def _here(host: str | None, port: int, network: Network, sockets: frozenset[int] | None) -> str | None:
    """
    Return a host for a server of this machine, `None` if its command line names an address of another one.

    Any user can start a process with any address on its command line: only addresses of this machine are trusted, and
    those that the process itself listens on.
    """
    if host is None or is_loopback(host) or host.strip("[]") in network.addresses:
        return host or LOOPBACK
    own = [each for each in network.listeners if each.port == port and (sockets is None or each.inode in sockets)]
    return next((_unless_any(each.host) or LOOPBACK for each in own), None)


def _remarks(command: ServeCommand, port: int, network: Network) -> Sequence[ReportLine]:
    remarks = []
    if not any(each.port == port for each in network.listeners):
        remarks.append(ReportLine(f"Nothing listens on port {port}: it starts, it ends, or its start has failed."))
    if command.uses_tls:
        text = "It uses TLS: unless its certificate is signed by a known authority, the configuration needs "
        remarks.append(ReportLine(text + "tls: {ca_file: …}."))
    return remarks


def _unless_any(host: str | None) -> str | None:
    return None if host in {None, "", "0.0.0.0", "::", "[::]", "*"} else host  # noqa: S104 - Nothing is bound here.


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
