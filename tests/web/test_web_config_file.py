# SPDX-License-Identifier: Apache-2.0
"""The web configuration file: what it means, and the sentence for each mistake."""

from __future__ import annotations

import os
import ssl

import msgspec
import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.reference import OF_THE_WEB, rows

from vllm_watch.daemon.config.keys import keys_of
from vllm_watch.daemon.config.web import load_web_config
from vllm_watch.daemon.config.yaml_node import read_yaml
from vllm_watch.daemon.support.errors import ConfigError


HASH = "$2y$10$" + "a" * 53
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
PAIR = "cert_file and key_file must be a certificate and its own private key, unencrypted, in PEM format"


@pytest.fixture
def folder(tmp_path, authority, server_certificate):
    """A folder with certificates and keys, under their own names and those of the reference."""
    of_server, of_authority = server_certificate, authority.own
    for source, names in (
        (of_server.cert, ("server.pem", "tls.crt")),
        (of_server.key, ("server.key", "tls.key")),
        (of_authority.cert, ("ca.pem", "clients.pem")),
        (of_authority.key, ("ca.key",)),
    ):
        for name in names:
            (tmp_path / name).write_bytes(source.read_bytes())
            (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def load(folder):
    """Load a file with this text; certificates lie beside it."""

    def load_text(text):
        file = folder / "web.yml"
        file.write_text(text)
        return load_web_config(str(file))

    return load_text


def test_each_example_of_the_reference_is_accepted(folder):
    """The example of each key of the web configuration is a value that the key accepts."""
    for row in rows():
        if row.section in OF_THE_WEB:
            (folder / "web.yml").write_text(f"key: {row.example.replace('/etc/vllm-watch', str(folder))}\n")
            keys_of(row.section)[row.key](read_yaml(str(folder / "web.yml")).mapping()["key"])


def test_tls_has_safe_defaults(load):
    """Certificate and key are enough: TLS 1.2 or later, and no certificate asked of clients."""
    config = load(TLS)

    assert config.tls.minimum_version is ssl.TLSVersion.TLSv1_2
    assert config.tls.verify_mode is ssl.CERT_NONE
    assert not config.asks_who
    assert dict(config.users) == {}


@pytest.mark.parametrize(
    ("kind", "mode", "asks_who"),
    [("VerifyClientCertIfGiven", ssl.CERT_OPTIONAL, False), ("RequireAndVerifyClientCert", ssl.CERT_REQUIRED, True)],
)
def test_client_certificates(load, kind, mode, asks_who):
    """What Python's TLS can do is done."""
    config = load(f"{TLS}  client_auth_type: {kind}\n  client_ca_file: ca.pem\n")

    assert config.tls.verify_mode is mode
    assert config.asks_who is asks_who


def test_versions(load):
    """The lowest and the highest version can be said."""
    config = load(f"{TLS}  min_version: TLS13\n  max_version: TLS13\n")

    assert config.tls.minimum_version is config.tls.maximum_version is ssl.TLSVersion.TLSv1_3


def test_users_and_headers(load):
    """Users and headers need no TLS."""
    config = load(
        f"basic_auth_users: {{prometheus: {HASH}, 7: {HASH}}}\n"
        "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    )

    assert config.tls is None
    assert config.users == {"prometheus": HASH, "7": HASH}
    assert config.headers == {"X-Frame-Options": "deny"}
    assert config.asks_who


def test_stamps_are_of_all_files(load, tmp_path):
    """A change of any file that was read can be noticed."""
    config = load(f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n")

    assert set(config.stamps) == {str(tmp_path / name) for name in ("web.yml", "server.pem", "server.key", "ca.pem")}
    assert None not in config.stamps.values()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": the file is empty"),
        ("tls_config: {}", ':1: unknown key "tls_config"; did you mean "tls_server_config"?'),
        ("tls_server_config: {cert_file: server.pem}", ':1: tls_server_config: missing key "key_file"'),
        (
            "tls_server_config:\n  cert_file: none.pem\n  key_file: x",
            ":2: tls_server_config.cert_file: cannot be read: no such file",
        ),
        ("tls_server_config: {cert_file: server.pem, key_file: ca.key}", f":1: tls_server_config: {PAIR}"),
        (f"{TLS}  cipher_suites: []", ':4: tls_server_config: unknown key "cipher_suites"; known are cert_file, '),
        (f"{TLS}  client_auth_type: RequireAnyClientCert", ":4: tls_server_config.client_auth_type: expected NoClient"),
        (f"{TLS}  min_version: TLS11", ':4: tls_server_config.min_version: expected TLS12 or TLS13, got "TLS11"'),
        (
            f"{TLS}  min_version: TLS13\n  max_version: TLS12",
            ":1: tls_server_config: min_version TLS13 is later than max_version TLS12",
        ),
        (
            f"{TLS}  client_auth_type: RequireAndVerifyClientCert",
            ":1: tls_server_config: RequireAndVerifyClientCert needs client_ca_file",
        ),
        (f"{TLS}  client_ca_file: ca.pem", ":1: tls_server_config: client_ca_file needs a client_auth_type that"),
        (
            f"{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.key",
            ":1: tls_server_config: client_ca_file must hold certificates in PEM format",
        ),
        ("basic_auth_users: {a: hunter2}", ":1: basic_auth_users.a: expected a bcrypt hash, such as htpasswd -nB"),
        (
            f"basic_auth_users: {{a: {HASH.replace('10', '15')}}}",
            ":1: basic_auth_users.a: expected a bcrypt hash with a cost from 4 to 14, got 15",
        ),
        (f"basic_auth_users: {HASH}", ':1: basic_auth_users: expected a mapping, got "$…"'),
        (f"basic_auth_users: {{{HASH}: a}}", ":1: basic_auth_users.$…: expected a bcrypt hash"),
        pytest.param(f"{HASH}: a", ':1: unknown key "$…"', id="hash as a key"),
        ("basic_auth_users: {hunter2@example: x}", ":1: basic_auth_users.…@example: expected a bcrypt hash"),
        (f'basic_auth_users: {{"a:b": {HASH}}}', ':1: basic_auth_users: "a:b" is not a user name'),
        ("http_server_config: {http2: true}", ':1: http_server_config: unknown key "http2"; known are headers'),
        (
            "http_server_config: {headers: {Location: x}}",
            ':1: http_server_config.headers: "Location" is not a supported header',
        ),
        (
            'http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}',
            ":1: http_server_config.headers.X-Frame-Options: expected text without control characters",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: é}}",
            ":1: http_server_config.headers.X-Frame-Options: expected one line of ASCII characters",
        ),
    ],
)
def test_mistakes(load, tmp_path, text, message):
    """The message says where and what, in one line, and repeats no secret."""
    with pytest.raises(ConfigError) as caught:
        load(text)

    assert str(caught.value).startswith(f"{tmp_path / 'web.yml'}{message}")
    assert all(each.isprintable() for each in caught.value.messages)
    assert "hunter2" not in str(caught.value)
    assert "aaaa" not in str(caught.value)


