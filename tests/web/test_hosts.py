# SPDX-License-Identifier: Apache-2.0
"""Under which names the endpoints may be asked for: none that a stranger's web page can have lead here."""

from __future__ import annotations

import contextlib
import socket

import pytest

from tests.web.conftest import Client

from vllm_watch.daemon.web.addresses import is_named, names_here
from vllm_watch.daemon.web.server import WebServer


PATHS = ("/", "/metrics", "/api/v1/snapshot", "/api/v1/targets", "/-/healthy", "/-/ready", "/nowhere")


@contextlib.contextmanager
def serving(endpoints, host="127.0.0.1", **options):
    """Give a client of a server that listens on an address."""
    server = WebServer(host, 0, endpoints, **options)
    server.start()
    try:
        yield Client(server.port)
    finally:
        server.stop()


@pytest.mark.parametrize("path", PATHS)
def test_a_strangers_name_gets_nothing(client, path):
    """A web page whose own name leads to loopback is told that it is wrong here, whatever it asks for."""
    reply = client.ask(path, Host="rebound.example:9468")

    assert (reply.status, reply.body.count(b"\n")) == (421, 1)
    assert b"allowed_hosts" in reply.body
    assert b"rebound" not in reply.body


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:9468",
        "10.0.0.5:80",
        "[::1]:9468",
        "localhost",
        "LocalHost:9468",
        "localhost.",
        "gpu.localhost:9468",
        socket.gethostname(),
    ],
)
def test_addresses_and_the_machines_own_names_will_do(client, host):
    """No web page can be served under an address' name, nor under this machine's, so those are answered."""
    assert client.ask("/metrics", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1.example",
        "localhost.example",
        "evil-localhost",
        "127.0.0.1@evil.example",
        ":9468",
        "a, localhost",
        "[x",
    ],
)
def test_what_only_looks_like_one_will_not(host):
    """Neither a name that begins or ends like a good one, nor one that is none, is taken for it."""
    assert not is_named(host, names_here())


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_where_others_connect_any_name_will_do(endpoints, host):
    """A Prometheus or a probe of another machine asks by names that only its network knows."""
    with serving(endpoints, host) as client:
        assert client.ask("/metrics", Host="gpu7.cluster.example:9468").status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_names_may_be_given(endpoints, host):
    """
    A reverse proxy that hands its own name on is let in by that name. Beside the names that are given only addresses
    are answered, by which Kubernetes probes.
    """
    asked = ("watch.example.com", "watch.example.com:443", "10.1.2.3:9468", "rebound.example")
    with serving(endpoints, host, allowed_hosts=("Watch.Example.com",)) as client:
        assert [client.ask("/", Host=name).status for name in asked] == [200, 200, 200, 421]
