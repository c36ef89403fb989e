# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, large or many cost little and hinder nobody."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.patience import USUAL
from tests.support.waiting import until

from vllm_watch.daemon.web import server as server_module


pytestmark = pytest.mark.slow


def _drip_until_the_end(connection):
    """Send byte by byte until the other side hangs up, with no pause that is as long as its limit."""
    connection.settimeout(0.05)

    def is_ended():
        try:
            connection.send(b"a")
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    until(is_ended)


def _read_all(connection):
    """Read to the end, which may be abrupt."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(1 << 16):
            received += chunk
    return bytes(received)


def test_limits_are_the_promised_ones():
    """E5: headers and body have 5 s each in total, an answer 10 s to be taken, and 256 connections may be open."""
    limits = [USUAL["daemon.web.server", name] for name in ("HEADER_SECONDS", "BODY_SECONDS", "WRITE_SECONDS")]

    assert (limits, server_module.MAX_CONNECTIONS) == ([5.0, 5.0, 10.0], 256)


@pytest.fixture
def quick_client(monkeypatch, request):
    """A client of a server whose deadlines are soon over."""
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(server_module, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(server_module, "WRITE_SECONDS", 1.0)
    return request.getfixturevalue("client")


def test_slow_headers_end_at_the_deadline(quick_client):
    """E5: a client that drips its headers is dropped when the time for all of them is over."""
    with quick_client.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        _drip_until_the_end(connection)


def test_idle_connection_is_closed(quick_client):
    """E5: a connection that is kept open for nothing is closed."""

    def answer():
        with quick_client.connect() as connection:
            connection.sendall(b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return _read_all(connection)

    until(lambda: answer().endswith(b"ready\n"))  # Its time is over at the first try where the machine stands still.


def test_one_connection_too_many_waits_for_a_place(monkeypatch, quick_client):
    """E5: when all places are taken, one more is closed; those that were silent for too long give theirs up."""
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)
    for _ in range(3):
        with quick_client.connect(), quick_client.connect():
            until(lambda: _has_a_place(quick_client))


def test_client_that_does_not_read_is_dropped(monkeypatch, quick_client, endpoints):
    """E5: a client that does not take its answer loses its place, which the next one gets."""
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    endpoints.body = b"x" * (64 << 20)
    with quick_client.connect() as lazy:
        _begin_to_read(lazy)
        until(lambda: _has_a_place(quick_client))

        assert len(_read_all(lazy)) < len(endpoints.body)


def _begin_to_read(connection):
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert connection.recv(10) == b"HTTP/1.1 2"


def _has_a_place(client):
    """Whether one more client is answered."""
    with contextlib.suppress(OSError), client.connect() as connection:
        connection.sendall(b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return _read_all(connection).endswith(b"ready\n")
    return False


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (20 << 10) + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 4000 + b"\r\n",
        b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nGET /-/ready",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /-/ready",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length : 3\r\n\r\nGET /-/ready HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: y\r\n\r\nGET /-/ready HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics\r\n\r\n",
    ],
    ids=[
        *("headers", "many-headers", "url", "body", "negative-length", "two-lengths", "length-and-chunks"),
        *("bad-chunk", "blank-in-name", "folded", "tls", "no-path", "no-version"),
    ],
)
def test_unfit_request_is_refused(client, request_bytes):
    """E5: what is too large or no HTTP is answered with 400 or not at all, and repeated never."""
    with client.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request_bytes)
        answer = _read_all(connection)

    assert answer in {b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"}
    assert client.ask("/-/ready").status == 200
