# SPDX-License-Identifier: Apache-2.0
"""Loopback: ports that were given, the usual ones where they are free, or others near them; and what answers there."""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import socket

from collections.abc import Mapping

from vllm_watch.daemon.support.errors import UsageError


HOST = "127.0.0.1"

_LAST = 65535
_NEAR = 100
"""How many ports after the usual one are tried before any other."""


def chosen_ports(wanted: Mapping[str, tuple[int | None, int]]) -> dict[str, int]:
    """
    Return a free port for each program, no two of them the same.

    Args:
        wanted: By the program's name the port that was given, or `None`, and the usual one, which may be one after it.

    Raises:
        UsageError: Something listens on a port that was given.
    """
    in_order = sorted(wanted.items(), key=lambda item: item[1][0] is None)
    with contextlib.ExitStack() as held:
        listeners = {name: held.enter_context(_listener(name, given, usual)) for name, (given, usual) in in_order}
        return {name: listener.getsockname()[1] for name, listener in listeners.items()}


def _listener(name: str, given: int | None, usual: int) -> socket.socket:
    if given is not None:
        try:
            return socket.create_server((HOST, given))
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()  # Python's own text has more, and repeats the address.
            raise UsageError(f"{name} cannot listen on {HOST}:{given}: {reason}: give another port") from error
    for port in range(usual, min(usual + _NEAR, _LAST + 1)):
        with contextlib.suppress(OSError):
            return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


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
