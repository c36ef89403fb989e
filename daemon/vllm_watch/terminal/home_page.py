# SPDX-License-Identifier: Apache-2.0
"""The first screen: the table of servers, or the only server in detail."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Input

from vllm_watch.terminal.canvas import Canvas
from vllm_watch.terminal.glance import is_small, server_glance, server_lines
from vllm_watch.terminal.keys import ONLY_SERVER_KEYS, OVERVIEW_KEYS, Key
from vllm_watch.terminal.lines import Line, wrapped
from vllm_watch.terminal.model import Frame, ServerView
from vllm_watch.terminal.moment import Moment
from vllm_watch.terminal.overview import HEAD, Shown, overview, table_height
from vllm_watch.terminal.pages import Page, ServerPage
from vllm_watch.terminal.present import Present
from vllm_watch.terminal.server_detail import server_detail
from vllm_watch.terminal.server_table import Order, arranged, next_order
from vllm_watch.terminal.table import window


class FilterInput(Input):
    """The line in which a filter is written."""

    DEFAULT_CSS = """
    FilterInput, FilterInput:focus {
        dock: bottom; height: 1; border: none; padding: 0; background: $background; color: $foreground;
    }
    FilterInput:ansi, FilterInput:ansi:focus { background: ansi_default; color: ansi_default; }
    """

    def __init__(self, words: str) -> None:
        super().__init__(words, placeholder="Words of a name, a model or a state. Enter keeps them, Esc shows all.")
        self.cursor_blink = False


class HomePage(Page):
    """
    The table of servers, the worst first; a server that has no others beside it in detail.

    Args:
        present: What is known now.
    """

    def __init__(self, present: Present) -> None:
        super().__init__(present)
        self._order = Order()
        self._words = ""
        self._selected: str | None = None
        self._top = 0
        self._above = 0

    @property
    def selected(self) -> ServerView | None:
        """The server that the keys act on; the only one if there is one."""
        frame = self.present.moment.frame
        if frame is None:
            return None
        servers = self._servers(frame)
        return servers[self._index(servers)] if servers else None

    @property
    def has_table(self) -> bool:
        """Whether there is a table: it needs more than one server."""
        frame = self.present.moment.frame
        return frame is not None and len(frame.servers) > 1

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of the table, or those of a server; none while a filter is written."""
        if self.query(FilterInput):
            return ()
        return OVERVIEW_KEYS if self.has_table else ONLY_SERVER_KEYS

    def in_detail(self) -> str | None:
        """Return the name of the selected server, of which the lower part of the screen is."""
        return self.selected.name if self.selected is not None else None

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return the table, or the only server."""
        cells = self.present.cells
        if moment.frame is None:
            return [] if moment.lost is not None else wrapped(f"Reading {moment.title} for the first time.", width)
        if len(moment.frame.servers) == 1:
            server = moment.frame.servers[0]
            if is_small(*self.size):
                return server_glance(server, width, cells)
            return server_detail(server, moment.at, width, cells)
        is_list = is_small(*self.size)
        servers = self._servers(moment.frame)
        rows = self.room if is_list else table_height(self.room, len(servers))
        index = self._index(servers)
        self._top = window(len(servers), rows, index, self._top)
        self._above = self.canvas.size.height - self.room - bool(self.keys()) + (0 if is_list else HEAD)
        shown = Shown(servers, moment.frame.servers, index, self._top, self._order, self._words)
        if is_list:
            return server_lines(shown, width, self.room, cells)
        return overview(shown, moment.at, width, self.room, cells)

    def move(self, lines: int) -> None:
        """Select another server; scroll if there is only one."""
        frame = self.present.moment.frame
        if frame is None or not self.has_table:
            super().move(lines)
            return
        servers = self._servers(frame)
        if servers:
            self._selected = servers[max(min(self._index(servers) + lines, len(servers) - 1), 0)].name
        self.draw()

    def action_open(self) -> None:
        """Show the selected server in detail."""
        if self.has_table and self.selected is not None:
            self.app.push_screen(ServerPage(self.present, self.selected.name))

    async def action_back(self) -> None:
        """Show all servers again."""
        self._words = ""
        await self.query(FilterInput).remove()
        self.call_after_refresh(self.draw)

    async def action_filter(self) -> None:
        """Open the line in which a filter is written."""
        if self.has_table and not self.query(FilterInput):
            line = FilterInput(self._words)
            await self.mount(line)
            line.focus()
            self.call_after_refresh(self.draw)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._order = next_order(self._order)
        self.draw()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._order = self._order._replace(is_reversed=not self._order.is_reversed)
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what has the words that are written."""
        self._words = event.value
        self.draw()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter."""
        await event.input.remove()
        self.call_after_refresh(self.draw)

    def on_canvas_clicked(self, event: Canvas.Clicked) -> None:
        """Select the server of a line; open it if it is selected already."""
        frame = self.present.moment.frame
        servers = self._servers(frame) if frame is not None and self.has_table else []
        index = self._top + event.y - self._above
        if not self._top <= index < min(self._top + self.room, len(servers)):
            return
        is_selected = index == self._index(servers)
        self._selected = servers[index].name
        if is_selected:
            self.action_open()
        self.draw()

    def _servers(self, frame: Frame) -> list[ServerView]:
        return arranged(frame.servers, self._order, self._words)

    def _index(self, servers: Sequence[ServerView]) -> int:
        """Return which line is selected: that of a server that was chosen, else the first."""
        return next((index for index, server in enumerate(servers) if server.name == self._selected), 0)
