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
from typing import Annotated, NamedTuple

from vllm_watch.daemon.config.keys import (
    Section,
    read_each,
    read_path,
    read_section,
    section_key,
    words_key,
)
from vllm_watch.daemon.config.texts import quote
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
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_MIN_COST = 4


class Stamp(NamedTuple):
    """A file's identity, size and time: they change when the file does."""

    device: int
    inode: int
    size: int
    modified: int


Stamps = Mapping[str, Stamp | None]


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
    return file


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


class WebTls(Section, frozen=True):
    """The section ``tls_server_config``."""

    cert_file: Annotated[str, _read_file]
    key_file: Annotated[str, _read_file]
    client_auth_type: Annotated[str, words_key(*_CLIENT_AUTH)] = _NO_CLIENT_CERT
    client_ca_file: Annotated[str | None, _read_file] = None
    min_version: Annotated[str, words_key(*_VERSIONS)] = "TLS12"
    max_version: Annotated[str, words_key(*_VERSIONS)] = "TLS13"

    def checked(self, node: ConfigNode) -> WebTls:
        """Return the section if its authorities and versions fit together."""
        asks = self.client_auth_type != _NO_CLIENT_CERT
        if asks and self.client_ca_file is None:
            raise node.error(f"{self.client_auth_type} needs client_ca_file")
        if not asks and self.client_ca_file is not None:
            raise node.error("client_ca_file needs a client_auth_type that verifies certificates")
        if _VERSIONS[self.min_version] > _VERSIONS[self.max_version]:
            raise node.error(f"min_version {self.min_version} is later than max_version {self.max_version}")
        return self

    @property
    def files(self) -> Iterable[str]:
        """All files that TLS needs."""
        return filter(None, (self.cert_file, self.key_file, self.client_ca_file))


class HttpServer(Section, frozen=True):
    """The section ``http_server_config``."""

    headers: Annotated[Mapping[str, str], _read_headers] = MappingProxyType({})


class WebSections(Section, frozen=True):
    """The file."""

    tls_server_config: Annotated[WebTls | None, section_key(WebTls)] = None
    http_server_config: Annotated[HttpServer, section_key(HttpServer)] = HttpServer()
    basic_auth_users: Annotated[Mapping[str, str], _read_users] = MappingProxyType({})


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
    sections = read_section(node, WebSections)
    tls = sections.tls_server_config
    context = None
    if tls is not None:
        stamps.update((each, stamp_of(each)) for each in tls.files)
        context = _make_context(node.mapping()["tls_server_config"], tls)
    return WebConfig(context, sections.basic_auth_users, sections.http_server_config.headers, stamps)


def stamp_of(file: str) -> Stamp | None:
    """Return a file's stamp, or `None` if there is none to read."""
    try:
        status = os.stat(file)  # noqa: PTH116 - A name from a mapping's keys; no path is made of it.
    except OSError:
        return None
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _make_context(node: ConfigNode, tls: WebTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (OSError, ValueError):
        raise node.error(
            "cert_file and key_file must be a certificate and its own private key, unencrypted, in PEM format"
        ) from None
    try:
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
    except (OSError, ValueError):
        raise node.error("client_ca_file must hold certificates in PEM format") from None
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
    return context
