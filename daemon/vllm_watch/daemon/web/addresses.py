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


_BACKLOG = 128


def bind(host: str, port: int) -> list[socket.socket]:
    """
    Listen on every address of a host; an empty host is every address of the machine.

    Raises:
        UsageError: The address cannot be listened on.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in sorted({(family, str(address[0])) for family, _, _, _, address in found}):
            is_dual = host == "::" and socket.has_dualstack_ipv6()
            listener = socket.create_server((address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
            listener.setblocking(False)
            sockets.append(listener)
            port = port or listener.getsockname()[1]
    except (OSError, UnicodeError) as error:
        for each in sockets:
            each.close()
        raise UsageError(f"cannot listen on {address_text(host, port)}: {_reason(error)}") from error
    return sockets


def is_loopback(sockets: Iterable[socket.socket]) -> bool:
    """Return whether only this machine can connect."""
    hosts = (str(each.getsockname()[0]).partition("%")[0] for each in sockets)
    return all(ipaddress.ip_address(host).is_loopback for host in hosts)


def address_text(host: str, port: int) -> str:
    """Return an address as it is in a URL; without a host it is every address of the machine."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "this is no host name"
    # The message of a socket's error repeats the address; that of its number does not.
    words = str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
    reason = f"{words[:1].lower()}{words[1:]}"
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
