# SPDX-License-Identifier: Apache-2.0
"""
Connections with bounds: how many, how large, how slow.

The time for a request's headers is a total, so that a client that drips bytes is gone when it is over. It is also
the longest that an open connection may idle.
"""

from __future__ import annotations

import logging
import socket
import ssl

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from vllm_watch.web.pages import Answer
from vllm_watch.web.routes import ALLOWED_METHODS


HEADER_SECONDS = 5.0
BODY_SECONDS = 5.0
WRITE_SECONDS = 10.0
"""A client that has not read its answer by then is dropped."""
MAX_CONNECTIONS = 256
_MAX_BYTES = 16 * 1024
_MAX_BUFFERED = 64 * 1024

# A failed handshake is its client's business. The library would print each one to standard error.
logging.getLogger("tornado.general").addHandler(logging.NullHandler())

TlsNow = Callable[[], "ssl.SSLContext | None"]

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class BoundedServer(HTTPServer):
    """Serves at most so many connections at once; one more is closed at once."""

    def initialize(  # type: ignore[override]
        self, request_callback: Callable[[HTTPServerRequest], None], tls_now: TlsNow
    ) -> None:
        """
        Take the callback, and what tells how to serve TLS, if at all; the limits are this module's.

        The base class is made to be initialized with other arguments by each subclass.
        """
        super().initialize(
            request_callback,
            idle_connection_timeout=HEADER_SECONDS,
            body_timeout=BODY_SECONDS,
            max_header_size=_MAX_BYTES,
            max_body_size=_MAX_BYTES,
            max_buffer_size=_MAX_BUFFERED,
        )
        self._tls_now = tls_now
        self._open = 0

    def _handle_connection(self, connection: socket.socket, address: object) -> None:
        """Accept a connection with the certificates of this moment: the base class knows only those of its start."""
        self.ssl_options = self._tls_now()
        super()._handle_connection(connection, address)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection, if it is not one too many."""
        if self._open >= MAX_CONNECTIONS:
            stream.close()
            return
        self._open += 1
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        """Count a connection that has ended."""
        self._open -= 1
        super().on_close(server_conn)


def send(request: HTTPServerRequest, answer: Answer, configured: Mapping[str, str]) -> None:
    """Send an answer with the configured headers, and drop the client if it does not take it in time."""
    connection = cast("HTTP1Connection", request.connection)  # tornado declares what HTTP/2 might share.
    loop = IOLoop.current()
    deadline = loop.call_later(WRITE_SECONDS, connection.stream.close)
    body = None if request.method == "HEAD" else answer.body
    written = connection.write_headers(_start_line(answer.status), _headers(answer, configured), body)
    loop.add_future(written, lambda _: loop.remove_timeout(deadline))
    connection.finish()


def _start_line(status: int) -> ResponseStartLine:
    return ResponseStartLine("HTTP/1.1", status, HTTPStatus(status).phrase)


def _headers(answer: Answer, configured: Mapping[str, str]) -> HTTPHeaders:
    headers = HTTPHeaders({**_ALWAYS, **configured})
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Basic realm="vllm-watch", charset="UTF-8"'
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(ALLOWED_METHODS)
    if answer.status == HTTPStatus.NO_CONTENT:
        return headers
    headers["Content-Type"] = answer.content_type
    headers["Content-Length"] = str(len(answer.body))
    if answer.encoding is not None:
        headers["Content-Encoding"] = answer.encoding
    return headers
