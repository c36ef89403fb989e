# SPDX-License-Identifier: Apache-2.0
"""
Lines of a screen as values: pieces of text, each with the role that it plays, and tables of them.

What a role looks like is in ``top.tcss``; nothing here knows a colour or a terminal, so `top --once` prints the same. A
line is as wide as its text until `fitted` cuts or pads it.
"""

from __future__ import annotations

import textwrap

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from vllm_watch.cli.terminal.cells import columns, fit
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.support.printable import printable


Role = EngineState | Literal[
    "text", "dim", "label", "strong", "title", "head", "sorted", "bar", "full", "spark", "over", "wrong", "note",
    "alarm",
]  # fmt: skip
"""
What a piece of text is: the state of an engine has the role of its name.

label: what a number is. bar, spark: a drawing; full: a bar of something that has run out. over: more than the
objective. wrong, note: a finding. alarm: the source is lost, or the view is paused. title: the first line of a screen.
head, sorted: the head of a part or of a column; the table is sorted by the second.
"""


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = "text"


class Line(NamedTuple):
    """A line."""

    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The line without its roles."""
        return "".join(span.text for span in self.spans)


class Pane(NamedTuple):
    """
    What lines are made for.

    Attributes:
        width: Columns.
        at: The time by the servers' clock.
    """

    width: int
    at: float


EMPTY = Line()


def line(*pieces: Span | str) -> Line:
    """Return a line of pieces; a bare text is a piece of plain text."""
    return Line(tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces))


def rule(title: str, width: int) -> Line:
    """Return a line that begins a part of a screen."""
    return line(Span(fit(title, width), "head"))


def fitted(row: Line, width: int) -> Line:
    """Return a line in exactly this many columns, with nothing in it that a terminal would act on."""
    spans, left = [], width
    safe = [Span(printable(span.text), span.role) for span in row.spans]
    for index, span in enumerate(safe):
        used = columns(span.text)
        is_cut = used > left or (used == left and any(later.text.strip() for later in safe[index + 1 :]))
        spans.append(Span(fit(span.text + " ", left) if is_cut else span.text, span.role))
        left -= min(used, left)
        if left == 0:
            break
    return Line((*spans, Span(" " * left)) if left > 0 else tuple(spans))


def beside(blocks: Sequence[Sequence[Line]], widths: Sequence[int], gap: int) -> list[Line]:
    """Return blocks of lines side by side, each in its width."""
    rows = []
    for index in range(max(map(len, blocks), default=0)):
        parts: list[Span] = []
        for block, width in zip(blocks, widths, strict=True):
            cell = block[index] if index < len(block) else EMPTY
            parts += [*fitted(cell, width).spans, Span(" " * gap)]
        rows.append(Line(tuple(parts[:-1])))
    return rows


def spread(left: Line, right: Line, width: int) -> Line:
    """Return a line with one part at each end; the left one is cut if there is no room for both."""
    room = width - columns(right.text) - 1
    return left if room < 0 else Line((*fitted(left, room).spans, Span(" "), *right.spans))


def wrapped(text: str, width: int, *, role: Role = "text", first: Span | None = None) -> list[Line]:
    """Return a text in as many lines as it needs; `first` stands before the first line, and the others are indented."""
    mark = first or Span("")
    indent = columns(mark.text)
    rows = textwrap.wrap(printable(text), max(width - indent, 1)) or [""]
    marks = [mark, *[Span(" " * indent)] * (len(rows) - 1)]
    return [
        line(before, Span(row, role)) if indent else line(Span(row, role))
        for before, row in zip(marks, rows, strict=True)
    ]


Item = TypeVar("Item")
SortKey = float | str | None
Cell = Callable[[Item, int], Line]
"""Writes the cell of an item, in this many columns of the terminal."""

GAP = 1
"""Columns of the terminal between two of a table."""


@dataclass(frozen=True)
class Column(Generic[Item]):
    """
    A column of a table.

    Args:
        name: Its name for the choice of the order.
        title, unit: The two lines of its head.
        width: The fewest columns of the terminal that it needs.
        cell: Writes its cell for an item.
        rank: How important it is: the lowest are shown where there is no room for all.
        grow: How many more columns of the terminal it can use.
        is_text: Whether its cells begin at the left.
        key: What the table is sorted by, if it can be by this column; `None` is what is not known.
    """

    name: str
    title: str
    unit: str
    width: int
    cell: Cell[Item]
    rank: int
    grow: int = 0
    is_text: bool = False
    key: Callable[[Item], SortKey] | None = None

    def head(self, width: int, mark: str = "") -> list[Line]:
        """Return the two lines of its head; `mark` follows the title of what the table is sorted by."""
        texts = (f"{self.title}{mark}", self.unit)
        return [self._placed(line(Span(text, "sorted" if mark else "head")), width) for text in texts]

    def line_of(self, item: Item, width: int) -> Line:
        """Return its cell for an item, in exactly this many columns."""
        return self._placed(self.cell(item, width), width)

    def _placed(self, text: Line, width: int) -> Line:
        before = 0 if self.is_text else max(width - columns(text.text), 0)
        return Line((Span(" " * before), *fitted(text, width - before).spans))


Placed = Sequence[tuple[Column[Item], int]]
"""The columns that are shown, in their order, with the width of each."""


def placed(every: Sequence[Column[Item]], width: int) -> Placed[Item]:
    """Return the columns for which there is room, with their widths; the room that is left makes them wider."""
    widths: dict[str, int] = {}
    left = width + GAP
    for column in sorted(every, key=lambda column: column.rank):
        if GAP + column.width > left:
            break
        left -= GAP + column.width
        widths[column.name] = column.width
    growing = sorted(
        (column for column in every if column.grow and column.name in widths), key=lambda column: column.grow
    )
    for index, column in enumerate(growing):
        more = min(column.grow, left // (len(growing) - index))
        widths[column.name] += more
        left -= more
    return [(column, widths[column.name]) for column in every if column.name in widths]


def table_lines(
    items: Sequence[Item], every: Sequence[Column[Item]], width: int, *, mark: Callable[[str], str] = lambda _name: ""
) -> list[Line]:
    """Return a table with its head; `mark` says what stands behind the title of a column."""
    shown = placed(every, width)
    heads = zip(*(column.head(width, mark(column.name)) for column, width in shown), strict=True)
    rows = ([column.line_of(item, width) for column, width in shown] for item in items)
    return [_joined(parts) for parts in (*heads, *rows)]


def _joined(parts: Sequence[Line]) -> Line:
    spans = [span for part in parts for span in (*part.spans, Span(" " * GAP))]
    return Line(tuple(spans[:-1]))


def ordered(items: Sequence[Item], column: Column[Item]) -> list[Item]:
    """Return items by a column, numbers from the highest and names from the first; what is not known is last."""
    keys = [(column.key(item) if column.key else None, item) for item in items]
    names = sorted((pair for pair in keys if isinstance(pair[0], str)), key=lambda pair: str(pair[0]))
    numbers = sorted(((-key, item) for key, item in keys if isinstance(key, int | float)), key=lambda pair: pair[0])
    return [*(item for _, item in names), *(item for _, item in numbers), *(item for key, item in keys if key is None)]
