# SPDX-License-Identifier: Apache-2.0
"""
One bounded GET, again and again: bounded in time, in bytes, and in what the environment can change about it.

Requests go through an adapter without a session. A session takes proxies and passwords from the environment, keeps
cookies, and reads and decodes the whole body of a redirect even if it does not follow it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import requests

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.exceptions import SSLError as PoolSSLError
from urllib3.exceptions import TimeoutError as PoolTimeoutError


MAX_BODY = 4 * 1024 * 1024
"""The longest body that is read, in bytes."""

PIECE = 64 * 1024

HTTP_1_1 = 11
HTTP_2 = 20

_STATUS_REASONS = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
_CONTENT_TYPES = ("text/plain", "application/openmetrics-text")

_TIMEOUTS = (TimeoutError, PoolTimeoutError, requests.Timeout)

# The first row that has an exception's cause decides.
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((socket.gaierror, UnicodeError, LocationParseError), "name_not_resolved"),
    ((ssl.SSLError, PoolSSLError), "tls_error"),
    ((ConnectionRefusedError,), "refused"),
    (_TIMEOUTS, "timeout"),
    ((ConnectionError,), "unreachable"),
    ((http.client.HTTPException,), "not_metrics"),
)


class Answer(NamedTuple):
    """What came of a GET: ``ok`` and the whole body, or the reason why there is none."""

    reason: str
    body: bytes = b""


class Deadline:
    """
    Ends a request when its time is over, by shutting its socket down.

    A socket's own timeout begins again with every byte. What is shut down is a duplicate of the socket: TLS takes the
    first one over, and a duplicate's number is no one else's for as long as it is held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._end = 0.0
        self.is_over = False

    def start(self, seconds: float) -> None:
        """Begin to count."""
        with self._lock:
            self.is_over = False
            self._end = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """Stop counting; `is_over` says from now on whether the time was enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def remaining(self) -> float:
        """Return the seconds that are left; raises `TimeoutError` if there are none."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the time for the whole request is over")
        return seconds

    def watch(self, connection: socket.socket) -> socket.socket:
        """Make this the socket that is shut down; return it."""
        self.forget()
        with self._lock:
            self._socket = connection.dup()
            if self.is_over:
                _shut_down(self._socket)
        return connection

    def expire(self) -> None:
        """End the request now. May be called from any thread."""
        with self._lock:
            self.is_over = True
            if self._socket is not None:
                _shut_down(self._socket)

    def forget(self) -> None:
        """Let go of the socket."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class Fetcher:
    """GETs one URL; `fetch` is for one thread at a time, `close` for any."""

    def __init__(self, url: str, timeout: float, *, verify: str | bool, cert: str | tuple[str, str] | None) -> None:
        self._url = url
        self._timeout = timeout
        self._verify = verify
        self._cert = cert
        self._deadline = Deadline()
        self._adapter = _GuardedAdapter(self._deadline)
        self._has_kept_connection = False

    def fetch(self, headers: Mapping[str, str]) -> Answer:
        """Return the page, or why there is none."""
        self._deadline.start(self._timeout)
        try:
            answer = self._ask(headers)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            answer = Answer(_reason(error))
        finally:
            self._deadline.stop()
        # A socket that was shut down looks like one that the server closed, so what was read may lack its end.
        if self._deadline.is_over:
            answer = Answer("timeout")
        if answer.reason != "ok" or not self._has_kept_connection:
            self._drop_connection()
        return answer

    def close(self) -> None:
        """End a request under way, and let go of the connection."""
        self._deadline.expire()
        self._adapter.close()
        self._deadline.forget()

    def _ask(self, headers: Mapping[str, str]) -> Answer:
        request = requests.Request("GET", self._url, headers=headers).prepare()
        with self._send(request) as response:
            refusal = _refusal(response)
            if refusal is not None:
                return Answer(refusal)
            answer = _read(response)
            self._has_kept_connection = _is_kept(response)
            return answer

    def _send(self, request: requests.PreparedRequest) -> requests.Response:
        if self._has_kept_connection:
            self._has_kept_connection = False
            with suppress(requests.ConnectionError):
                return self._send_once(request)
            # A server may close a kept connection just when it is used again: uvicorn does after 5 s of silence.
            self._drop_connection()
        return self._send_once(request)

    def _send_once(self, request: requests.PreparedRequest) -> requests.Response:
        timeout = self._deadline.remaining()
        return self._adapter.send(
            request, stream=True, timeout=(timeout, timeout), verify=self._verify, cert=self._cert
        )

    def _drop_connection(self) -> None:
        self._has_kept_connection = False
        self._adapter.close()
        self._deadline.forget()


class _GuardedAdapter(HTTPAdapter):
    """Connections whose sockets a deadline shuts down."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._connection_classes = _connection_classes(deadline)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # As they come and go.
        """Return the pool of connections to the request's server."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = self._connection_classes[pool.scheme]
        return pool


def _connection_classes(deadline: Deadline) -> dict[str, type[HTTPConnection]]:
    """Return connections by scheme that show the deadline their sockets before TLS begins."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            self.timeout = _time_per_address(self.host, self.port, deadline)
            return deadline.watch(super()._new_conn())

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            self.timeout = _time_per_address(self.host, self.port, deadline)
            return deadline.watch(super()._new_conn())

    return {"http": Plain, "https": Secure}


def _time_per_address(host: str, port: int | None, deadline: Deadline) -> float:
    """Return the seconds for each of a host's addresses: they are tried in turn, each with a timeout of its own."""
    addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return deadline.remaining() / len(addresses)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # The server may have been faster.
        connection.shutdown(socket.SHUT_RDWR)


def _refusal(response: requests.Response) -> str | None:
    """Return why a body is not worth reading, or `None`."""
    status = response.status_code
    if status != requests.codes.ok:
        return "redirect" if 300 <= status < 400 else _STATUS_REASONS.get(status, "http_error")
    headers = response.headers
    if headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
        return "encoded"
    if not headers.get("Content-Type", "").strip().lower().startswith(_CONTENT_TYPES):
        return "not_metrics"
    return None if _says_its_end(response) else "incomplete"


def _says_its_end(response: requests.Response) -> bool:
    """Whether a whole body can be told from one that broke off."""
    headers = response.headers
    is_chunked = headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
    has_length = headers.get("Content-Length", "").strip().isdecimal()
    return is_chunked or has_length or _version(response) >= HTTP_2


def _is_kept(response: requests.Response) -> bool:
    return _version(response) >= HTTP_1_1 and "close" not in response.headers.get("Connection", "").lower()


def _version(response: requests.Response) -> int:
    version: int = response.raw.version
    return version


def _read(response: requests.Response) -> Answer:
    body = bytearray()
    try:
        # Not `stream`, which reads the sizes of chunks as lines of any length.
        while piece := response.raw.read(PIECE, decode_content=False):
            body += piece
            if len(body) > MAX_BODY:
                return Answer("too_large")
    except (HTTPError, OSError) as error:
        return Answer("timeout" if _is_caused_by(error, _TIMEOUTS) else "incomplete")
    return Answer("ok", bytes(body))


def _reason(error: BaseException) -> str:
    """Return why no answer came."""
    for types, reason in _CAUSES:
        if _is_caused_by(error, types):
            return reason
    return "unreachable"


def _is_caused_by(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    return any(isinstance(cause, types) for cause in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
