# SPDX-License-Identifier: Apache-2.0
"""A document as text for a terminal. It has no colours: words say everything."""

from __future__ import annotations

import re
import textwrap

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unicodedata import east_asian_width

from vllm_watch.analysis.rendering.document import (
    Block,
    Cells,
    Column,
    Commands,
    Document,
    Paragraph,
    Section,
    Statement,
    Table,
    Tone,
)
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.support.printable import printable


WIDTH = 80
"""How many columns a text has that is not written to a terminal."""

_GAP = "  "
_INDENT = "    "
_LEAST_TEXT = 12
_MARKS: dict[Tone, str] = {
    "good": N_("ok"),
    "warning": N_("warning"),
    "note": N_("note"),
    "undecided": "~",
    "unknown": N_("unknown"),
}
_MARK_WIDTH = 9

_FILLER = "\N{WORD JOINER}"
"""Follows each character that takes two columns, such as a Chinese one: a text is then as long as it is wide."""

_PARTS = re.compile(f"(?:[（《“]{_FILLER})*(?:.{_FILLER}|(?:.(?!{_FILLER}))+)(?:[，。、；：！？）》”]{_FILLER})*")  # noqa: RUF001
"""What stays on one line: a word, or a wide character with the punctuation at it."""


_HELD = "\N{NO-BREAK SPACE}"
_IN_QUANTITY = re.compile(r"(?<=\d) (?=%|(?:ms|s|min|h|d)\b)", re.ASCII)
"""The blank between a number and its unit, where no line ends."""


def render_text(document: Document, width: int = WIDTH) -> str:
    """Return a document as lines of at most so many columns, unless a table of numbers alone is wider."""
    lines = [*_wrapped(document.title, width), *_wrapped(document.lead, width)]
    lines.append("=" * max(map(len, lines), default=0))
    for section in document.sections:
        lines += _section(section, "-", width)
    return _joined(lines)


def render_blocks(blocks: Sequence[Block], width: int = WIDTH) -> str:
    """Return blocks as lines, without a heading."""
    return _joined(_blocks(blocks, width))


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines).replace(_FILLER, "") + "\n"


def _sized(text: str) -> str:
    """Return a text that a terminal shows as wide as it is long, once its fillers are gone."""
    text = printable(text)
    if text.isascii():
        return text
    return "".join(char + _FILLER if east_asian_width(char) in "WF" else char for char in text)


class _Wrapper(textwrap.TextWrapper):
    """Also breaks between wide characters."""

    def _split(self, text: str) -> list[str]:
        return [part for chunk in super()._split(text) for part in _PARTS.findall(chunk)]


def _section(section: Section, underline: str, width: int) -> Iterator[str]:
    heads = list(_wrapped(section.title, width))
    yield from ["", *heads, underline * max(map(len, heads), default=0)]
    yield from _blocks(section.blocks, width)
    for inner in section.sections:
        yield from _section(inner, ".", width)


def _blocks(blocks: Sequence[Block], width: int) -> Iterator[str]:
    was_table = False
    for block in blocks:
        if isinstance(block, Statement):
            yield from _wrapped(block.text, width, _sized(_(_MARKS[block.tone])).ljust(_MARK_WIDTH))
        elif isinstance(block, Paragraph):
            yield from _wrapped(block.text, width)
        elif isinstance(block, Commands):
            yield from ["", *(f"{_INDENT}{printable(line)}" for line in block.lines)]
        elif isinstance(block, Table) and not block.is_empty:
            yield from [""] if was_table else []
            yield from _table_lines(block, width)
            was_table = True


def _wrapped(text: str, width: int, mark: str = "") -> Iterator[str]:
    yield from _lines(text, width, initial_indent=mark, subsequent_indent=" " * len(mark))


def _lines(text: str, width: int, **how: Any) -> list[str]:  # noqa: ANN401  # Options of textwrap.
    # Not at a hyphen: a flag such as --save-detailed stays whole, to be found and copied.
    held = _IN_QUANTITY.sub(_HELD, _sized(text))
    return [line.replace(_HELD, " ") for line in _Wrapper(width, break_on_hyphens=False, **how).wrap(held)]


def _table_lines(table: Table, width: int) -> Iterator[str]:
    widths = _widths(table, width)
    yield from _wrapped(table.caption, width)
    heads = [_laid_out(tuple(column.head for column in table.columns), table.columns, widths)]
    if any(column.unit for column in table.columns):
        heads.append(_laid_out(tuple(column.unit for column in table.columns), table.columns, widths))
    if any(column.head for column in table.columns):
        for head in heads:
            yield from head
        yield _GAP.join("-" * each for each in widths)
    for group in table.groups:
        yield from _wrapped(group.title, width)
        for row in group.rows:
            yield from _laid_out((_GAP + row[0] if group.title else row[0], *row[1:]), table.columns, widths)
    for note in table.notes:
        yield from _wrapped(note, width)


def _widths(table: Table, whole: int) -> list[int]:
    """Return how wide each column is; columns of text give way, the widest first, until the table fits."""
    indent = len(_GAP) * any(group.title for group in table.groups)
    rows = [row for group in table.groups for row in group.rows]
    widths = [max(len(_sized(column.head)), len(_sized(column.unit))) for column in table.columns]
    for row in rows:
        widths = [max(width, len(_sized(cell))) for width, cell in zip(widths, row, strict=True)]
    widths[0] = max(widths[0], max((len(_sized(row[0])) for row in rows), default=0) + indent)
    texts = [at for at, column in enumerate(table.columns) if column.is_text or at == 0]
    # First as far as names stay whole, to be found and copied; then further, as if there were none.
    for least in ([_longest_word(rows, at) for at in range(len(widths))], [_LEAST_TEXT] * len(widths)):
        while sum(widths) + len(_GAP) * (len(widths) - 1) > whole:
            wide = [at for at in texts if widths[at] > max(least[at], _LEAST_TEXT)]
            if not wide:
                break
            widths[max(wide, key=lambda at: widths[at])] -= 1
    return widths


def _longest_word(rows: Sequence[Cells], column: int) -> int:
    words = (part for row in rows for word in _sized(row[column]).split() for part in _PARTS.findall(word))
    return max(map(len, words), default=0)


def _laid_out(cells: Cells, columns: tuple[Column, ...], widths: list[int]) -> list[str]:
    wrapped = [
        _cell(cell, width, drop_whitespace=at > 0) if column.is_text or at == 0 else [_sized(cell)]
        for at, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True))
    ]
    lines = []
    for line in range(max(map(len, wrapped))):
        parts = [part[line] if line < len(part) else "" for part in wrapped]
        shown = [
            part.ljust(width) if column.is_text or at == 0 else part.rjust(width)
            for at, (part, column, width) in enumerate(zip(parts, columns, widths, strict=True))
        ]
        lines.append(_GAP.join(shown))
    return lines


def _cell(cell: str, width: int, *, drop_whitespace: bool) -> list[str]:
    return _lines(cell, width, drop_whitespace=drop_whitespace) or [""]
