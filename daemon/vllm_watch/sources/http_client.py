# SPDX-License-Identifier: Apache-2.0
"""
Requests to one server, each within one deadline, and independent of the process's environment.

This module handles servers that answer slowly, byte by byte, or never. Requests use an adapter without a session. A
session takes proxies and passwords from the environment, keeps cookies, and reads and decodes the whole body of a
redirect even if it does not follow it.
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
from typing import Any, Final, Literal, NamedTuple, TypeVar

import requests

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.exceptions import SSLError as PoolSSLError
from urllib3.exceptions import TimeoutError as PoolTimeoutError

from vllm_watch.catalog.reasons import MetricsReason, ProbeReason
from vllm_watch.sources.alarms import ALARMS, Alarm
from vllm_watch.support.causes import causes_of


HTTP_1_1 = 11

NO_HTTP: Final = "no_http"
"""The reason of an answer that is no HTTP; the caller replaces it by one that says what it expected."""

_TIMEOUTS = (TimeoutError, PoolTimeoutError, requests.Timeout)

RequestReason = MetricsReason | ProbeReason | Literal["no_http"]

# The first row that has an exception's cause decides.
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], RequestReason], ...] = (
    ((socket.gaierror, UnicodeError, LocationParseError), "name_not_resolved"),
    ((ssl.SSLError, PoolSSLError), "tls_error"),
    ((ConnectionRefusedError,), "refused"),
    (_TIMEOUTS, "timeout"),
    ((ConnectionError,), "unreachable"),
    ((http.client.HTTPException,), NO_HTTP),
)

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
        self._adapter = _GuardedAdapter(self._deadline)
        self._has_kept_connection = False

    def run(self, ask: Callable[[], T]) -> T:
        """
        Return what `ask` makes of the answers to what it sends.

        Raises:
            RequestError: There was no good answer, or not in time.
        """
        if not all(os.access(path, os.R_OK) for path in self._tls if path):
            raise RequestError("tls_error")
        is_good = False
        self._deadline.start(self._timeout)
        try:
            made = ask()
            is_good = True
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
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

    def send(self, request: requests.PreparedRequest) -> requests.Response:
        """Return the answer's head; its body is still to be read."""
        if self._has_kept_connection:
            self._has_kept_connection = False
            with suppress(requests.ConnectionError):
                return self._send_once(request)
            # A server may close a kept connection just when it is used again: uvicorn does after 5 s of silence.
            self._drop_connection()
        return self._send_once(request)

    def keep(self, response: requests.Response) -> None:
        """Keep the connection for the next request if the server does: the body has been read to its end."""
        self._has_kept_connection = (
            version_of(response) >= HTTP_1_1 and "close" not in response.headers.get("Connection", "").lower()
        )

    def close(self) -> None:
        """End a request that is running, and close the connection."""
        self._deadline.expire()
        self._adapter.close()
        self._deadline.forget()

    def _send_once(self, request: requests.PreparedRequest) -> requests.Response:
        timeout = self._deadline.remaining()
        tls = self._tls
        cert = (tls.cert_file, tls.key_file) if tls.cert_file and tls.key_file else tls.cert_file
        return self._adapter.send(
            request, stream=True, timeout=(timeout, timeout), verify=tls.ca_file or True, cert=cert
        )

    def _drop_connection(self) -> None:
        self._has_kept_connection = False
        self._adapter.close()
        self._deadline.forget()


def is_encoded(response: requests.Response) -> bool:
    """Tell whether a body is compressed, although that was not asked for."""
    return response.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}


def body_pieces(response: requests.Response, size: int, limit: int) -> Iterator[bytes]:
    """
    Yield an answer's body as it was sent, in pieces of at most `size` bytes.

    Raises:
        RequestError: The body is longer than `limit` bytes, does not come in time, or ends too early.
    """
    total = 0
    try:
        # Not `stream`, which reads the sizes of chunks as lines of any length.
        while piece := response.raw.read(size, decode_content=False):
            total += len(piece)
            if total > limit:
                raise RequestError("too_large")
            yield piece
    except (HTTPError, OSError) as error:
        raise RequestError("timeout" if _is_caused_by(error, _TIMEOUTS) else "incomplete") from None


def version_of(response: requests.Response) -> int:
    """Return the answer's version of HTTP, 11 for 1.1."""
    version: int = response.raw.version
    return version


class _GuardedAdapter(HTTPAdapter):
    """Makes connections whose sockets a deadline shuts down."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._connection_classes = _connection_classes(deadline)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # As they come and go.
        """Return the pool of connections to the request's server."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = self._connection_classes[pool.scheme]
        return pool


def _connection_classes(deadline: Deadline) -> dict[str, type[HTTPConnection]]:
    """Return classes of connections by scheme that give the deadline their sockets before TLS starts."""

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


def _reason(error: BaseException) -> RequestReason:
    """Return why no answer came."""
    for types, reason in _CAUSES:
        if _is_caused_by(error, types):
            return reason
    return "unreachable"


def _is_caused_by(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    return any(isinstance(cause, types) for cause in causes_of(error))
