# SPDX-License-Identifier: Apache-2.0
"""
Texts of the sources that are not wholly known.

A field that the program fills in is kept between two marks, with its expression and its format. Values that are no
text at all are kept as the expression that makes them.
"""

from __future__ import annotations

import re

from typing import NamedTuple


_OPEN, _MIDDLE, _CLOSE = "\ue000", "\ue001", "\ue002"
_FIELD = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_MIDDLE}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}:!]*)(?:![rsa])?(?::([^{}]*))?\}")


class Expression(str):
    """The text of an expression whose value the sources do not say."""

    __slots__ = ()


class Parts(NamedTuple):
    """
    A text that is joined from parts, some of which are only sometimes there.

    Args:
        texts: The parts.
        optional: For each part whether it may be missing.
        separator: What stands between them.
        before: What stands before them.
    """

    texts: tuple[str, ...]
    optional: tuple[bool, ...]
    separator: str
    before: str = ""


def field(expression: str, spec: str) -> str:
    """Return a field of a text."""
    clean = re.sub(f"[{_OPEN}{_MIDDLE}{_CLOSE}]", "", expression)
    return f"{_OPEN}{clean}{_MIDDLE}{spec}{_CLOSE}"


def has_fields(text: str) -> bool:
    """Tell whether something is filled into a text."""
    return _OPEN in text


def named(text: str) -> str:
    """Return a text whose fields show what they are made from: ``vllm:{name}``."""
    return _FIELD.sub(lambda found: f"{{{found[1]}}}", text)


def unnamed(text: str) -> str:
    """Return a text whose fields show their format alone: a variable with another name is no change."""
    return _FIELD.sub(lambda found: f"{{:{found[2]}}}" if found[2] else "{}", text)


def of_format(text: str) -> str:
    """Return the text of a string on which ``format`` is called."""

    def replaced(found: re.Match[str]) -> str:
        if found[0] in {"{{", "}}"}:
            return found[0][0]
        return field(found[1] or "", found[2] or "")

    return _BRACES.sub(replaced, text)
