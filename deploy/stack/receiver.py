# SPDX-License-Identifier: Apache-2.0
"""Gets what Alertmanager sends to its receivers."""

from __future__ import annotations

import json
import threading

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.stack.ports import HOST


MAX_BYTES = 8_000_000
"""A longer message is not read."""

_REQUEST_SECONDS = 10
_STOP_SECONDS = 0.05

Take = Callable[[str, dict[str, Any]], None]
"""Called in a thread of its own with a receiver's name and a message to it."""


@contextmanager
def receiver(take: Take) -> Iterator[str]:
    """Get messages until the context ends; yield the URL, each receiver's name is a path below it."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_POST(self) -> None:
            self.send_response(self._taken())
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _taken(self) -> HTTPStatus:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MAX_BYTES:
                self.close_connection = True
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if length.isdecimal() else HTTPStatus.LENGTH_REQUIRED
            try:
                message = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                return HTTPStatus.BAD_REQUEST
            take(self.path.strip("/"), message)
            return HTTPStatus.OK

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base class names it so.
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_STOP_SECONDS,), name="receiver", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
