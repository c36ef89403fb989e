# SPDX-License-Identifier: Apache-2.0
"""
Untrusted text made safe for a terminal, and reports printed so.

What is printed cannot move the cursor, hide anything or reverse its direction.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import click


PlainFormat = Literal["text", "json"]
PLAIN_FORMATS: tuple[PlainFormat, ...] = get_args(PlainFormat)
"""Of what is a list of findings or of deeds: for people, and for programs."""

_ASCII = re.compile(r"[ -~]*\Z")
_NOT_JSON_ASCII = re.compile(r"[^ -~\n]")


def printable(text: str, *, keep: str = "") -> str:
    r"""
    Return a text with everything escaped that a terminal would act on or not show: ``\x1b``, ``\u202e``.

    It may have lone surrogates. Characters to `keep`, such as line feeds, are left as they are.
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


class ReportLine(NamedTuple):
    """One line; `is_wrong` marks a problem to be corrected, `facts` are what it says for programs, if it says any."""

    text: str
    is_wrong: bool = False
    facts: Mapping[str, Any] = MappingProxyType({})


def print_report(lines: Iterable[ReportLine], form: PlainFormat = "text") -> bool:
    """
    Print lines as they come, or as JSON what they say; return whether any of them is wrong.

    The JSON is one object: ``ok``, whether no line is wrong, and ``results``, the facts of the lines that have some.
    It is printed also if the lines end with an error.
    """
    return _print_lines(lines) if form == "text" else _print_json(lines)


def _print_lines(lines: Iterable[ReportLine]) -> bool:
    is_wrong = False
    for line in lines:
        click.echo(printable(line.text))
        is_wrong = is_wrong or line.is_wrong
    return is_wrong


def _print_json(lines: Iterable[ReportLine]) -> bool:
    import json  # noqa: PLC0415  # What prints text starts without it.

    results: list[Mapping[str, Any]] = []
    is_ok = False
    try:
        has_wrong = False
        for line in lines:
            has_wrong = has_wrong or line.is_wrong
            if line.facts:
                results.append(dict(line.facts))
        is_ok = not has_wrong
    finally:
        click.echo(json.dumps({"ok": is_ok, "results": results}, indent=2))
    return not is_ok
