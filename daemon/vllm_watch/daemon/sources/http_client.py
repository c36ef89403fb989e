# SPDX-License-Identifier: Apache-2.0
"""
Requests to one server, each within one deadline, and independent of the process's environment.

This module handles servers that answer slowly, byte by byte, never, or without end. `requests` sends them, through an
adapter with one connection of the standard library: the extra `grafana` puts another urllib3 under requests' own one,
and neither has a deadline for a whole answer. There are no proxies, passwords or authorities from the environment, no
cookies, and no redirect is followed.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, cast
from urllib.parse import urlsplit

import requests

from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from vllm_watch import __version__
from vllm_watch.daemon.catalog.reasons import MetricsReason, ProbeReason
from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.support.errors import reason_by_cause


if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


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


class RequestError(Exception):
    """No good answer came; `reason` is a code from a closed list."""

    def __init__(self, reason: RequestReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Deadline:
    """The end of the time for all that is sent and received together."""

    def __init__(self) -> None:
        self._end = 0.0

    def start(self, seconds: float) -> None:
        """Start the time."""
        self._end = time.monotonic() + seconds

    def expire(self) -> None:
        """End the time now. May be called from any thread."""
        self._end = 0.0

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._end

    def remaining(self) -> float:
        """Return the seconds that are left; raises `TimeoutError` if there are none."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the time for the whole request is over")
        return seconds


class HttpClient:
    """
    Requests to one server, over one connection; `within_time` is for one thread at a time, `close` for any.

    Args:
        timeout: Seconds for all that is done in one `within_time`, whatever the server drips.
        tls: For ``https`` URLs.
    """

    def __init__(self, timeout: float, tls: TlsConfig | None = None) -> None:
        self._timeout = timeout
        self._deadline = Deadline()
        self._running = threading.Lock()
        """Held while the connection is in use."""
        self._is_closed = False
        """Whether no connection is kept any more, also that of a request that begins later."""
        self._adapter = _Adapter(self._deadline, tls or TlsConfig())
        self._session = _Session()
        self._session.trust_env = False
        self._session.headers.clear()
        self._session.headers["User-Agent"] = f"vllm-watch/{__version__}"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._adapter)

    @contextmanager
    def within_time(self) -> Iterator[None]:
        """
        Limit the time of what is sent and received in a ``with`` block.

        Raises:
            RequestError: There was no good answer, or not in time.
        """
        is_good = False
        try:
            with self._running:
                self._deadline.start(self._timeout)
                try:
                    yield
                    is_good = True
                except (http.client.HTTPException, OSError, ValueError) as error:
                    raise RequestError(
                        "timeout" if self._deadline.is_over else reason_by_cause(error, _CAUSES) or "unreachable"
                    ) from None
                except RequestError as error:
                    raise RequestError("timeout" if self._deadline.is_over else error.reason) from None
                finally:
                    if not is_good or self._deadline.is_over:
                        self._adapter.close()
        finally:
            if self._is_closed:  # Looked at here: `close` cannot take the lock from a request that is about to end.
                self._close_if_idle()

    def send(
        self, method: str, url: str, headers: Mapping[str, str | None], body: bytes | None = None
    ) -> requests.Response:
        """Return the answer's head; its body is still to be read, and the answer to be closed."""
        return self._session.request(method, url, headers=headers, data=body, stream=True, allow_redirects=False)

    def close(self) -> None:
        """End a request that is running, and close the connection."""
        self._is_closed = True
        self._deadline.expire()
        self._adapter.shut_down()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Close the connection, unless a request runs: that closes it when it ends."""
        if self._running.acquire(blocking=False):
            self._adapter.close()
            self._running.release()


def check_answer(response: requests.Response, reasons: Mapping[int, RequestReason]) -> None:
    """Raise `RequestError` if an answer is not what was asked for, by its status, or is compressed."""
    status = response.status_code
    if status != requests.codes.ok:
        raise RequestError("redirect" if 300 <= status < 400 else reasons.get(status, "http_error"))
    refuse_encoded(response)


def refuse_encoded(response: requests.Response) -> None:
    """Raise `RequestError` if a body is compressed: that was not asked for, and it could be of any size."""
    codings = response.headers.get("Content-Encoding", "").split(",")
    if any(coding.strip().lower() not in {"", "identity"} for coding in codings):
        raise RequestError("encoded")


def body_pieces(response: requests.Response, size: int, limit: int) -> Iterator[bytes]:
    """
    Yield an answer's body as it was sent, in pieces of at most `size` bytes.

    Raises:
        RequestError: The body is longer than `limit` bytes, does not come in time, or ends too early.
    """
    raw = cast("http.client.HTTPResponse", response.raw)
    total = 0
    try:
        while piece := raw.read(size):
            total += len(piece)
            if total > limit:
                raise RequestError("too_large")
            yield piece
    except (http.client.HTTPException, OSError) as error:
        raise RequestError(reason_by_cause(error, [((TimeoutError,), "timeout")]) or "incomplete") from None
    if raw.length:  # http.client tells of a chunk that is missing, and not of an end that came too early.
        raise RequestError("incomplete")


class _Session(requests.Session):
    """A session that does not even look where a redirect leads: it would read the answer's body, however long."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """There is none."""


