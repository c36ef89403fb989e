# SPDX-License-Identifier: Apache-2.0
"""A web server on a free port, the endpoints it serves, and clients that talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import subprocess

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import SECONDS

from vllm_watch.daemon.web.routes import PLAIN_TEXT, Response
from vllm_watch.daemon.web.server import WebServer


class FakeEndpoints:
    """Serves what a test puts into it."""

    def __init__(self):
        self.body = b"vllm_watch_requests_running 3.0\n"
        self.failure = None
        self.is_healthy = True
        self.asked = []

    def metrics(self, accept):
        """Return the test's body, or fail as the test says."""
        self.asked.append(accept)
        if self.failure is not None:
            raise self.failure
        return Response(self.body, "text/plain; version=0.0.4; charset=utf-8")

    def snapshot(self, histories=None):
        """Return some JSON of a few kilobytes, and keep whose last hour was asked for."""
        self.histories = histories
        return Response(json.dumps({"servers": [{"name": "qwen"}] * 200}).encode(), "application/json")

    def targets(self):
        """Return one target."""
        return Response(b'[{"targets": ["127.0.0.1:8000"], "labels": {"server": "qwen"}}]', "application/json")

    def healthy(self):
        """Return what the test says."""
        return Response(b"ok\n", PLAIN_TEXT) if self.is_healthy else Response(b"web is stuck\n", PLAIN_TEXT, 503)

    def ready(self):
        """Return that all is ready."""
        return Response(b"ready\n", PLAIN_TEXT)


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Certificate(NamedTuple):
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Makes certificates that it vouches for."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.own = Certificate(folder / "ca.pem", folder / "ca.key")
        self._openssl(
            "req",
            "-x509",
            *self._new_key("ca"),
            "-out",
            "ca.pem",
            "-subj",
            "/CN=authority",
            "-days",
            "2",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )

    def issue(self, name, days=2):
        """Make a certificate for 127.0.0.1; one of negative days has expired."""
        (self.folder / f"{name}.ext").write_text(
            "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        self._openssl("req", *self._new_key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )
        return Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=SECONDS)


def trusting(authority, own=None):
    """Return what a client needs that trusts one authority, and shows a certificate of its own."""
    context = ssl.create_default_context(cafile=str(authority.own.cert))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # The default from Python 3.13 on.
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


class Client:
    """Talks to one server, with TLS if it has a context."""

    def __init__(self, port, host="127.0.0.1", context=None):
        self.host = host
        self.port = port
        self.context = context

    def ask(self, path, method="GET", **headers):
        """Make one request on a connection of its own."""
        connection = self._connection()
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def _connection(self):
        if self.context is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        return http.client.HTTPSConnection(self.host, self.port, timeout=SECONDS, context=self.context)

    def connect(self):
        """Open a connection and say nothing."""
        return socket.create_connection((self.host, self.port), timeout=SECONDS)


@pytest.fixture
def endpoints():
    """What the server serves."""
    return FakeEndpoints()


@pytest.fixture
def web(endpoints):
    """A server that is listening."""
    server = WebServer("127.0.0.1", 0, endpoints)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(web):
    """A client of the server."""
    return Client(web.port)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """An authority that the tests trust."""
    return Authority(tmp_path_factory.mktemp("certificates") / "trusted")


@pytest.fixture(scope="session")
def stranger(authority):
    """An authority that nobody trusts."""
    return Authority(authority.folder.parent / "stranger")


@pytest.fixture(scope="session")
def server_certificate(authority):
    """What the server shows."""
    return authority.issue("server")


@pytest.fixture
def trusting_context():
    """Make a client's TLS context."""
    return trusting


@pytest.fixture
def web_of(endpoints, tmp_path):
    """Start servers with a web configuration file of this text; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(text, host="127.0.0.1"):
            file = tmp_path / "web.yml"
            file.write_text(text)
            server = WebServer(host, 0, endpoints, web_config_file=str(file))
            server.start()
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def client_of():
    """Make a client of a server that the test starts itself."""
    return Client
