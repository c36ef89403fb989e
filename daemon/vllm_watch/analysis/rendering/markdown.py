# SPDX-License-Identifier: Apache-2.0
"""A document as GitHub's Markdown, for a pull request: tables and sentences, no drawings."""

from __future__ import annotations

import html
import re

from collections.abc import Iterator

from vllm_watch.analysis.rendering.document import (
    Column,
    Commands,
    Document,
    Paragraph,
    Section,
    Statement,
    Table,
    Tone,
)
from vllm_watch.daemon.support.printable import printable


_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")
_MARKS: dict[Tone, str] = {
    "good": "✅",
    "warning": "⚠️",
    "note": "📝",
    "undecided": "〰️",
    "unknown": "❔",
}


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, also in a cell of a table."""
    return _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))


def render_markdown(document: Document) -> str:
    """Return a document as Markdown; folded sections are ``<details>``."""
    lines = [f"## {escaped(document.title)}", "", escaped(document.lead)]
    for section in document.sections:
        lines += _section(section, "###")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _section(section: Section, level: str) -> Iterator[str]:
    title = escaped(section.title)
    yield from ["", f"<details><summary>{title}</summary>" if section.is_folded else f"{level} {title}", ""]
    for block in section.blocks:
        if isinstance(block, Statement):
            yield f"- {_MARKS[block.tone]} {escaped(block.text)}"
        elif isinstance(block, Paragraph):
            yield from ["", escaped(block.text), ""]
        elif isinstance(block, Commands):
            yield from ["", *(f"    {printable(line)}" for line in block.lines), ""]
        elif isinstance(block, Table) and not block.is_empty:
            yield from table_lines(block)
    for inner in section.sections:
        yield from _section(inner, f"{level}#")
    if section.is_folded:
        yield from ["", "</details>", ""]


def table_lines(table: Table) -> Iterator[str]:
    """Yield a table's lines: the caption in bold, the table, its notes."""
    yield from ["", f"**{escaped(table.caption)}**", ""] if table.caption else [""]
    yield _row([_head(column) for column in table.columns])
    yield _row([":---" if column.is_text or at == 0 else "---:" for at, column in enumerate(table.columns)])
    for group in table.groups:
        if group.title:
            yield _row([f"**{escaped(group.title)}**", *[""] * (len(table.columns) - 1)])
        for row in group.rows:
            yield _row([escaped(cell) for cell in row])
    for note in table.notes:
        yield from ["", escaped(note)]
    yield ""


def _head(column: Column) -> str:
    return escaped(f"{column.head} ({column.unit})" if column.unit else column.head)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
