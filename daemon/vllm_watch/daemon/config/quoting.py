# SPDX-License-Identifier: Apache-2.0
"""Values in messages: on one line, not long, and without a password or a password's hash."""

from __future__ import annotations

import re


MAX_SHOWN = 60
"""Characters of a value that a message repeats."""

_HASH = re.compile(r"\$2[a-z]?\$[0-9]{2}\$[./A-Za-z0-9]{1,53}")


def quote(text: str) -> str:
    """Return a text for a message: in quotes, on one line, not long, without a password."""
    return f'"{shorten(text)}"'


def shorten(text: str) -> str:
    """Return a text for a message, without quotes."""
    kept = without_secrets(text)
    if len(kept) > MAX_SHOWN:
        kept = kept[:MAX_SHOWN] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in kept)


def without_secrets(text: str) -> str:
    """Return a text without what is before an ``@``, which may be a password, and without a password's hash."""
    _, at, rest = text.rpartition("@")
    return _HASH.sub("$…", f"…@{rest}" if at else text)
