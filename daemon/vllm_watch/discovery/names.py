# SPDX-License-Identifier: Apache-2.0
"""Names of servers that are found: each its own, and the same as long as the server is known. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.discovery.servers import FoundServer


class Identity(NamedTuple):
    """What makes a server that is started anew the same one: its model's name, and its address, else its log."""

    name: str
    place: str


class Named(NamedTuple):
    """A server, what it is known by, and its own name."""

    name: str
    identity: Identity
    server: FoundServer


def identity_of(server: FoundServer) -> Identity:
    """Return what a server is known by."""
    return Identity(server.name, server.url or server.log or server.journal or str(server.pid))


def with_names(servers: Iterable[FoundServer], known: Mapping[Identity, str]) -> list[Named]:
    """
    Return each server with a name that no other has: the model's, and where several have that, the port behind it.

    Args:
        servers: What was found.
        known: The names that servers have already, also those that are gone: they keep them.
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
        named.append(Named(name, identity, server))
    return named


def _tail(server: FoundServer) -> int:
    """Return what tells a server from others of the same model: its port, else its process."""
    port = urlsplit(server.url).port if server.url is not None else None
    return port or server.pid


def _untaken(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
