# SPDX-License-Identifier: Apache-2.0
"""
The web server: one thread with an event loop, so that no client, however slow, takes up a thread.

Responses about all servers are made in a second thread, one at a time; all others are made in the first one, and wait
for none of those. Connections have limits: how many, how large, how slow. The time for a request's headers is a total:
a client that sends them byte by byte is disconnected when it is over. It is also how long an open connection may idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, cast

import structlog

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from vllm_watch.daemon.config.web import WebConfig
from vllm_watch.daemon.support.clock import Clock, SystemClock
from vllm_watch.daemon.support.own_health import Heartbeat, InternalErrors
from vllm_watch.daemon.web.addresses import bind, is_loopback, is_named, names_here
from vllm_watch.daemon.web.auth import Authenticator
from vllm_watch.daemon.web.config_reload import CurrentWebConfig
from vllm_watch.daemon.web.routes import ALLOWED_METHODS, LONG_PATHS, Endpoints, Response, Router, plain_text


HEADER_SECONDS = 5.0
BODY_SECONDS = 5.0
WRITE_SECONDS = 10.0
"""A client that has not read its response by then is disconnected."""
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


_BEAT_SECONDS = 1.0
_START_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_STOP_SECONDS = 2.0

_UNAUTHORIZED = plain_text("A user name and a password are needed.", 401)
_MISDIRECTED = plain_text(
    "This Host is not served here: use an address, localhost or this machine's name, or add it to allowed_hosts.", 421
)

_BUSY = plain_text("Too many passwords wait for their check: try again.", 503)


RequestStop = Callable[[], object]


class WebServer:
    """
    Serves the endpoints and the status page.

    Args:
        host: A name or an address to listen on.
        port: A port, or 0 for any that is free.
        endpoints: What to serve besides the status page's files.
        web_config_file: TLS, users and headers; read again when it changes, and when `config.reload` is called.
        allowed_hosts: Names that a request's Host may have, besides addresses and this machine's own. Without them, and
            where other machines can connect, any name is accepted: only they know what this machine is called there.
        clock: The time.
        errors: Counts failures.
        heartbeat: Beats while the event loop and the thread that makes long responses run.
    """

    def __init__(  # noqa: PLR0913 - All but the first three go by name.
        self,
        host: str,
        port: int,
        endpoints: Endpoints,
        *,
        web_config_file: str | None = None,
        allowed_hosts: Collection[str] = (),
        clock: Clock | None = None,
        errors: InternalErrors | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        errors = errors or InternalErrors()
        self._host = host
        self._port = port
        self._router = Router(endpoints, errors)
        self.config = CurrentWebConfig(web_config_file, errors, clock or SystemClock())
        """The web configuration."""
        self._allowed_hosts = allowed_hosts
        self._names: Collection[str] | None = None
        """The accepted names; `None` is any."""
        self.heartbeat = heartbeat or Heartbeat()
        self._thread: threading.Thread | None = None
        self._request_stop: RequestStop | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; before the start, the configured one."""
        return self._port

    def start(self) -> None:
        """
        Listen, then serve from a thread.

        Raises:
            ConfigError: The web configuration file, or one that it names, is wrong.
            UsageError: The address cannot be listened on.
        """
        config = self.config.load()
        sockets = bind(self._host, self._port)
        self._port = sockets[0].getsockname()[1]
        is_open = not is_loopback(sockets)
        if is_open:
            self._warn_if_open(config)
        if self._allowed_hosts or not is_open:
            self._names = names_here(self._host, *self._allowed_hosts)
        started: Future[RequestStop] = Future()
        self._thread = threading.Thread(target=self._run, args=(sockets, started), name="web", daemon=True)
        self._thread.start()
        self._request_stop = started.result(_START_SECONDS)

    def stop(self) -> None:
        """Stop listening, close what is open and end the thread."""
        if self._thread is None or self._request_stop is None:
            return
        with contextlib.suppress(RuntimeError):  # The event loop has ended already.
            self._request_stop()
        self._thread.join(_STOP_SECONDS)
        self._thread = None

    def _run(self, sockets: list[socket.socket], started: Future[RequestStop]) -> None:
        maker = ThreadPoolExecutor(1, thread_name_prefix="response")
        maker.submit(self.heartbeat.beat)  # Starts its thread now: later the system may have no more.
        with contextlib.closing(Authenticator()) as authenticator:
            asyncio.run(self._serve(sockets, started, authenticator, maker))
        maker.shutdown(wait=False, cancel_futures=True)

    async def _serve(
        self,
        sockets: list[socket.socket],
        started: Future[RequestStop],
        authenticator: Authenticator,
        maker: ThreadPoolExecutor,
    ) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        server = BoundedServer(
            lambda request: self._handle(request, authenticator, maker), lambda: self.config.get().tls
        )
        server.add_sockets(sockets)
        started.set_result(lambda: loop.call_soon_threadsafe(stopping.set))
        while not stopping.is_set():
            maker.submit(self.heartbeat.beat)  # Both threads must be alive for it.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), _BEAT_SECONDS)
        server.stop()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.close_all_connections(), _CLOSE_SECONDS)

    def _warn_if_open(self, config: WebConfig) -> None:
        if config.tls is None or not config.asks_who:
            log.warning(
                "web.open_to_network",
                host=self._host,
                port=self._port,
                tls=config.tls is not None,
                authentication=config.asks_who,
                hint="give a web_config_file with both, or listen on 127.0.0.1",
            )

    def _handle(self, request: HTTPServerRequest, authenticator: Authenticator, maker: ThreadPoolExecutor) -> None:
        config = self.config.get()
        if self._names is not None and not is_named(request.headers.get("Host", ""), self._names):
            send(request, _MISDIRECTED, config.headers)
            return

        def decided(is_admitted: bool | None) -> None:  # noqa: FBT001 - What the check returned.
            if not is_admitted:
                send(request, _BUSY if is_admitted is None else _UNAUTHORIZED, config.headers)
            elif request.path in LONG_PATHS:
                made = maker.submit(self._respond, request)
                IOLoop.current().add_future(made, lambda done: send(request, done.result(), config.headers))
            else:
                send(request, self._respond(request), config.headers)

        authenticator.authenticate(config.users, request.headers.get("Authorization", ""), decided)

    def _respond(self, request: HTTPServerRequest) -> Response:
        return self._router.respond(request.method or "", request.path, request.query, request.headers)
