# SPDX-License-Identifier: Apache-2.0
"""
Tokens, API keys and headers in files: read in one place, so that none ends up in a header that it breaks.

They may be secrets, so that no message repeats them.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from pathlib import Path


MAX_TOKEN = 64 * 1024
"""Bytes of a file with a token."""

MAX_HEADERS = 64 * 1024
"""Bytes of a file with headers."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "upgrade"}
)
"""Headers that belong to how a request is sent."""


def read_token(path: str) -> str | None:
    """Return a file's token, or `None` if the file cannot be read or has none that a header can carry."""
    try:
        with Path(path).open("rb") as file:
            return parse_token(file.read(MAX_TOKEN))
    except OSError:
        return None


def parse_token(data: bytes) -> str | None:
    """Return the token that a file's bytes hold, or `None` if they hold none that a header can carry."""
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError:
        return None
    return token if token and token.isprintable() else None


def read_headers(path: str) -> Mapping[str, str] | None:
    """Return a file's headers, or `None` if it cannot be read, has none, or has a line that is no header to send."""
    try:
        with Path(path).open("rb") as file:
            return parse_headers(file.read(MAX_HEADERS + 1))
    except OSError:
        return None


def parse_headers(data: bytes) -> Mapping[str, str] | None:
    """Return the headers of a file: ``Name: value`` on each line, besides empty lines and comments."""
    if len(data) > MAX_HEADERS or not data.isascii():
        return None
    headers: dict[str, str] = {}
    for line in data.decode("ascii").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        value = value.strip()
        if not colon or not value.isprintable() or not value or not _NAME.fullmatch(name) or name.lower() in _OURS:
            return None
        headers[name] = value
    return headers or None
