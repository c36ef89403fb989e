# SPDX-License-Identifier: Apache-2.0
"""Loopback: ports that were given, the usual ones where they are free, or others near them; and what answers there."""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import socket

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from vllm_watch.daemon.support.errors import UsageError


HOST = "127.0.0.1"

_LAST = 65535
_NEAR = 100
"""How many ports after the usual one are tried before any other."""


class Wanted(NamedTuple):
    """Where a program listens: the port that was given, or the usual one or one after it."""

    given: int | None
    usual: int


class ReservedPorts:
    """
    Ports that nobody else can get.

    Args:
        listeners: What listens on each meanwhile, by the program that it is for.
    """

    def __init__(self, listeners: Mapping[str, socket.socket]) -> None:
        self._listeners = listeners
        self.numbers = {name: _port(listener) for name, listener in listeners.items()}

    def release(self, name: str) -> None:
        """Let a program have its port, which is about to start."""
        self._listeners[name].close()


@contextmanager
def reserved_ports(wanted: Mapping[str, Wanted]) -> Iterator[ReservedPorts]:
    """
    Reserve a port for each program until it is released.

    Args:
        wanted: By the program's name.

    Raises:
        UsageError: Something listens on a port that was given.
    """
    with contextlib.ExitStack() as held:
        in_order = sorted(wanted.items(), key=lambda item: item[1].given is None)
        yield ReservedPorts({name: held.enter_context(_listener(name, each)) for name, each in in_order})


def _listener(name: str, wanted: Wanted) -> socket.socket:
    if wanted.given is not None:
        try:
            return socket.create_server((HOST, wanted.given))
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()  # Python's own text has more, and repeats the address.
            raise UsageError(f"{name} cannot listen on {HOST}:{wanted.given}: {reason}: give another port") from error
    for port in range(wanted.usual, min(wanted.usual + _NEAR, _LAST + 1)):
        with contextlib.suppress(OSError):
            return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def get(port: int, path: str) -> bytes | None:
    """Return the body of what loopback answers to a GET with status 200, or `None`; proxies are not asked."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if answer.status == http.HTTPStatus.OK else None
