# SPDX-License-Identifier: Apache-2.0
"""
The names that a request's Host header may have.

An untrusted web site can make its own name resolve to this machine's loopback address (DNS rebinding); a visitor's
browser would then let it read the responses. Such a request has the site's name in its Host header, which is neither an
address nor a name of this machine.
"""

from __future__ import annotations

import ipaddress
import socket

from collections.abc import Collection


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
