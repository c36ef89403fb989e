# SPDX-License-Identifier: Apache-2.0
"""TLS, client certificates, and files that change under a running server."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl

import bcrypt
import pytest
import structlog

from tests.support.waiting import SECONDS, HandClock, until

from vllm_watch.daemon.support.errors import ConfigError
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.web import config_reload
from vllm_watch.daemon.web import server as server_module
from vllm_watch.daemon.web.config_reload import CurrentWebConfig
from vllm_watch.daemon.web.server import WebServer


pytestmark = pytest.mark.slow


@pytest.fixture
def tls(server_certificate):
    """The text that makes a server serve TLS."""
    return f"tls_server_config:\n  cert_file: {server_certificate.cert}\n  key_file: {server_certificate.key}\n"


@pytest.fixture
def mutual(tls, authority):
    """The text that makes a server want certificates too."""
    return f"{tls}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.own.cert}\n"


@pytest.fixture
def secure(web_of, client_of, tls, authority, trusting_context):
    """A client that trusts the server it talks to."""
    return client_of(web_of(tls).port, context=trusting_context(authority))


def _replace(path, content):
    """Put a new file in a file's place, as careful tools do."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def test_server_that_is_not_trusted_is_refused(web_of, client_of, tls, authority, stranger, trusting_context):
    """E7: a client says no to a server of another authority, and to a certificate that has expired."""
    with pytest.raises(ssl.SSLCertVerificationError):
        client_of(web_of(tls).port, context=trusting_context(stranger)).ask("/metrics")

    old = authority.issue("old-server", days=-1)
    server = web_of(f"tls_server_config: {{cert_file: {old.cert}, key_file: {old.key}}}")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        client_of(server.port, context=trusting_context(authority)).ask("/metrics")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_is_refused(secure):
    """E7: a client that knows nothing later than TLS 1.1 is refused by the server."""
    secure.context.minimum_version = ssl.TLSVersion.TLSv1
    secure.context.maximum_version = ssl.TLSVersion.TLSv1_1
    secure.context.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        secure.ask("/metrics")


