# SPDX-License-Identifier: Apache-2.0
"""The address of a server's /metrics: its command line, compared with what listens. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vllm_watch.daemon.config.texts import is_loopback, parse_url
from vllm_watch.daemon.discovery.network import Network, PublishedPort
from vllm_watch.daemon.discovery.serve_command import ServeCommand
from vllm_watch.daemon.support.printable import ReportLine


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
    if command.has_port_per_rank:
        text = f"Each of its data-parallel ranks has a port of its own, and port {command.port} has no /metrics: "
        return MetricsAddress(findings=(ReportLine(text + "configure each rank's port as a server.", is_wrong=True),))
    port = command.port or _chosen_port(network, sockets)
    if port is None:
        return MetricsAddress(findings=(ReportLine("It was started with --port 0 and has not opened a port yet."),))
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


def _chosen_port(network: Network, sockets: frozenset[int] | None) -> int | None:
    ports = {each.port for each in network.listeners if sockets is not None and each.inode in sockets}
    return ports.pop() if len(ports) == 1 else None


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
    """Return a host, `None` for one that means all interfaces."""
    return None if host in {None, "", "0.0.0.0", "::", "[::]", "*"} else host  # noqa: S104 - Nothing is bound here.


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
