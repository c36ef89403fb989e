# SPDX-License-Identifier: Apache-2.0
"""Names of discovered servers: unique, and the same for as long as a server is tracked. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.discovery.servers import DiscoveredServer


class Identity(NamedTuple):
    """What a server keeps when it is restarted: its model's name, and its address or its log."""

    name: str
    place: str


class NamedServer(NamedTuple):
    """A server with its identity and its unique name."""

    name: str
    identity: Identity
    server: DiscoveredServer


def identity_of(server: DiscoveredServer) -> Identity:
    """Return a server's identity."""
    return Identity(server.name, server.url or server.log or server.journal or str(server.pid))


def with_names(servers: Iterable[DiscoveredServer], known: Mapping[Identity, str]) -> list[NamedServer]:
    """
    Return each server with a unique name: the model's, with the port after it where several have the same model.

    Args:
        servers: The servers to name.
        known: The names of tracked servers, also of those that are gone: they keep them.
    """
    found = {identity_of(server): server for server in servers}
    alike = Counter(identity.name for identity in found if identity not in known)
    taken = set(known.values())
    named = []
    for identity, server in found.items():
        name = known.get(identity)
        if name is None:
            is_clear = alike[identity.name] == 1 and identity.name not in taken
            name = _untaken(identity.name if is_clear else f"{identity.name}:{_tail(server)}", taken)
            taken.add(name)
        named.append(NamedServer(name, identity, server))
    return named


def _tail(server: DiscoveredServer) -> int:
    """Return what distinguishes a server from others with the same model: its port, else its process."""
    port = urlsplit(server.url).port if server.url is not None else None
    return port or server.pid


def _untaken(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
