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

from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest, ResponseStartLine
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
    """
    Serves at most so many connections at once.

    One more takes the place of the one that has been silent for longest, so that connections which only stand there
    keep no one out. Silent is who has sent no whole request since it connected or was answered.
    """

    def initialize(  # type: ignore[override]
        self, request_callback: Callable[[HTTPServerRequest], None], tls_now: TlsNow
    ) -> None:
        """
        Take the callback, and what tells how to serve TLS, if at all; the limits are this module's.

        The base class is made to be initialized with other arguments by each subclass.
        """

        def answer(request: HTTPServerRequest) -> None:
            connection = cast("HTTP1Connection", request.connection)  # As in `send`.
            self._silent.pop(connection.stream, None)
            request_callback(request)

        super().initialize(
            answer,
            idle_connection_timeout=HEADER_SECONDS,
            body_timeout=BODY_SECONDS,
            max_header_size=_MAX_BYTES,
            max_body_size=_MAX_BYTES,
            max_buffer_size=_MAX_BUFFERED,
        )
        self._tls_now = tls_now
        self._open: set[IOStream] = set()
        self._silent: dict[IOStream, None] = {}
        """Those of the open ones that are silent, for longest first."""

    def _handle_connection(self, connection: socket.socket, address: object) -> None:
        """Accept a connection with the certificates of this moment: the base class knows only those of its start."""
        self.ssl_options = self._tls_now()
        super()._handle_connection(connection, address)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection, if there is a place for it."""
        if len(self._open) >= MAX_CONNECTIONS and not self._make_room():
            stream.close()
            return
        self._open.add(stream)
        self._silent[stream] = None
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Wait for a connection's next request."""
        stream = cast("HTTP1ServerConnection", server_conn).stream
        if stream in self._open:
            self._silent.setdefault(stream)  # One that was answered is silent from now on.
        return super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        """Count a connection that has ended."""
        stream = cast("HTTP1ServerConnection", server_conn).stream
        self._open.discard(stream)
        self._silent.pop(stream, None)
        super().on_close(server_conn)

    def _make_room(self) -> bool:
        stream = next(iter(self._silent), None)
        if stream is None:
            return False
        del self._silent[stream]
        self._open.discard(stream)
        stream.close()
        return True


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
