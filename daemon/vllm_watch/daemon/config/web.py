# SPDX-License-Identifier: Apache-2.0
"""
The web configuration file: TLS, client certificates, users and headers, in the format of Prometheus' exporter-toolkit.

Settings of that format that Python's TLS cannot honour are rejected, never ignored. No message repeats a hash.
"""

from __future__ import annotations

import os
import re
import ssl
import stat

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import structlog

from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.section import Key, Section, read_each, read_path, read_section, unsupported
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml


HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
"""Headers that a file may set: they only restrict what a browser does."""
MAX_COST = 14
"""The highest cost of a hash: checking a password takes about a second, and twice as long with each step more."""

_NO_CLIENT_CERT = "NoClientCert"
_CLIENT_AUTH = {
    _NO_CLIENT_CERT: ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED_CLIENT_AUTH = frozenset({"RequestClientCert", "RequireAnyClientCert"})
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_MIN_COST = 4

log = structlog.get_logger("vllm_watch.web")


class Stamp(NamedTuple):
    """A file's identity, size and time: they change when the file does."""

    device: int
    inode: int
    size: int
    modified: int


Stamps = Mapping[str, Stamp | None]


class WebTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section ``tls_server_config``."""

    cert_file: str
    key_file: str
    client_auth_type: str = _NO_CLIENT_CERT
    client_ca_file: str | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"

    @property
    def files(self) -> Iterable[str]:
        """All files that TLS needs."""
        return filter(None, (self.cert_file, self.key_file, self.client_ca_file))


class HttpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section ``http_server_config``."""

    headers: Mapping[str, str] = MappingProxyType({})
    http2: bool = False


class _Sections(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file."""

    tls_server_config: WebTls | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: Mapping[str, str] = MappingProxyType({})


class WebConfig(NamedTuple):
    """How to serve. `users` maps names to bcrypt hashes; `stamps` has each file that was read, from before that."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    stamps: Stamps = MappingProxyType({})

    @property
    def asks_who(self) -> bool:
        """Whether every client must show a password or a certificate."""
        return bool(self.users) or (self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED)


def load_web_config(file: str) -> WebConfig:
    """Read and check a file and the certificates it names; `ConfigError` if anything in them is wrong."""
    stamps = {file: stamp_of(file)}
    node = read_yaml(file)
    sections = read_section(node, _Sections, _SECTIONS)
    tls = sections.tls_server_config
    context = None
    if tls is not None:
        stamps.update((each, stamp_of(each)) for each in tls.files)
        context = _make_context(node.mapping()["tls_server_config"], tls)
        _warn_of_open_key(tls.key_file)
    return WebConfig(context, sections.basic_auth_users, sections.http_server_config.headers, stamps)


def stamp_of(file: str) -> Stamp | None:
    """Return a file's stamp, or `None` if there is none to read."""
    try:
        status = os.stat(file)  # noqa: PTH116 - A name from a mapping's keys; no path is made of it.
    except OSError:
        return None
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _make_context(node: ConfigNode, tls: WebTls) -> ssl.SSLContext:
    """Return the TLS context of a section; an error names the section."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, node, tls)
    if tls.client_ca_file is not None:
        _load_client_ca(context, node, tls.client_ca_file)
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
    return context


def _load_certificate(context: ssl.SSLContext, node: ConfigNode, tls: WebTls) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (OSError, ValueError):
        raise node.error(
            "cert_file and key_file must be a certificate and its own private key, unencrypted, in PEM format"
        ) from None


def _load_client_ca(context: ssl.SSLContext, node: ConfigNode, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError):
        raise node.error("client_ca_file must hold certificates in PEM format") from None


def _warn_of_open_key(file: str) -> None:
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116 - As in `stamp_of`.
    except OSError:
        return
    if mode & stat.S_IROTH:
        log.warning("web_config.private_key_readable", file=file)


# Readers of single values. Each raises a ConfigError.


def _read_file(node: ConfigNode) -> str:
    """Read the path of a regular file that can be read: opening a pipe would block."""
    file = read_path(node)
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - As in `stamp_of`.
            raise node.error("expected a regular file")
        with open(file, "rb") as stream:  # noqa: PTH123 - As in `stamp_of`.
            stream.read(1)
    except OSError as error:
        raise node.error(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise node.error("no file can have this name") from None
    return file


def _read_version(node: ConfigNode) -> str:
    version = node.text()
    if version not in _VERSIONS:
        raise node.error(f"expected {' or '.join(_VERSIONS)}, got {quote(version)}")
    return version


def _read_client_auth(node: ConfigNode) -> str:
    kind = node.text()
    if kind in _UNVERIFIED_CLIENT_AUTH:
        raise node.error(f"{kind} would accept certificates from anyone and is not supported")
    if kind not in _CLIENT_AUTH:
        raise node.error(f"expected one of {', '.join(_CLIENT_AUTH)}, got {quote(kind)}")
    return kind


def _read_tls(node: ConfigNode) -> WebTls:
    """Read the section ``tls_server_config``, whose keys depend on each other."""
    tls = read_section(node, WebTls, _TLS)
    asks = tls.client_auth_type != _NO_CLIENT_CERT
    if asks and tls.client_ca_file is None:
        raise node.error(f"{tls.client_auth_type} needs client_ca_file")
    if not asks and tls.client_ca_file is not None:
        raise node.error("client_ca_file needs a client_auth_type that verifies certificates")
    if _VERSIONS[tls.min_version] > _VERSIONS[tls.max_version]:
        raise node.error(f"min_version {tls.min_version} is later than max_version {tls.max_version}")
    return tls


def _read_users(node: ConfigNode) -> Mapping[str, str]:
    def read(item: tuple[str, ConfigNode]) -> tuple[str, str]:
        name, value = item
        if not name or not name.isprintable() or ":" in name:
            raise node.error(f"{quote(name)} is not a user name: it must be printable, without a colon", value.line)
        return name, _read_hash(value)

    return dict(read_each(node.mapping().items(), read))


def _read_hash(node: ConfigNode) -> str:
    found = _HASH.fullmatch(node.written())
    if found is None:
        raise node.error("expected a bcrypt hash, such as htpasswd -nB prints behind the colon")
    if not _MIN_COST <= int(found[1]) <= MAX_COST:
        raise node.error(f"expected a bcrypt hash with a cost from {_MIN_COST} to {MAX_COST}, got {int(found[1])}")
    return found[0]


def _read_headers(node: ConfigNode) -> Mapping[str, str]:
    def read(item: tuple[str, ConfigNode]) -> tuple[str, str]:
        name, value = item
        if name not in HEADERS:
            raise node.error(f"{quote(name)} is not a supported header; those are {', '.join(HEADERS)}", value.line)
        return name, _read_header(value)

    return dict(read_each(node.mapping().items(), read))


def _read_header(node: ConfigNode) -> str:
    text = node.text().strip()
    if not text or not text.isascii():
        raise node.error("expected one line of ASCII characters")
    return text


def _read_http2(node: ConfigNode) -> bool:
    if node.written() != "false":
        raise node.error("HTTP/2 is not supported; leave it out or say false")
    return False


def _read_http_server(node: ConfigNode) -> HttpServer:
    return read_section(node, HttpServer, _HTTP_SERVER)


def _file(meaning: str, example: str) -> Key:
    return Key(_read_file, "path of a file", meaning, example)


def _version(meaning: str, example: str) -> Key:
    return Key(_read_version, _any_of(_VERSIONS), meaning, example)


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


_INLINE = unsupported("a certificate or key inside the file")
_TLS = {
    "cert_file": _file("The certificate to present, in PEM format.", "/etc/vllm-watch/tls.crt"),
    "key_file": _file("Its private key, in PEM format, unencrypted.", "/etc/vllm-watch/tls.key"),
    "client_auth_type": Key(
        _read_client_auth,
        _any_of(_CLIENT_AUTH),
        "Whether clients need a certificate. All but the default need `client_ca_file`.",
        "RequireAndVerifyClientCert",
    ),
    "client_ca_file": _file("Authorities that sign client certificates, in PEM format.", "/etc/vllm-watch/clients.pem"),
    "min_version": _version("The oldest TLS version.", "TLS13"),
    "max_version": _version("The newest TLS version.", "TLS13"),
    "cert": _INLINE,
    "key": _INLINE,
    "client_ca": _INLINE,
    "client_allowed_sans": unsupported("a list of client names"),
    "cipher_suites": unsupported("a choice of cipher suites"),
    "curve_preferences": unsupported("a choice of curves"),
    "prefer_server_cipher_suites": unsupported("a choice of cipher suites"),
}
_HTTP_SERVER = {
    "headers": Key(
        _read_headers,
        "mapping of header names to texts",
        f"Headers added to every answer: {', '.join(f'`{name}`' for name in HEADERS)}.",
        "{X-Frame-Options: deny}",
    ),
    "http2": Key(_read_http2, "`false`", "HTTP/2 is not supported; other values are rejected.", "false"),
}
_SECTIONS = {
    "tls_server_config": Key(
        _read_tls,
        "mapping",
        "Serve TLS. Without it the daemon serves plain HTTP.",
        "{cert_file: /etc/vllm-watch/tls.crt, key_file: /etc/vllm-watch/tls.key}",
        Section(WebTls, _TLS),
    ),
    "http_server_config": Key(
        _read_http_server,
        "mapping",
        "Headers of answers.",
        "{headers: {X-Frame-Options: deny}}",
        Section(HttpServer, _HTTP_SERVER),
    ),
    "basic_auth_users": Key(
        _read_users,
        "mapping of user names to bcrypt hashes",
        "With users every address asks for a password, `/-/healthy` too. `htpasswd -nB NAME` makes a hash, and so "
        "does the Python that vllm-watch runs with: `python -c 'import bcrypt, getpass; "
        "print(bcrypt.hashpw(getpass.getpass().encode(), bcrypt.gensalt(10)).decode())'`; its cost is "
        f"from {_MIN_COST} to {MAX_COST}.",
        "{prometheus: $2b$10$yBbqB4BTkTgLjObWpDOGQ.xJYdPIqU10OJr/uCvQclZYx4k.AngTK}",
    ),
    "rate_limit": unsupported("a rate limit"),
}
WEB_CONFIGURATION = Section(_Sections, _SECTIONS)
"""All keys of the web configuration file."""
