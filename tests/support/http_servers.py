# SPDX-License-Identifier: Apache-2.0
"""Small servers on loopback that answer as told: well, badly, slowly or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import ssl
import tempfile
import threading

from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import run_command
from tests.support.waiting import SECONDS


Pieces = Callable[[str], Iterable[bytes]]

POLL = 0.05
"""Seconds after which a waiting thread looks whether the server is to end."""


class Peak:
    """The memory that this process had at most inside the context, beyond what it had before, in bytes."""

    def __enter__(self):
        # Makes the highest figure so far the present one.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._before = _memory("VmRSS")
        return self

    def __exit__(self, *_):
        self.size = _memory("VmHWM") - self._before


def _memory(name):
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024


class HandlerServer:
    """A server of the standard library on a free port of loopback, for the time of a ``with`` block."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.origin = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        """Its URL without a path."""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join(SECONDS)
        self._server.server_close()


def answer(body: bytes = b"", status: str = "200 OK", *, length: int | None = None, **headers: str) -> bytes:
    """Return an HTTP answer; `length` is the one it claims, and headers are named with underscores."""
    fields = {"Content_Type": "text/plain; version=0.0.4; charset=utf-8", **headers}
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    if "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunk(data: bytes) -> bytes:
    """Return a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class StandIn:
    """
    A server that writes the pieces `pieces(request head)` gives, for each request on each connection.

    Args:
        pieces: What to answer, in one write each.
        pause: Seconds between two writes.
        closes: Whether the connection ends with the answer.
        tls: Speak TLS with this.
        port: Where to listen; 0 is any free port.
    """

    def __init__(
        self,
        pieces: Pieces,
        *,
        pause: float = 0.0,
        closes: bool = False,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.pieces = pieces
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._pause = pause
        self._closes = closes
        self._tls = tls
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(POLL)
        self._threads = [threading.Thread(target=self._accept)]
        self.port = self._listener.getsockname()[1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}/metrics"

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # The client ends connections in the middle of an answer, and refuses certificates.
        with connection, suppress(OSError):
            connection.settimeout(POLL)
            if self._tls is None:
                self._converse(connection)
                return
            connection.settimeout(SECONDS)
            with self._tls.wrap_socket(connection, server_side=True) as secured:
                secured.settimeout(POLL)
                self._converse(secured)

    def _converse(self, connection: socket.socket) -> None:
        while request := self._read_request(connection):
            self.requests.append(request)
            self._write(connection, self.pieces(request))
            if self._closes:
                return

    def _read_request(self, connection: socket.socket) -> str:
        """Return a request's head and keep its body; nothing if there is no whole one."""
        request = b""
        while not self._stop.is_set():
            head, blank, body = request.partition(b"\r\n\r\n")
            if blank and len(body) >= _content_length(head):
                self.bodies.append(body)
                return (head + blank).decode("latin-1")
            with suppress(TimeoutError):
                data = connection.recv(4096)
                if not data:
                    return ""
                request += data
        return ""

    def _write(self, connection: socket.socket, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            connection.settimeout(SECONDS)
            connection.sendall(piece)
            connection.settimeout(POLL)
            if self._stop.wait(self._pause):
                return


def _content_length(head: bytes) -> int:
    found = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    return int(found[1]) if found else 0


class Talker:
    """A server that reads nothing and sends one connection these pieces."""

    def __init__(self, pieces: Iterable[bytes], *, pause: float = 0.0) -> None:
        self._pieces = pieces
        self._pause = pause
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._talk)
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(SECONDS)
        self._listener.close()

    def _talk(self) -> None:
        connection, _ = self._listener.accept()
        with connection, suppress(OSError):
            for piece in self._pieces:
                connection.sendall(piece)
                if self._stop.wait(self._pause):
                    return
            self._stop.wait(SECONDS)


FIRST, COUNT = 20_000, 10_000
"""Linux gives none of these to who asks for any port."""


def free_port() -> int:
    """Return a port on which nothing listens, and that no other test gets soon: of any run on this machine."""
    path = Path(tempfile.gettempdir()) / f"vllm-watch-tests-port-{os.getuid()}"
    with path.open("a+", encoding="ascii") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        port = FIRST + (int(last.read() or 0) + 1) % COUNT
        while _is_taken(port):
            port = FIRST + (port - FIRST + 1) % COUNT
        last.truncate(0)
        last.write(str(port - FIRST))
    return port


def _is_taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


class Certificate(NamedTuple):
    """A certificate for 127.0.0.1 that is its own authority."""

    cert_file: str
    key_file: str

    def server_context(self) -> ssl.SSLContext:
        """Return what a server with this certificate speaks."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


def self_signed(stem: Path) -> Certificate:
    """Make a certificate and its key in files whose names begin so."""
    certificate = Certificate(f"{stem}.crt", f"{stem}.key")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    extensions = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=digitalSignature,keyCertSign")
    files = ("-out", certificate.cert_file, "-keyout", certificate.key_file)
    run_command(*command.split(), *extensions, *files, text=False, check=True)
    return certificate


def served(*pieces, **options):
    """Return a server that answers every request with the same pieces."""
    return StandIn(lambda _: pieces, **options)
