# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that cannot choose one themselves and say which."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile

from pathlib import Path


FIRST, COUNT = 20_000, 10_000
"""Linux gives none of these to who asks for any port."""


def free_port() -> int:
    """Return a port on which nothing listens, and that no other test gets soon: of any run on this machine."""
    path = Path(tempfile.gettempdir()) / f"vllm-watch-tests-port-{os.getuid()}"
    with path.open("a+", encoding="ascii") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        port = FIRST + (int(last.read() or 0) + 1) % COUNT
        while _is_taken(port):
            port = FIRST + (port - FIRST + 1) % COUNT
        last.truncate(0)
        last.write(str(port - FIRST))
    return port


def _is_taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False
