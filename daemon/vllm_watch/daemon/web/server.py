# SPDX-License-Identifier: Apache-2.0
"""
The web server: one thread with an event loop, so that no client, however slow, takes up a thread.

Responses about all servers are made in a second thread, one at a time; all others are made in the first one, and wait
for none of those.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop

from vllm_watch.daemon.config.web import WebConfig
from vllm_watch.daemon.support.clock import Clock, SystemClock
from vllm_watch.daemon.support.own_health import Heartbeat, InternalErrors
from vllm_watch.daemon.web.addresses import bind, is_loopback, is_named, names_here
from vllm_watch.daemon.web.auth import Authenticator
from vllm_watch.daemon.web.config_reload import CurrentWebConfig
from vllm_watch.daemon.web.connections import BoundedServer, send
from vllm_watch.daemon.web.routes import LONG_PATHS, Endpoints, Response, Router, plain_text


_BEAT_SECONDS = 1.0
_START_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_STOP_SECONDS = 2.0

_UNAUTHORIZED = plain_text("A user name and a password are needed.", 401)
_MISDIRECTED = plain_text(
    "This Host is not served here: use an address, localhost or this machine's name, or add it to allowed_hosts.", 421
)

_BUSY = plain_text("Too many passwords wait for their check: try again.", 503)

log = structlog.get_logger("vllm_watch.web")

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
