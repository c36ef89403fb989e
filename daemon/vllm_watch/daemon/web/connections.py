# SPDX-License-Identifier: Apache-2.0
"""
Connections with limits: how many, how large, how slow.

The time for a request's headers is a total: a client that sends them byte by byte is disconnected when it is over. It
is also how long an open connection may idle.
"""

from __future__ import annotations

import logging
import socket
import ssl

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

import structlog

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from vllm_watch.daemon.web.routes import ALLOWED_METHODS, Response


HEADER_SECONDS = 5.0
BODY_SECONDS = 5.0
WRITE_SECONDS = 10.0
"""A client that has not read its response by then is disconnected."""
ACCEPT_AGAIN_SECONDS = 0.5
"""How long nobody is let in when the process can open no more files."""
MAX_CONNECTIONS = 256
_MAX_BYTES = 16 * 1024
_MAX_BUFFERED = 64 * 1024

# A failed handshake concerns its client only. The library would print each one to standard error.
logging.getLogger("tornado.general").addHandler(logging.NullHandler())

log = structlog.get_logger("vllm_watch.web")

TlsContext = Callable[[], "ssl.SSLContext | None"]

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class BoundedServer(HTTPServer):
    """Serves at most `MAX_CONNECTIONS` at once; one more is closed."""

    def initialize(  # type: ignore[override]
        self, request_callback: Callable[[HTTPServerRequest], None], tls_context: TlsContext
    ) -> None:
        """
        Take the callback, and a function that returns the present TLS context, if any; the limits are this module's.

        The base class is designed to be initialized with other arguments by each subclass.
        """
        super().initialize(
            request_callback,
            idle_connection_timeout=HEADER_SECONDS,
            body_timeout=BODY_SECONDS,
            max_header_size=_MAX_BYTES,
            max_body_size=_MAX_BYTES,
            max_buffer_size=_MAX_BUFFERED,
        )
        self._tls_context = tls_context
        self._has_said_full = False

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Listen on sockets; while the process can open no more files, connections wait."""
        for each in sockets:
            self._sockets[each.fileno()] = each
            self._accept_from(each)

    def _accept_from(self, listener: socket.socket) -> None:
        loop = IOLoop.current()

        def accept(_listener: socket.socket, _events: int) -> None:
            try:
                connection, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # The base class would be called again at once, and log each time.
                self._handlers[listener.fileno()]()
                waiting = loop.call_later(ACCEPT_AGAIN_SECONDS, self._accept_from, listener)
                self._handlers[listener.fileno()] = lambda: loop.remove_timeout(waiting)
                if not self._has_said_full:
                    log.warning("web.accept_failed", error=str(error), hint="raise the limit of open files")
                self._has_said_full = True
                return
            self._handle_connection(connection, address)

        loop.add_handler(listener, accept, IOLoop.READ)
        self._handlers[listener.fileno()] = lambda: loop.remove_handler(listener)

    def _handle_connection(self, connection: socket.socket, address: object) -> None:
        """Accept a connection with the present certificates: the base class keeps those that it started with."""
        self.ssl_options = self._tls_context()
        super()._handle_connection(connection, address)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection, if there is room for it."""
        if len(self._connections) >= MAX_CONNECTIONS:
            stream.close()
        else:
            super().handle_stream(stream, address)


def send(request: HTTPServerRequest, response: Response, configured: Mapping[str, str]) -> None:
    """Send a response with the configured headers; disconnect a client that does not read it in time."""
    connection = cast("HTTP1Connection", request.connection)  # tornado declares what HTTP/2 might share.
    loop = IOLoop.current()
    deadline = loop.call_later(WRITE_SECONDS, connection.stream.close)
    body = None if request.method == "HEAD" else response.body
    written = connection.write_headers(_start_line(response.status), _headers(response, configured), body)
    loop.add_future(written, lambda _: loop.remove_timeout(deadline))
    connection.finish()


def _start_line(status: int) -> ResponseStartLine:
    return ResponseStartLine("HTTP/1.1", status, HTTPStatus(status).phrase)


def _headers(response: Response, configured: Mapping[str, str]) -> HTTPHeaders:
    headers = HTTPHeaders({**_ALWAYS, **configured})
    if response.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Basic realm="vllm-watch", charset="UTF-8"'
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(ALLOWED_METHODS)
    if response.status == HTTPStatus.NO_CONTENT:
        return headers
    headers["Content-Type"] = response.content_type
    headers["Content-Length"] = str(len(response.body))
    if response.encoding is not None:
        headers["Content-Encoding"] = response.encoding
    return headers
