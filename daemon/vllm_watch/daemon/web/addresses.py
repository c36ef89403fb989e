# SPDX-License-Identifier: Apache-2.0
"""
The addresses that the server listens on, and the names that a request's Host may have.

An untrusted web site can make its own name resolve to this machine's loopback address (DNS rebinding); a visitor's
browser would then let it read the responses. Such a request has the site's name in its Host header, which is neither an
address nor a name of this machine.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from collections.abc import Collection, Iterable

from vllm_watch.daemon.support.errors import UsageError


MAX_PORT = 65535
_BACKLOG = 128


def bind(host: str, port: int) -> list[socket.socket]:
    """
    Listen on every address of a host; an empty host is every address of the machine.

    Raises:
        UsageError: The address cannot be listened on.
    """
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"cannot listen on {address_text(host, port)}: the port is not within 0 to {MAX_PORT}")
    try:
        return _bind_all(host, port)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot listen on {address_text(host, port)}: {_reason(error)}") from error


def is_loopback(sockets: Iterable[socket.socket]) -> bool:
    """Return whether only this machine can connect."""
    hosts = (str(each.getsockname()[0]).partition("%")[0] for each in sockets)
    return all(ipaddress.ip_address(host).is_loopback for host in hosts)


def _bind_all(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, address in _resolve(host):
            sockets.append(_listen(family, address, port, dual_stack=host == "::"))
            port = port or sockets[0].getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _resolve(host: str) -> list[tuple[int, str]]:
    """Return the host's addresses, each once, IPv4 first."""
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return sorted({(int(family), str(address[0])) for family, _, _, _, address in found})


def _listen(family: int, address: str, port: int, *, dual_stack: bool) -> socket.socket:
    listener = socket.create_server(
        (address, port),
        family=family,
        backlog=_BACKLOG,
        dualstack_ipv6=dual_stack and socket.has_dualstack_ipv6(),
    )
    listener.setblocking(False)
    return listener


def address_text(host: str, port: int) -> str:
    """Return an address as it is in a URL; without a host it is every address of the machine."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError | UnicodeError) -> str:
    """Return the system's message as the end of a sentence."""
    if isinstance(error, UnicodeError):
        return "this is no host name"
    # The message of a socket's error repeats the address; that of its number does not.
    words = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
    reason = f"{words[:1].lower()}{words[1:]}" if words else "the address is wrong"
    return f"{reason}; --listen takes another one" if error.errno == errno.EADDRINUSE else reason


def names_here(*more: str) -> frozenset[str]:
    """Return this machine's names and some more, in the form that `is_named` compares."""
    own = socket.gethostname()
    return frozenset(_plain(name) for name in (own, own.partition(".")[0], *more) if name)


def is_named(host: str, names: Collection[str]) -> bool:
    """
    Whether a request is for one of these names, for an address, or for `localhost`.

    Args:
        host: The Host header, with or without a port; a client that sends none is no browser.
        names: In lower case, without a dot at the end.
    """
    if not host:
        return True
    name = _plain(_without_port(host))
    return name in {"localhost", *names} or name.endswith(".localhost") or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
