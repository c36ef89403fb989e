# SPDX-License-Identifier: Apache-2.0
"""Many servers on one screen: the table, the worst first, and below it what is known of the selected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.cli.terminal.cells import ASCII, Cells
from vllm_watch.cli.terminal.cells import columns as columns_of
from vllm_watch.cli.terminal.happened import event_lines, finding_lines
from vllm_watch.cli.terminal.heading import counts_line, rule
from vllm_watch.cli.terminal.lines import EMPTY, Line, Span, line, spread, wrapped
from vllm_watch.cli.terminal.model import ServerView
from vllm_watch.cli.terminal.server_detail import server_detail
from vllm_watch.cli.terminal.server_table import Order, columns_for
from vllm_watch.cli.terminal.table import heads, placed, row
from vllm_watch.cli.terminal.what_to_do import meaning_lines


_LEAST_WITH_PREVIEW = 18
"""Lines of the screen below which the table has them all."""

_LEAST_PREVIEW = 5
_LEAST_WITH_DETAIL = 12


HEAD = 3
"""Lines above the servers."""


class Shown(NamedTuple):
    """
    What of the table is on the screen.

    Args:
        servers: Those that the filter leaves, in order.
        every: All servers.
        selected: The index of the selected one in `servers`.
        top: The index of the first one on the screen.
        order: How they are ordered.
        words: The filter.
    """

    servers: Sequence[ServerView]
    every: Sequence[ServerView]
    selected: int
    top: int
    order: Order
    words: str


def table_height(height: int, servers: int) -> int:
    """Return for how many of the servers there is room, in so many lines below the banners."""
    least = 0 if height < _LEAST_WITH_PREVIEW else max(height // 4, _LEAST_PREVIEW)
    return max(min(height - HEAD - least, max(servers, 1)), 1)


def overview(shown: Shown, at: float, width: int, height: int, cells: Cells) -> list[Line]:
    """Return the screen below the banners."""
    rows = table_height(height, len(shown.servers))
    columns = placed(columns_for(shown.every), width)
    mark = _arrow(shown.order, cells)
    visible = shown.servers[shown.top : shown.top + rows]
    lines = [summary(shown, rows, width, cells), *heads(columns, shown.order.column, mark)]
    for index, server in enumerate(visible, shown.top):
        drawn = row(server, columns, cells)
        lines.append(drawn._replace(base="selected") if index == shown.selected else drawn)
    if not visible:
        lines += nothing_shown(shown, width)
    left = height - len(lines)
    if shown.servers and left >= _LEAST_PREVIEW:
        lines += preview(shown.servers[shown.selected], at, width, left, cells)
    return lines


def summary(shown: Shown, rows: int, width: int, cells: Cells) -> Line:
    """Return how many servers are in which state, and which of them are on the screen."""
    parts = []
    if shown.words:
        parts.append(f'{len(shown.servers)} with "{shown.words}"')
    if len(shown.servers) > rows:
        parts.append(f"{shown.top + 1} to {min(shown.top + rows, len(shown.servers))} of {len(shown.servers)}")
    right = ", ".join(parts)
    counts = counts_line(shown.every, width - columns_of(right) - 1, cells)
    return spread(counts, line(Span(right, "label")), width)


def nothing_shown(shown: Shown, width: int) -> list[Line]:
    """Return why no server is shown."""
    if shown.every:
        return wrapped(f'No server has "{shown.words}" in its name, model or state. Esc shows all.', width)
    return wrapped("No server is watched. vllm-watch discover lists what runs on this machine.", width)


def preview(server: ServerView, at: float, width: int, height: int, cells: Cells) -> list[Line]:
    """Return a server in so many lines: the whole of it where there is room, else what is wrong and what happened."""
    if height >= _LEAST_WITH_DETAIL:
        return [EMPTY, *server_detail(server, at, width, cells)][:height]
    model = f" {cells.glyphs.dot} {server.model_name}" if server.model_name else ""
    lines = [rule(f"{server.name}{model}", width, cells)]
    lines += meaning_lines(server, width)
    lines += finding_lines(server, width, "wrong")
    lines += event_lines(server, at, width, cells)
    return lines[:height]


def _arrow(order: Order, cells: Cells) -> str:
    """Return what stands behind the title of the column that the table is sorted by."""
    if cells.glyphs is ASCII:
        return "^" if order.is_reversed else "v"
    return "▲" if order.is_reversed else "▼"