def test_pipe_is_not_opened(load, tmp_path):
    """A pipe in a certificate's place is refused instead of waited for."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match=r"cert_file: expected a regular file$"):
        load("tls_server_config: {cert_file: pipe, key_file: server.key}")


WORDS = (
    *("tls_server_config", "http_server_config", "basic_auth_users", "headers", "http2", "cert_file", "key_file"),
    *("client_auth_type", "client_ca_file", "min_version", "server.pem", "server.key", "TLS13", "NoClientCert", HASH),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.sampled_from(WORDS[:3]), VALUES))
def test_any_file_is_a_configuration_or_an_error(load, content):
    """Whatever the file holds, nothing else is raised, and each message is one line that can be printed."""
    try:
        load(msgspec.json.encode(content).decode())
    except ConfigError as error:
        messages = error.messages
        assert messages
        assert all(message.isprintable() for message in messages)


def test_encrypted_key_asks_nobody(load, tmp_path, authority):
    """A key with a password is refused instead of asking for it on a terminal."""
    load(TLS)
    authority._openssl(
        *("pkcs8", "-topk8", "-in", "server.key", "-passout", "pass:x", "-out", str(tmp_path / "server.key"))
    )

    with pytest.raises(ConfigError, match="unencrypted"):
        load_web_config(str(tmp_path / "web.yml"))
