# SPDX-License-Identifier: Apache-2.0
"""Who may see the endpoints."""

from __future__ import annotations

import base64
import contextlib
import http.client
import threading

import bcrypt
import pytest

from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.web import auth
from vllm_watch.daemon.web.auth import Credentials, Passwords, parse_credentials


pytestmark = pytest.mark.slow


def _hash(password, cost=4):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


USERS = {"prometheus": _hash("right"), "other": _hash("else", 5)}
FILE = "basic_auth_users:\n" + "".join(f"  {name}: {known}\n" for name, known in USERS.items())


def _basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def checks(monkeypatch):
    """The hash of every check that bcrypt was asked to make."""
    asked = []
    real = bcrypt.checkpw

    def check(password, known):
        asked.append(known.decode())
        return real(password, known)

    monkeypatch.setattr(bcrypt, "checkpw", check)
    return asked


@pytest.fixture
def guarded(web_of, client_of):
    """A client of a server that wants a password."""
    return client_of(web_of(FILE).port)


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/api/v1/snapshot", "/-/healthy", "/-/ready", "/static/none", "/none", "/favicon.ico"]
)
def test_every_page_wants_a_password(guarded, endpoints, path):
    """E7: nothing is told without a password, not even what exists."""
    reply = guarded.ask(path)

    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"] == 'Basic realm="vllm-watch", charset="UTF-8"'
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert endpoints.asked == []


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [
        ("prometheus", "right", 200),
        ("other", "else", 200),
        ("prometheus", "wrong", 401),
        ("prometheus", "", 401),
        ("prometheus", "else", 401),
        ("nobody", "right", 401),
        ("", "right", 401),
        ("prometheus", "x" * 5000, 401),
        ("prometheus", "right\0", 401),
    ],
)
def test_only_the_right_password_opens(guarded, user, password, status):
    """E7: a wrong password and an unknown user are refused, the right one is served."""
    assert guarded.ask("/metrics", Authorization=_basic(user, password)).status == status


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic !", "Basic é", "Bearer x", "Basic " + base64.b64encode(b"\xff:x").decode(), "Basic eA=="],
)
def test_other_headers_are_no_credentials(header):
    """What is no basic authentication says nothing."""
    assert parse_credentials(header) is None


def test_credentials_are_parsed():
    """The password may hold colons and any bytes."""
    assert parse_credentials("basic " + base64.b64encode(b"a:b:\xff").decode()) == Credentials("a", b"b:\xff")


def test_success_is_remembered(guarded, checks):
    """The next scrape does not pay for bcrypt again; a failure is checked each time."""
    for _ in range(3):
        assert guarded.ask("/metrics", Authorization=_basic("other", "else")).status == 200
    assert len(checks) == 1
    for _ in range(2):
        assert guarded.ask("/metrics", Authorization=_basic("other", "wrong")).status == 401
    assert len(checks) == 3


def test_kept_connection_is_asked_each_time(guarded):
    """E7: on a connection that was admitted once, a wrong password and none are refused, the right one is served."""
    connection = http.client.HTTPConnection(guarded.host, guarded.port, timeout=SECONDS)
    statuses = []
    with contextlib.closing(connection):
        for password in ("right", "wrong", "right", None):
            headers = {"Authorization": _basic("prometheus", password)} if password else {}
            connection.request("GET", "/metrics", headers=headers)
            response = connection.getresponse()
            response.read()
            statuses.append((response.status, connection.sock is not None))

    assert statuses == [(200, True), (401, True), (200, True), (401, True)]


def test_memory_is_of_user_hash_and_password():
    """E7: nothing that fitted opens for another user, another hash or another split of the same text."""
    guard, right = Passwords(), Credentials("prometheus", b"right")
    moved = {"prometheu": "s" + USERS["prometheus"]}

    assert guard.check(USERS, right)
    assert guard.is_remembered(USERS, right)
    assert not guard.is_remembered(USERS, Credentials("other", b"right"))
    assert not guard.is_remembered(USERS, Credentials("nobody", b"right"))
    assert not guard.is_remembered({"prometheus": _hash("new")}, right)
    assert not guard.is_remembered(moved, Credentials("prometheu", b"right"))


@pytest.fixture
def stuck(monkeypatch):
    """Let wrong passwords take until the test lets go of them."""
    may_go_on = threading.Event()
    real = bcrypt.checkpw

    def check(password, known):
        if password == b"slow":
            may_go_on.wait(SECONDS)
        return real(password, known)

    monkeypatch.setattr(bcrypt, "checkpw", check)
    yield may_go_on
    may_go_on.set()


def _ask_slowly(stack, client, count):
    for _ in range(count):
        connection = stack.enter_context(client.connect())
        header = _basic("prometheus", "slow").encode()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + header + b"\r\n\r\n")


def test_too_many_guesses_are_turned_away(monkeypatch, guarded, stuck):
    """E5: a limited number of passwords waits for its check, also if clients have gone; one more is answered 503."""
    monkeypatch.setattr(auth, "MAX_PENDING", 3)
    waiting = []
    threads_submit = auth.ThreadPoolExecutor.submit
    monkeypatch.setattr(
        auth.ThreadPoolExecutor,
        "submit",
        lambda *arguments: (waiting.append(arguments), threads_submit(*arguments))[1],
    )
    with contextlib.ExitStack() as stack:
        _ask_slowly(stack, guarded, 3)
        until(lambda: len(waiting) == 3)
    until(lambda: guarded.ask("/metrics", Authorization=_basic("prometheus", "right")).status == 503)
    stuck.set()

    until(lambda: guarded.ask("/metrics", Authorization=_basic("prometheus", "right")).status == 200)
