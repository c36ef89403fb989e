# SPDX-License-Identifier: Apache-2.0
"""Starting, beating and stopping."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.web import server as server_module
from vllm_watch.daemon.web.server import WebServer


def _has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")


@contextlib.contextmanager
def _running(server):
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_free_port_is_found_and_a_taken_one_refused(endpoints, client_of, host):
    """E6: port 0 becomes a real one, which is served; once it is taken one sentence says so, and names the address."""
    with _running(WebServer(host, 0, endpoints)) as server:
        assert client_of(server.port, host).ask("/-/ready").status == 200
        with pytest.raises(UsageError) as caught:
            WebServer(host, server.port, endpoints).start()

    address = f"[{host}]" if ":" in host else host
    taken = "address already in use; --listen takes another one"
    assert str(caught.value) == f"cannot listen on {address}:{server.port}: {taken}"


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("203.0.113.1", 9468, "cannot listen on 203.0.113.1:9468: cannot assign requested address"),
        ("a..b", 9468, "cannot listen on a..b:9468: this is no host name"),
        ("::zz", 9468, "cannot listen on [::zz]:9468: "),
    ],
)
def test_impossible_address_is_a_usage_error(endpoints, host, port, message):
    """E6: an address that cannot be listened on is refused in one sentence."""
    with pytest.raises(UsageError) as caught:
        WebServer(host, port, endpoints).start()

    assert str(caught.value).startswith(message)


@needs_ipv6
@pytest.mark.parametrize("host", ["", "::"])
def test_all_addresses_are_served_on_one_port(endpoints, client_of, host):
    """E6: no host, and the IPv6 address that stands for all, serve IPv4 and IPv6 on one port."""
    with _running(WebServer(host, 0, endpoints)) as server:
        for address in ("127.0.0.1", "::1"):
            assert client_of(server.port, address).ask("/-/ready").status == 200


@pytest.mark.slow
@pytest.mark.parametrize(("path", "endpoint"), [("/-/ready", "ready"), ("/metrics", "metrics")])
def test_heart_stops_in_a_stuck_page(web, client, endpoints, path, endpoint):
    """A page that never returns shows in the heartbeat, whichever thread makes it."""
    is_stuck, may_go_on = threading.Event(), threading.Event()

    def make(*_):
        is_stuck.set()
        may_go_on.wait(SECONDS)
        return endpoints.healthy()

    setattr(endpoints, endpoint, make)
    with client.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert is_stuck.wait(SECONDS)
        until(lambda: web.heartbeat.age() > 1.5)  # One beat a second comes while the loop goes round.
        released = time.monotonic()
        may_go_on.set()
        until(lambda: web.heartbeat.age() < time.monotonic() - released)


def test_stop_ends_what_is_open_and_frees_the_port(endpoints, client_of, monkeypatch):
    """Stopping ends the thread and the open connections, also one that reads nothing; the port can be had again."""
    monkeypatch.setattr(server_module, "_CLOSE_SECONDS", 0.1)
    server = WebServer("127.0.0.1", 0, endpoints)
    server.start()
    endpoints.body = b"x" * (32 << 20)
    with client_of(server.port).connect() as idle, client_of(server.port).connect() as unread:
        unread.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert unread.recv(4) == b"HTTP"
        server.stop()

        assert idle.recv(1) == b""
    assert "web" not in {thread.name for thread in threading.enumerate()}
    with _running(WebServer("127.0.0.1", server.port, endpoints)) as successor:
        assert client_of(successor.port).ask("/-/ready").status == 200


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/snapshot"])
def test_nobody_waits_for_a_long_response(client, endpoints, monkeypatch, path):
    """While the series or the snapshot of many servers are made, all other requests are answered."""
    is_made, may_go_on, replies = threading.Event(), threading.Event(), []
    short = endpoints.healthy()

    def make(*_):
        is_made.set()
        may_go_on.wait(SECONDS)
        return short

    monkeypatch.setattr(endpoints, "metrics", make)
    monkeypatch.setattr(endpoints, "snapshot", make)
    asking = [threading.Thread(target=lambda: replies.append(client.ask(path).status)) for _ in range(3)]
    for thread in asking:
        thread.start()
    assert is_made.wait(SECONDS)
    others = [
        client.ask(other).status for other in ("/-/healthy", "/-/ready", "/", "/static/page.js", "/api/v1/targets")
    ]
    assert not replies
    may_go_on.set()
    for thread in asking:
        thread.join(SECONDS)

    assert [200] * 5 == others
    assert [200] * 3 == replies
