# SPDX-License-Identifier: Apache-2.0
"""Where a dashboard's panels stand on Grafana's grid, and whether they can be read at 1280 px."""

from __future__ import annotations

import unicodedata

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tests.dashboards.panels import COLUMNS, WIDTH


LEAST_WIDTH = {"stat": 3, "gauge": 3}
LEAST_HEIGHT = {"stat": 3, "gauge": 3}
USUAL_LEAST_WIDTH, USUAL_LEAST_HEIGHT = 6, 4
"""Columns and rows that a panel needs to be read."""

FIGURE_WIDTH = 1.5
"""Columns that each of several figures in one panel needs."""

_TITLE_PADDING = 32
"""Pixels of a panel's width beside its title, in a window of `WIDTH`."""

_NARROW, _WIDE = 7.5, 14.0
"""Pixels of a letter and of a Chinese character in a title."""

Panel = Mapping[str, Any]
Fault = tuple[str, str]
"""A panel's title, and what is wrong with it."""


def misplaced(panels: Sequence[Panel]) -> Iterator[Fault]:
    """Yield what is wrong with the places of a dashboard's panels."""
    below, least = 0, 0
    for row, inner in _sections(panels):
        if row is not None:
            place = row["gridPos"]
            if (place["x"], place["w"], place["h"]) != (0, COLUMNS, 1) or place["y"] not in {least, below}:
                yield row["title"], f"a row is {COLUMNS} by 1, at the left, and below what is before it"
            below = row["gridPos"]["y"] + 1
        yield from _tiled(inner, below)
        # While a row is collapsed its panels take no room: the next row may stand right below it, or below them.
        least = below
        below = max((each["gridPos"]["y"] + each["gridPos"]["h"] for each in inner), default=below)
        least = least if row is not None and row["collapsed"] else below


def _sections(panels: Sequence[Panel]) -> Iterator[tuple[Panel | None, Sequence[Panel]]]:
    """Yield each row, `None` for what is before the first, with the panels that stand under it."""
    row: Panel | None = None
    inner: list[Panel] = []
    for panel in panels:
        if panel["type"] == "row":
            if inner or row is not None:
                yield row, inner
            row, inner = panel, list(panel.get("panels") or [])
        else:
            inner.append(panel)
    if inner or row is not None:
        yield row, inner


def _tiled(panels: Sequence[Panel], top: int) -> Iterator[Fault]:
    """Yield where panels leave the grid, lie on each other or leave holes."""
    taken: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] < 0 or place["x"] + place["w"] > COLUMNS:
            yield panel["title"], f"leaves the grid of {COLUMNS} columns"
        cells = set(_cells(place))
        if any(taken[cell] for cell in cells):
            yield panel["title"], "lies on another panel"
        taken.update(cells)
    bottom = max((panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels), default=top)
    free = [cell for cell in product(range(COLUMNS), range(top, bottom)) if not taken[cell]]
    if free:
        column, line = min(free, key=lambda cell: (cell[1], cell[0]))
        yield panels[0]["title"], f"there is a hole at column {column}, line {line}, of its row"


def _cells(place: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    return product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))


def unreadable(panel: Panel) -> Iterator[str]:
    """Yield why a panel cannot be read in a window of `WIDTH` pixels."""
    kind, place = panel["type"], panel["gridPos"]
    if place["w"] < LEAST_WIDTH.get(kind, USUAL_LEAST_WIDTH):
        yield f"a {kind} of {place['w']} columns is too narrow"
    if place["h"] < LEAST_HEIGHT.get(kind, USUAL_LEAST_HEIGHT):
        yield f"a {kind} of {place['h']} lines is too low"
    if kind in LEAST_WIDTH and len(panel.get("targets", [])) * FIGURE_WIDTH > place["w"]:
        yield f"{len(panel['targets'])} figures are too many for {place['w']} columns"
    room = WIDTH * place["w"] / COLUMNS - _TITLE_PADDING
    if _title_width(panel["title"]) > room:
        yield "the title is too long for the panel's width"


def _title_width(title: str) -> float:
    return sum(_WIDE if unicodedata.east_asian_width(letter) in "WF" else _NARROW for letter in title)