class _Adapter(BaseAdapter):
    """Sends what `requests` has prepared over one connection, which is kept where the server keeps it."""

    def __init__(self, deadline: Deadline, tls: TlsConfig) -> None:
        super().__init__()
        self._deadline = deadline
        self._tls = tls
        self._connection: _Connection | None = None
        self._place: tuple[str, str] | None = None
        """The scheme and address of the connection."""

    def send(self, request: requests.PreparedRequest, *_: object, **_options: object) -> requests.Response:
        """Return the answer to a request; its body is read from `raw`."""
        connection = self._connection_to(request.url or "")
        if connection.sock is not None:
            # A server may close a kept connection just when it is used again: uvicorn does after 5 s of silence.
            with suppress(ConnectionError, http.client.HTTPException):
                return self._exchange(request, connection)
            connection.close()
        return self._exchange(request, connection)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def shut_down(self) -> None:
        """End what a thread waits for."""
        if self._connection is not None and self._connection.socket is not None:
            with suppress(OSError):  # The server may have been faster.
                self._connection.socket.shutdown(socket.SHUT_RDWR)

    def _connection_to(self, url: str) -> _Connection:
        parts = urlsplit(url)
        place = parts.scheme, parts.netloc
        if self._connection is None or self._place != place:
            self.close()
            tls = self._tls if parts.scheme == "https" else None
            port = parts.port or (http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT)
            self._connection, self._place = _Connection(parts.hostname or "", port, self._deadline, tls), place
        return self._connection

    def _exchange(self, request: requests.PreparedRequest, connection: _Connection) -> requests.Response:
        if connection.sock is not None:
            connection.sock.settimeout(self._deadline.remaining())
        connection.request(request.method or "", request.path_url, request.body, request.headers)
        raw = connection.getresponse()
        response = requests.Response()
        response.raw, response.request, response.url = raw, request, request.url or ""
        response.status_code = raw.status
        # A header that occurs twice keeps both values, so that two different lengths are refused.
        response.headers = CaseInsensitiveDict({name: ", ".join(raw.headers.get_all(name, ())) for name in raw.headers})
        return response


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait has the time that is left."""

    def __init__(self, host: str, port: int, deadline: Deadline, tls: TlsConfig | None) -> None:
        if tls is not None:
            self.default_port = http.client.HTTPS_PORT
        super().__init__(host, port)
        self.response_class = partial(_Response, deadline)  # type: ignore[assignment]  # It is only called.
        self._deadline = deadline
        self._tls = tls
        self.socket: socket.socket | None = None
        """The last one, also once http.client has let go of it: it does before an answer is read that is the last."""

    def connect(self) -> None:
        """
        Connect to the first of the host's addresses that accepts, all within the deadline.

        Only the resolver's own limit ends a look-up of the name: whoever calls has a thread that may wait.
        """
        context = _tls_context(self._tls) if self._tls is not None else None
        addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        # They are tried in turn, each with a timeout of its own.
        seconds = self._deadline.remaining() / len(addresses)
        self.sock = socket.create_connection((self.host, self.port), seconds)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(self._deadline.remaining())
        if context is not None:
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)
        self.socket = self.sock


class _Response(http.client.HTTPResponse):
    """An answer each of whose pieces has the time that is left."""

    def __init__(self, deadline: Deadline, connection: socket.socket, method: str | None = None) -> None:
        super().__init__(connection, method=method)
        self.fp = io.BufferedReader(_InTime(connection, self.fp.detach(), deadline))
        self._connection = connection

    def close(self) -> None:
        """Make the connection useless if there is more of the answer to come."""
        if not self.isclosed():
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        super().close()

    def _read_next_chunk_size(self) -> int:
        """Raise for a size below 0 as for one that is no number: of -1 bytes all that comes would be read at once."""
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # There is no public name for it.
        if size < 0:
            raise ValueError("a chunk's size is below 0")
        return size


class _InTime(io.RawIOBase):
    """What comes from a socket: its own timeout would start again with every byte."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, deadline: Deadline) -> None:
        super().__init__()
        self._connection = connection
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Read what there is, or wait for it as long as the deadline says."""
        self._connection.settimeout(self._deadline.remaining())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def _tls_context(tls: TlsConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or DEFAULT_CA_BUNDLE_PATH)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        raise ssl.SSLError("a file for TLS cannot be read") from error
    return context
