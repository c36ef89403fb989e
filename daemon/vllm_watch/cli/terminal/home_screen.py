# SPDX-License-Identifier: Apache-2.0
"""The first screen: the table of servers, or the only server in detail."""

from __future__ import annotations

from collections.abc import Sequence

from textual.events import Key as KeyEvent
from textual.events import Paste

from vllm_watch.cli.terminal.canvas import Canvas
from vllm_watch.cli.terminal.glance import is_small, server_glance, server_lines
from vllm_watch.cli.terminal.happened import common_lines
from vllm_watch.cli.terminal.keys import FILTER, ONLY_SERVER_KEYS, OVERVIEW_KEYS, Key
from vllm_watch.cli.terminal.lines import Line, Span, line, spread, wrapped
from vllm_watch.cli.terminal.model import Frame, ServerView
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.overview import HEAD, Shown, overview, table_height
from vllm_watch.cli.terminal.present import Present
from vllm_watch.cli.terminal.screens import LineScreen, ServerScreen
from vllm_watch.cli.terminal.server_detail import server_detail
from vllm_watch.cli.terminal.server_table import Order, arranged, next_order
from vllm_watch.cli.terminal.table import window


_COMMON = 3
"""So many findings that are about no server are shown, if there is room."""


class HomeScreen(LineScreen):
    """
    The table of servers, the worst first; a server that has no others beside it in detail.

    Args:
        present: What is known now.
    """

    def __init__(self, present: Present) -> None:
        super().__init__(present)
        self._order = Order()
        self._words = ""
        self._is_writing = False
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
        """Return the keys of the table, or those of a server."""
        return OVERVIEW_KEYS if self.has_table else ONLY_SERVER_KEYS

    def last_line(self, width: int) -> Line:
        """Return the keys, or the filter that is being written."""
        if not self._is_writing:
            return super().last_line(width)
        words = line(Span("/", "key"), f" {self._words}", Span(" ", "title"))
        return spread(words, line(Span("Enter keeps it, Esc shows all", "label")), width)

    def in_detail(self) -> str | None:
        """Return the name of the selected server, of which the lower part of the screen is."""
        return self.selected.name if self.selected is not None else None

    def above(self, moment: Moment, width: int) -> list[Line]:
        """Return what is wrong or should be known that is about no server."""
        if moment.frame is None:
            return []
        return common_lines(moment.frame, width, 1 if is_small(*self.size) else _COMMON)

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return the table, or the only server."""
        cells = self.present.cells
        if moment.frame is None:
            return [] if moment.lost is not None else wrapped(f"Reading {moment.title} for the first time.", width)
        if len(moment.frame.servers) == 1:
            server = moment.frame.servers[0]
            if is_small(*self.size):
                return server_glance(server, moment.at, width, cells)
            return server_detail(server, moment.at, width, cells)
        is_list = is_small(*self.size)
        servers = self._servers(moment.frame)
        rows = self.room if is_list else table_height(self.room, len(servers))
        index = self._index(servers)
        self._top = window(len(servers), rows, index, self._top)
        self._above = self.canvas.size.height - self.room - 1 + (0 if is_list else HEAD)
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
            self.app.push_screen(ServerScreen(self.present, self.selected.name))

    async def action_back(self) -> None:
        """Show all servers again."""
        self._write("", is_writing=False)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._order = next_order(self._order)
        self.draw()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._order = self._order._replace(is_reversed=not self._order.is_reversed)
        self.draw()

    def on_key(self, event: KeyEvent) -> None:
        """
        Write the filter.

        Here, and not by a binding and a widget that gets the focus: those come too late for keys that follow at once.
        """
        if not self.has_table or not (self._is_writing or event.key in FILTER.keys):
            return
        words = self._words
        if not self._is_writing or event.key == "enter":
            self._write(words, is_writing=not self._is_writing)
        elif event.key in {"backspace", "ctrl+u"}:
            self._write("" if event.key == "ctrl+u" else words[:-1], is_writing=True)
        elif event.is_printable:
            self._write(f"{words}{event.character}", is_writing=True)
        else:
            return  # Arrows, Esc and Ctrl-C do what they always do.
        event.stop()
        event.prevent_default()

    def on_paste(self, event: Paste) -> None:
        """Take what is pasted into the filter."""
        if self._is_writing:
            self._write(self._words + " ".join(event.text.split()), is_writing=True)

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

    def _write(self, words: str, *, is_writing: bool) -> None:
        self._words = words
        self._is_writing = is_writing
        self.draw()

    def _servers(self, frame: Frame) -> list[ServerView]:
        return arranged(frame.servers, self._order, self._words)

    def _index(self, servers: Sequence[ServerView]) -> int:
        """Return which line is selected: that of a server that was chosen, else the first."""
        return next((index for index, server in enumerate(servers) if server.name == self._selected), 0)
