# SPDX-License-Identifier: Apache-2.0
"""Tables that use the width they get: the most important columns, then longer bars, sparklines and texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vllm_watch.cli.terminal.cells import Cells, columns
from vllm_watch.cli.terminal.lines import Line, Span, fitted


Item = TypeVar("Item")
GAP = 1
SortKey = float | str | None


@dataclass(frozen=True)
class Column(Generic[Item]):
    """
    A column of a table.

    Args:
        name: Its name for the choice of the order.
        title, unit: The two lines of its head.
        width: The fewest columns of the terminal that it needs.
        cell: Writes its cell for an item, in so many columns.
        rank: How important it is: the lowest are shown where there is no room for all.
        grow: How many more columns of the terminal it can use.
        is_text: Whether its cells begin at the left.
        key: What the table is sorted by, if it can be by this column; `None` is what is not known.
    """

    name: str
    title: str
    unit: str
    width: int
    cell: Callable[[Item, Cells, int], Sequence[Span]]
    rank: int
    grow: int = 0
    is_text: bool = False
    key: Callable[[Item], SortKey] | None = None


Placed = Sequence[tuple[Column[Item], int]]
"""The columns that are shown, in their order, with the width of each."""


def placed(every: Sequence[Column[Item]], width: int, without: Collection[str] = ()) -> Placed[Item]:
    """Return the columns for which there is room, with their widths; the room that is left makes them wider."""
    chosen: set[str] = set()
    used = -GAP
    for column in sorted(every, key=lambda each: each.rank):
        if column.name in without:
            continue
        if used + GAP + column.width > width:
            break
        used += GAP + column.width
        chosen.add(column.name)
    shown = [column for column in every if column.name in chosen]
    widths = {column.name: column.width for column in shown}
    growing = sorted((column for column in shown if column.grow), key=lambda each: each.grow)
    left = width - used
    for index, column in enumerate(growing):
        more = min(column.grow, left // (len(growing) - index))
        widths[column.name] += more
        left -= more
    return [(column, widths[column.name]) for column in shown]


def heads(shown: Placed[Item], sorted_by: str, mark: str) -> list[Line]:
    """Return the two lines of the head; `mark` follows the title of the column that the table is sorted by."""
    first: list[Span] = []
    second: list[Span] = []
    for column, width in shown:
        is_sorted = column.name == sorted_by
        title = f"{column.title}{mark}" if is_sorted else column.title
        for row, text in ((first, title), (second, column.unit)):
            row += [
                Span(_aligned(text, width, is_text=column.is_text), "sorted" if is_sorted else "head"),
                Span(" " * GAP, "head"),
            ]
    return [Line(tuple(first[:-1]), "head"), Line(tuple(second[:-1]), "head")]


def row(item: Item, shown: Placed[Item], cells: Cells) -> Line:
    """Return the line of an item."""
    spans: list[Span] = []
    for column, width in shown:
        cell = Line(tuple(column.cell(item, cells, width)))
        before = 0 if column.is_text else max(width - columns(cell.text), 0)
        spans += [Span(" " * before), *fitted(cell, width - before, cells).spans, Span(" " * GAP)]
    return Line(tuple(spans[:-1]))


def ordered(items: Sequence[Item], column: Column[Item], *, is_reversed: bool) -> list[Item]:
    """Return items by a column, numbers from the highest and names from the first; what is not known is last."""
    key = column.key
    if key is None:
        return list(items)
    known = [(key(item), item) for item in items]
    texts = sorted(
        (each for each in known if isinstance(each[0], str)), key=lambda each: str(each[0]), reverse=is_reversed
    )
    numbers = sorted(
        (each for each in known if isinstance(each[0], int | float)),
        key=lambda each: each[0] if isinstance(each[0], int | float) else 0.0,
        reverse=not is_reversed,
    )
    return [item for _, item in [*texts, *numbers, *(each for each in known if each[0] is None)]]


def window(count: int, height: int, selected: int, top: int) -> int:
    """Return which item is the first on the screen, so that the selected one is visible and the screen is full."""
    lowest = max(min(top, selected), selected - height + 1, 0)
    return max(min(lowest, count - height), 0)


def _aligned(text: str, width: int, *, is_text: bool) -> str:
    return text[:width].ljust(width) if is_text else text[-width:].rjust(width)