def test_plain_http_is_refused(secure, client_of, caplog):
    """E7: a client without TLS gets nothing, and the next one with it is served."""
    with client_of(secure.port).connect() as plain, contextlib.suppress(ConnectionError):
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)

    assert secure.ask("/metrics").status == 200
    assert [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []


def test_known_client_is_served(web_of, client_of, mutual, authority, trusting_context):
    """E7: a client with a certificate of the right authority gets its page."""
    own = authority.issue("client")
    client = client_of(web_of(mutual).port, context=trusting_context(authority, own))

    assert client.ask("/metrics").status == 200


@pytest.mark.parametrize("kind", ["none", "stranger", "expired"])
def test_unknown_client_is_refused(web_of, client_of, endpoints, mutual, authority, stranger, trusting_context, kind):
    """E7: no certificate, one of a stranger and an expired one open nothing."""
    own = {"none": None, "stranger": stranger.issue("client"), "expired": authority.issue("old", days=-1)}[kind]
    client = client_of(web_of(mutual).port, context=trusting_context(authority, own))

    with pytest.raises((ssl.SSLError, ConnectionError)):
        client.ask("/metrics")
    assert endpoints.asked == []


def test_given_certificate_is_verified(web_of, client_of, mutual, authority, stranger, trusting_context):
    """E7: where a certificate may be given, none is fine and one of a stranger is not."""
    port = web_of(mutual.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")).port

    assert client_of(port, context=trusting_context(authority)).ask("/metrics").status == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        client_of(port, context=trusting_context(authority, stranger.issue("guest"))).ask("/metrics")


def test_slow_handshake_ends_at_the_deadline(monkeypatch, request):
    """E5: a handshake that does not go on is ended when the time for the headers is over."""
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.1)
    secure = request.getfixturevalue("secure")
    with secure.connect() as connection:
        connection.sendall(b"\x16\x03\x01")

        assert connection.recv(1) == b""


def test_configured_headers_are_sent(web_of, client_of):
    """A header of the file is sent with every answer, in place of the usual one."""
    port = web_of("http_server_config: {headers: {X-Frame-Options: deny, Content-Security-Policy: a}}").port

    for path in ("/metrics", "/none"):
        reply = client_of(port).ask(path)
        assert reply.headers.get_all("Content-Security-Policy") == ["a"]
        assert reply.headers["X-Frame-Options"] == "deny"


class TestStart:
    """What is said and refused at the start."""

    def test_wrong_file(self, endpoints, tmp_path):
        """A wrong file ends the start before anything listens."""
        file = tmp_path / "web.yml"
        file.write_text("users: {}")
        server = WebServer("127.0.0.1", 0, endpoints, web_config_file=str(file))

        with pytest.raises(ConfigError, match=r'web\.yml:1: unknown key "users"'):
            server.start()
        assert server.port == 0
        server.stop()

    def test_open_address(self, monkeypatch, endpoints):
        """E6: an address that others can reach is warned about, once."""
        monkeypatch.setattr(server_module, "is_loopback", lambda _: False)
        server = WebServer("127.0.0.1", 0, endpoints)
        with structlog.testing.capture_logs() as logs:
            server.start()
        server.stop()

        assert [(entry["event"], entry["log_level"]) for entry in logs] == [("web.open_to_network", "warning")]

    def test_protected_address(self, monkeypatch, web_of, mutual, tls):
        """E6: TLS with client certificates or passwords is enough; TLS alone is not."""
        monkeypatch.setattr(server_module, "is_loopback", lambda _: False)
        users = f"basic_auth_users: {{a: $2y$10${'a' * 53}}}\n"
        with structlog.testing.capture_logs() as logs:
            for text in (mutual, tls + users):
                web_of(text)
            assert logs == []
            for text in (tls, users):
                web_of(text)

        assert [(entry["tls"], entry["authentication"]) for entry in logs] == [(True, False), (False, True)]


class TestChange:
    """Files that change while they are in use."""

    def test_new_certificate(self, monkeypatch, secure, authority, server_certificate, tmp_path, web_of):
        """E7: a renewed certificate is shown to the next client, without a restart."""
        monkeypatch.setattr(config_reload, "POLL_SECONDS", 0.05)
        cert, key = tmp_path / "own.pem", tmp_path / "own.key"
        cert.write_bytes(server_certificate.cert.read_bytes())
        key.write_bytes(server_certificate.key.read_bytes())
        key.chmod(0o600)
        port = web_of("tls_server_config: {cert_file: own.pem, key_file: own.key}").port

        def shown():
            raw = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
            with secure.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
                return connection.getpeercert()["subject"][0][0][1]

        assert shown() == "server"
        renewed = authority.issue("renewed")
        _replace(cert, renewed.cert.read_bytes())
        assert shown() == "server"  # The key does not fit yet.
        _replace(key, renewed.key.read_bytes())

        until(lambda: shown() == "renewed")

    def test_new_password(self, monkeypatch, tmp_path, web_of, client_of):
        """E7: a user who is taken out of the file is refused, however often the password fitted before."""
        monkeypatch.setattr(config_reload, "POLL_SECONDS", 0.05)
        known = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
        client = client_of(web_of(f"basic_auth_users: {{a: {known}}}").port)
        assert client.ask("/metrics", Authorization="Basic YTp4").status == 200
        _replace(tmp_path / "web.yml", f"basic_auth_users: {{b: {known}}}".encode())

        until(lambda: client.ask("/metrics", Authorization="Basic YTp4").status == 401)

    @pytest.fixture
    def file(self, tmp_path):
        """A file that is fine."""
        path = tmp_path / "web.yml"
        path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
        return path

    @pytest.fixture
    def clock(self):
        """The time, to be moved by the test."""
        return HandClock()

    @pytest.fixture
    def errors(self):
        """The failures of the daemon itself."""
        return InternalErrors()

    @pytest.fixture
    def config(self, file, errors, clock):
        """What is made of it."""
        config = CurrentWebConfig(str(file), errors, clock)
        config.load()
        return config

    def test_wrong_file_keeps_the_old_one(self, config, errors, file, clock):
        """E7: a wrong file changes nothing, is said and counted once, and is no internal error; the next one counts."""
        old = config.get()
        file.write_text("nonsense: 1")
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                clock.time += 1
                assert config.get() is old
        assert [entry["event"] for entry in logs] == ["web_config.rejected"]
        assert "web.yml:1: unknown key" in logs[0]["reason"]
        assert (config.is_good, config.failures) == (False, 1)

        file.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}")
        clock.time += 1
        assert config.get().headers == {"X-Frame-Options": "sameorigin"}
        assert (config.is_good, config.failures) == (True, 1)
        assert errors.counts()["web_config"] == 0

    def test_reload_waits_for_no_check(self, config, file):
        """SIGHUP reads the file at once, and says each time that it is wrong."""
        file.write_text("nonsense: 1")
        with structlog.testing.capture_logs() as logs:
            config.reload()
            config.reload()
        assert [entry["event"] for entry in logs] == ["web_config.rejected"] * 2
        assert (config.is_good, config.failures) == (False, 2)

        file.write_text("{}")
        config.reload()
        assert config.is_good
        assert config.get().headers == {}
