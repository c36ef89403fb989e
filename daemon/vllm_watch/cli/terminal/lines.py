# SPDX-License-Identifier: Apache-2.0
"""
Lines of a screen as values: pieces of text, each with the role that it plays.

What a role looks like is in `theme.py`; nothing here knows a colour. A line is as wide as its text until `fitted` cuts
or pads it.
"""

from __future__ import annotations

import textwrap
import unicodedata

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from vllm_watch.cli.terminal.cells import ASCII, Cells, columns
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.support.printable import printable


Role = EngineState | Literal[
    "ground", "text", "dim", "label", "strong", "title", "bar", "full", "spark", "over", "wrong", "note", "alarm",
    "key", "head", "sorted", "selected",
]  # fmt: skip
"""
What a piece of text is: the state of an engine has the role of its name.

ground: what is below all. text: as the line that it is in. label: what a number is. title: the first line of a screen.
bar, spark: a drawing; full: a bar of something that has run out. over: more than the objective. wrong, note: a finding.
alarm: the source is lost, or the view is paused. head, sorted: the head of a column; the table is sorted by the second.
selected: the line that the keys act on.
"""


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = "text"


class Line(NamedTuple):
    """A line; `base` is the role that the roles of its pieces are laid upon."""

    spans: tuple[Span, ...] = ()
    base: Role = "text"

    @property
    def text(self) -> str:
        """The line without its roles."""
        return "".join(span.text for span in self.spans)


EMPTY = Line()


def line(*pieces: Span | str, base: Role = "text") -> Line:
    """Return a line of pieces; a bare text is a piece of plain text."""
    return Line(tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces), base)


def fitted(row: Line, width: int, cells: Cells) -> Line:
    """Return a line in exactly so many columns, with nothing in it that a terminal would act on or cannot show."""
    spans, left = [], width
    safe = [Span(_shown(span.text, cells), span.role) for span in row.spans]
    for index, span in enumerate(safe):
        used = columns(span.text)
        is_cut = used > left or (used == left and any(each.text.strip() for each in safe[index + 1 :]))
        text = cells.fit(span.text + " ", left) if is_cut else span.text
        spans.append(Span(text, span.role))
        left -= min(used, left)
        if left == 0:
            break
    return Line((*spans, Span(" " * left)) if left > 0 else tuple(spans), row.base)


def beside(blocks: Sequence[Sequence[Line]], widths: Sequence[int], cells: Cells, gap: int = 2) -> list[Line]:
    """Return blocks of lines side by side, each in its width."""
    height = max((len(block) for block in blocks), default=0)
    rows = []
    for index in range(height):
        parts: list[Span] = []
        for block, width in zip(blocks, widths, strict=True):
            each = block[index] if index < len(block) else EMPTY
            parts += [*fitted(each, width, cells).spans, Span(" " * gap)]
        rows.append(Line(tuple(parts[:-1])))
    return rows


def spread(left: Line, right: Line, width: int) -> Line:
    """Return a line with one part at each end; the left one is cut if there is no room for both."""
    room = width - columns(right.text) - 1
    if room < 0:
        return left
    pieces, used = [], 0
    for span in left.spans:
        size = columns(span.text)
        if used + size > room:
            pieces.append(Span(Cells().fit(span.text, room - used), span.role))
            used = room
            break
        pieces.append(span)
        used += size
    return Line((*pieces, Span(" " * (width - used - columns(right.text))), *right.spans), left.base)


def wrapped(text: str, width: int, *, role: Role = "text", first: Span | None = None) -> list[Line]:
    """Return a text in as many lines as it needs; `first` stands before the first line, and the others are indented."""
    mark = first or Span("")
    indent = columns(mark.text)
    rows = textwrap.wrap(printable(text), max(width - indent, 1)) or [""]
    marks = [mark, *[Span(" " * indent, role if role == "alarm" else "text")] * (len(rows) - 1)]
    return [
        line(before, Span(row, role)) if indent else line(Span(row, role))
        for before, row in zip(marks, rows, strict=True)
    ]


def faded(rows: Iterable[Line]) -> list[Line]:
    """Return lines as values that are no longer current."""
    return [Line(tuple(Span(span.text, "dim") for span in row.spans), row.base) for row in rows]


_PLAIN = str.maketrans({"–": "-", "—": "-", "−": "-", "…": "~", "·": "|", "→": ">", "×": "x", "≤": "<", "≥": ">"})  # noqa: RUF001  # Each as it is.


def _shown(text: str, cells: Cells) -> str:
    safe = printable(text)
    if cells.glyphs is not ASCII or safe.isascii():
        return safe
    return "".join(each if each.isascii() else _stand_in(each) for each in safe.translate(_PLAIN))


def _stand_in(char: str) -> str:
    """Return as many question marks as a character has columns; the letter alone of one with an accent."""
    base = unicodedata.normalize("NFD", char)[0]
    return base if base.isascii() else "?" * columns(char)
