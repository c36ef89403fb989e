# SPDX-License-Identifier: Apache-2.0
"""
The names under which the pages may be asked for.

A web page of a stranger can have its own name lead to this machine's loopback (DNS rebinding), and its visitor's
browser would let it read what answers there. Such a request says the stranger's name in its header Host: no address,
and no name of this machine.
"""

from __future__ import annotations

import ipaddress
import socket

from collections.abc import Collection


def names_here(*more: str) -> frozenset[str]:
    """Return what this machine is called, with some more names, as `is_named` compares them."""
    own = socket.gethostname()
    return frozenset(_plain(name) for name in (own, own.partition(".")[0], *more) if name)


def is_named(host: str, names: Collection[str]) -> bool:
    """
    Whether a request is for one of some names, an address, or `localhost`.

    Args:
        host: The header Host, with or without a port; who sends none is no browser.
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
