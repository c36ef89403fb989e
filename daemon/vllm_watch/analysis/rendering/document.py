# SPDX-License-Identifier: Apache-2.0
"""
What a report says, before it is text, Markdown or HTML: sections of statements, paragraphs, tables and figures.

All texts in it are plain and untrusted: each format escapes them itself. Only a figure's drawing is markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.catalog.number_texts import MISSING


Tone = Literal["good", "warning", "note", "undecided", "unknown"]


class Statement(NamedTuple):
    """One sentence, and whether it is good news."""

    tone: Tone
    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Commands(NamedTuple):
    """Lines for a terminal, to be copied as they are."""

    lines: tuple[str, ...]


class Column(NamedTuple):
    """The head of a column. Its cells are numbers, to the right, unless `is_text`."""

    head: str
    unit: str = ""
    is_text: bool = False


Cells: TypeAlias = tuple[str, ...]


class Group(NamedTuple):
    """Rows of a table that belong together, below their title, if it has one."""

    title: str
    rows: tuple[Cells, ...]


class Table(NamedTuple):
    """A table. The first cell of each row is its head. `notes` are sentences below it."""

    caption: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return not any(group.rows for group in self.groups)


class Entry(NamedTuple):
    """What a figure's line or mark is: `style` is its number among the styles of `svg_styles`."""

    style: int
    label: str
    is_marked: bool = False


class Figure(NamedTuple):
    """
    A drawing and what can be said of it without seeing it.

    `key` is unique in the document; `svg` is a whole element, labelled by the ids ``KEY-title`` and ``KEY-desc`` that
    are in it. `table` has the numbers behind it. `phases` are those whose bands it has.
    """

    key: str
    title: str
    svg: str
    legend: tuple[Entry, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()


Block: TypeAlias = Statement | Paragraph | Commands | Table | Figure


class Section(NamedTuple):
    """
    A headed part.

    `is_folded` is whether a reader opens it first, where a format can do that. `is_open` is whether it then starts
    open.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = ()
    is_folded: bool = False
    is_open: bool = False


class Document(NamedTuple):
    """A whole report. `lead` is one line below the title."""

    title: str
    lead: str
    sections: tuple[Section, ...]


def plain_table(caption: str, columns: tuple[Column, ...], rows: tuple[Cells, ...]) -> Table:
    """Return a table whose rows are one group without a title."""
    return Table(caption, columns, (Group("", rows),))


def known_table(caption: str, columns: tuple[Column, ...], rows: Sequence[Cells], kept: int = 0) -> Table:
    """Return a plain table without the columns in which nothing is known, but for the first ones that are `kept`."""
    shown = [at for at in range(len(columns)) if at < kept or {row[at] for row in rows} - {MISSING}]
    cells = tuple(tuple(row[at] for at in shown) for row in rows)
    return plain_table(caption, tuple(columns[at] for at in shown), cells)


def said_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns of a table of this program's with their heads and units in the language that is spoken."""
    return tuple(column._replace(head=_(column.head), unit=_(column.unit)) for column in columns)
