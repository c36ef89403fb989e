# SPDX-License-Identifier: Apache-2.0
"""Ports of loopback for programs that take no port 0."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
