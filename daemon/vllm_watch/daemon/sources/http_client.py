# SPDX-License-Identifier: Apache-2.0
"""
Requests to one server, each within one deadline, and independent of the process's environment.

This module handles servers that answer slowly, byte by byte, or never. The library `requests` prepares requests, and
`http.client` sends them: it takes no proxies and passwords from the environment, keeps no cookies, follows no redirect,
and costs a scrape a tenth of what an adapter of `requests` does.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import requests

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from vllm_watch.daemon.catalog.reasons import MetricsReason, ProbeReason
from vllm_watch.daemon.sources.alarms import ALARMS, Alarm
from vllm_watch.daemon.support.errors import causes_of


HTTP_1_1 = 11

NO_HTTP: Final = "no_http"
"""The reason of an answer that is no HTTP; the caller replaces it by one that says what it expected."""

RequestReason = MetricsReason | ProbeReason | Literal["no_http"]

# The first row that has an exception's cause decides.
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], RequestReason], ...] = (
    ((socket.gaierror, UnicodeError), "name_not_resolved"),
    ((ssl.SSLError,), "tls_error"),
    ((ConnectionRefusedError,), "refused"),
    ((TimeoutError,), "timeout"),
    ((ConnectionError,), "unreachable"),
    ((http.client.HTTPException,), NO_HTTP),
)

_CODING = "Content-Encoding"

T = TypeVar("T")


class TlsOptions(NamedTuple):
    """Files for TLS: the authority to trust instead of the usual ones, and this side's certificate and key."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class RequestError(Exception):
    """No good answer came; `reason` is a code from a closed list."""

    def __init__(self, reason: RequestReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Deadline:
    """
    Ends a request when its time is over, by shutting its socket down.

    A socket's own timeout starts again with every byte. What is shut down is a duplicate of the socket: TLS takes the
    first one over, and a duplicate's number is no one else's for as long as it is held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._alarm: Alarm | None = None
        self._end = 0.0
        self._turn = 0
        """Counts starts and stops: an alarm that comes late is not for what runs then."""
        self.is_over = False

    def start(self, seconds: float) -> None:
        """Start the time."""
        with self._lock:
            self.is_over = False
            self._end = time.monotonic() + seconds
            self._turn += 1
            self._alarm = ALARMS.set(seconds, partial(self._expire_in, self._turn))

    def stop(self) -> None:
        """Stop the time; from now on `is_over` tells whether it ran out."""
        with self._lock:
            self._turn += 1
            if self._alarm is not None:
                self._alarm.cancel()

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
            self._end_request()

    def _expire_in(self, turn: int) -> None:
        """End the request, if it is still the one for which the time was started."""
        with self._lock:
            if turn == self._turn:
                self._end_request()

    def _end_request(self) -> None:
        self.is_over = True
        if self._socket is not None:
            _shut_down(self._socket)

    def forget(self) -> None:
        """Close the duplicate of the socket."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class BoundedClient:
    """
    Requests to one server, each exchange within one deadline; `run` is for one thread at a time, `close` for any.

    Args:
        timeout: Seconds for all that one `run` does, whatever the server drips.
        tls: For ``https`` URLs.
    """

    def __init__(self, timeout: float, tls: TlsOptions) -> None:
        self._timeout = timeout
        self._tls = tls
        self._deadline = Deadline()
        self._running = threading.Lock()
        """Held while there is a request: only then is the connection in use."""
        self._connection: http.client.HTTPConnection | None = None
        self._place: tuple[str, str, int] | None = None
        """The scheme, host and port of the connection."""
        self._has_kept_connection = False

    def run(self, ask: Callable[[], T]) -> T:
        """
        Return what `ask` makes of the answers to what it sends.

        Raises:
            RequestError: There was no good answer, or not in time.
        """
        try:
            with self._running:
                return self._run(ask)
        finally:
            if self._deadline.is_over:  # Perhaps since it ended: who closed took it for one that is still running.
                self.close()

    def send(self, request: requests.PreparedRequest) -> http.client.HTTPResponse:
        """Return the answer's head; its body is still to be read."""
        if self._has_kept_connection:
            self._has_kept_connection = False
            with suppress(ConnectionError, http.client.HTTPException):
                return self._send_once(request)
            # A server may close a kept connection just when it is used again: uvicorn does after 5 s of silence.
            self._drop_connection()
        return self._send_once(request)

    def keep(self, response: http.client.HTTPResponse) -> None:
        """Keep the connection for the next request if the server does: the body has been read to its end."""
        self._has_kept_connection = response.version >= HTTP_1_1 and not response.will_close

    def close(self) -> None:
        """End a request that is running, and close the connection."""
        self._deadline.expire()
        if self._running.acquire(blocking=False):  # Otherwise the request that ends now closes it.
            self._drop_connection()
            self._running.release()

    def _run(self, ask: Callable[[], T]) -> T:
        if not all(os.access(path, os.R_OK) for path in self._tls if path):
            raise RequestError("tls_error")
        is_good = False
        self._deadline.start(self._timeout)
        try:
            made = ask()
            is_good = True
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise RequestError("timeout" if self._deadline.is_over else _reason(error)) from None
        except RequestError as error:
            raise RequestError("timeout" if self._deadline.is_over else error.reason) from None
        finally:
            self._deadline.stop()
            if not is_good or self._deadline.is_over or not self._has_kept_connection:
                self._drop_connection()
        # A socket that was shut down looks like one that the server closed: the body may be incomplete.
        if self._deadline.is_over:
            raise RequestError("timeout")
        return made

    def _send_once(self, request: requests.PreparedRequest) -> http.client.HTTPResponse:
        connection = self._connection_for(request.url or "")
        if connection.sock is not None:
            connection.sock.settimeout(self._deadline.remaining())
        connection.request(request.method or "", request.path_url, request.body, request.headers)
        return connection.getresponse()

    def _connection_for(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        kind = _SecureConnection if parts.scheme == "https" else _Connection
        place = (parts.scheme, parts.hostname or "", parts.port or kind.default_port)
        if self._connection is None or place != self._place:
            self._drop_connection()
            self._connection, self._place = kind(place[1], place[2], self._deadline, self._tls), place
        return self._connection

    def _drop_connection(self) -> None:
        self._has_kept_connection = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._deadline.forget()


def is_encoded(response: http.client.HTTPResponse) -> bool:
    """Tell whether a body is compressed, although that was not asked for."""
    return any(coding.strip().lower() not in {"", "identity"} for coding in response.headers.get_all(_CODING, ()))


def body_pieces(response: http.client.HTTPResponse, size: int, limit: int) -> Iterator[bytes]:
    """
    Yield an answer's body as it was sent, in pieces of at most `size` bytes.

    Raises:
        RequestError: The body is longer than `limit` bytes, does not come in time, or ends too early.
    """
    total = 0
    try:
        while piece := response.read(size):
            total += len(piece)
            if total > limit:
                raise RequestError("too_large")
            yield piece
    except (http.client.HTTPException, OSError) as error:
        raise RequestError("timeout" if _is_caused_by(error, (TimeoutError,)) else "incomplete") from None
    if response.length:  # http.client tells of a chunk that is missing, and not of an end that came too early.
        raise RequestError("incomplete")


class _Response(http.client.HTTPResponse):
    """An answer whose chunks have no size below 0: of -1 bytes http.client would read all that comes at once."""

    def _read_next_chunk_size(self) -> int:
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # There is no public name for it.
        if size < 0:
            raise ValueError("a chunk's size is below 0")  # As for a size that is no number.
        return size


class _Connection(http.client.HTTPConnection):
    """A connection whose socket a deadline shuts down."""

    response_class = _Response

    def __init__(self, host: str, port: int, deadline: Deadline, tls: TlsOptions) -> None:
        super().__init__(host, port)
        self._deadline = deadline
        self._tls = tls

    def connect(self) -> None:
        """Connect to the first of the host's addresses that accepts, all within the deadline."""
        seconds = _time_per_address(self.host, self.port, self._deadline)
        self.sock = self._deadline.watch(socket.create_connection((self.host, self.port), seconds))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(self._deadline.remaining())


class _SecureConnection(_Connection):
    """The same over TLS."""

    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        """Connect, and check the server's certificate."""
        super().connect()
        tls = self._tls
        context = ssl.create_default_context(cafile=tls.ca_file or DEFAULT_CA_BUNDLE_PATH)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


def _time_per_address(host: str, port: int, deadline: Deadline) -> float:
    """Return the seconds for each of a host's addresses: they are tried in turn, each with a timeout of its own."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return deadline.remaining() / len(addresses)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # The server may have been faster.
        connection.shutdown(socket.SHUT_RDWR)


def _reason(error: BaseException) -> RequestReason:
    """Return why no answer came."""
    for types, reason in _CAUSES:
        if _is_caused_by(error, types):
            return reason
    return "unreachable"


def _is_caused_by(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    return any(isinstance(cause, types) for cause in causes_of(error))
