# SPDX-License-Identifier: Apache-2.0
"""Ports of loopback: the usual ones where they are free, those that were asked for, or any."""

from __future__ import annotations

import contextlib
import socket

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.support.errors import UsageError


HOST = "127.0.0.1"


class Wanted(NamedTuple):
    """Where a program listens: the port that was given, or the usual one, which another may take its place for."""

    given: int | None
    usual: int


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.create_server((HOST, 0)) as listener:
        return _port(listener)


def chosen_ports(wanted: Mapping[str, Wanted]) -> dict[str, int]:
    """
    Return a port for each program, on which nothing listens.

    Args:
        wanted: By the program's name.

    Raises:
        UsageError: Something listens on a port that was given.
    """
    with contextlib.ExitStack() as held:  # All at once, so that no two get the same.
        return {
            name: _port(held.enter_context(_listener(name, each)))
            for name, each in sorted(wanted.items(), key=lambda item: item[1].given is None)
        }


def _listener(name: str, wanted: Wanted) -> socket.socket:
    if wanted.given is not None:
        try:
            return socket.create_server((HOST, wanted.given))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"{name} cannot listen on {HOST}:{wanted.given}: {reason}: give another port") from error
    with contextlib.suppress(OSError):
        return socket.create_server((HOST, wanted.usual))
    return socket.create_server((HOST, 0))


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
