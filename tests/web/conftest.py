# SPDX-License-Identifier: Apache-2.0
"""A web server on a free port, the pages it serves, and clients that talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

from typing import NamedTuple

import pytest

from vllm_watch.web.pages import PLAIN_TEXT, Answer
from vllm_watch.web.server import WebServer


class FakePages:
    """Serves what a test puts into it."""

    def __init__(self):
        self.body = b"vllm_watch_requests_running 3.0\n"
        self.encoding = None
        self.failure = None
        self.is_healthy = True
        self.asked = []

    def metrics(self, accept, accept_encoding):
        """Return the test's body, or fail as the test says."""
        self.asked.append((accept, accept_encoding))
        if self.failure is not None:
            raise self.failure
        return Answer(self.body, "text/plain; version=0.0.4; charset=utf-8", encoding=self.encoding)

    def snapshot(self):
        """Return some JSON of a few kilobytes."""
        return Answer(json.dumps({"servers": [{"name": "qwen"}] * 200}).encode(), "application/json")

    def healthy(self):
        """Return what the test says."""
        return Answer(b"ok\n", PLAIN_TEXT) if self.is_healthy else Answer(b"web is stuck\n", PLAIN_TEXT, 503)

    def ready(self):
        """Return that all is ready."""
        return Answer(b"ready\n", PLAIN_TEXT)


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Client:
    """Talks to one server."""

    def __init__(self, port, host="127.0.0.1"):
        self.host = host
        self.port = port

    def ask(self, path, method="GET", **headers):
        """Make one request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def connect(self):
        """Open a connection and say nothing."""
        return socket.create_connection((self.host, self.port), timeout=5)


@pytest.fixture
def pages():
    """What the server serves."""
    return FakePages()


@pytest.fixture
def web(pages):
    """A server that is listening."""
    server = WebServer("127.0.0.1", 0, pages)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(web):
    """A client of the server."""
    return Client(web.port)


@pytest.fixture
def client_of():
    """Make a client of a server that the test starts itself."""
    return Client
