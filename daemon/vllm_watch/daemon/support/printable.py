# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made safe for a terminal: it cannot move the cursor, hide anything or reverse its direction."""

from __future__ import annotations

import re


_ASCII = re.compile(r"[ -~]*\Z")
_NOT_JSON_ASCII = re.compile(r"[^ -~\n]")


def printable(text: str, *, keep: str = "") -> str:
    r"""
    Return a text with everything escaped that a terminal would act on or not show: ``\x1b``, ``\u202e``.

    Args:
        text: Any text, also with lone surrogates.
        keep: Characters to leave as they are, such as line feeds.
    """
    if _ASCII.match(text):
        return text
    return "".join([char if char.isprintable() or char in keep else _escaped(char) for char in text])


def ascii_json(document: bytes) -> bytes:
    """Return a JSON document with the same meaning, in which DEL and everything outside ASCII is escaped."""
    return _NOT_JSON_ASCII.sub(lambda found: _json_escaped(found[0]), document.decode()).encode("ascii")


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _json_escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
