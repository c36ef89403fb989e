# SPDX-License-Identifier: Apache-2.0
"""Lines of a report, and how they are printed."""

from __future__ import annotations

import json

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.report_formats import PlainFormat


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
