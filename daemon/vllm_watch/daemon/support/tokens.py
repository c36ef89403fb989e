# SPDX-License-Identifier: Apache-2.0
"""Tokens and API keys in files: read in one place, so that none ends up in a header that it breaks."""

from __future__ import annotations

from pathlib import Path


MAX_TOKEN = 64 * 1024


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
