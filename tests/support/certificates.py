# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers on loopback."""

from __future__ import annotations

import ssl
import subprocess

from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import SECONDS


class Certificate(NamedTuple):
    """A certificate for 127.0.0.1 that is its own authority."""

    cert_file: str
    key_file: str

    def server_context(self) -> ssl.SSLContext:
        """Return what a server with this certificate speaks."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


def self_signed(stem: Path) -> Certificate:
    """Make a certificate and its key in files whose names begin so."""
    certificate = Certificate(f"{stem}.crt", f"{stem}.key")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    extensions = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=digitalSignature,keyCertSign")
    files = ("-out", certificate.cert_file, "-keyout", certificate.key_file)
    subprocess.run([*command.split(), *extensions, *files], check=True, capture_output=True, timeout=SECONDS)
    return certificate
