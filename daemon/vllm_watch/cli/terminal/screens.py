# SPDX-License-Identifier: Apache-2.0
"""Screens of lines: each shows as many as it has room for, and can be scrolled."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen

from vllm_watch.cli.terminal.canvas import Canvas
from vllm_watch.cli.terminal.cells import columns
from vllm_watch.cli.terminal.glance import is_small, is_tiny, server_glance, state_line
from vllm_watch.cli.terminal.happened import events_screen
from vllm_watch.cli.terminal.heading import banner, keys_line, title_line
from vllm_watch.cli.terminal.help_text import help_screen
from vllm_watch.cli.terminal.keys import KEYS, SCREEN_KEYS, SERVER_KEYS, Key
from vllm_watch.cli.terminal.lines import EMPTY, Line, Span, faded, fitted, line, spread, wrapped
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.present import Present
from vllm_watch.cli.terminal.server_detail import server_detail


_ALL_LINES = 1_000_000


class LineScreen(Screen[None]):
    """
    A screen of lines. A subclass says in `body` what it shows.

    Args:
        present: What is known now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(key.keys), key.action, key.text) for key in KEYS if key.action
    ]

    def __init__(self, present: Present) -> None:
        super().__init__()
        self.present = present
        self.canvas = Canvas(present.looks)
        self.room = 1
        self._first = 0

    def compose(self) -> ComposeResult:
        """Return the widget that everything is drawn on."""
        yield self.canvas

    def keys(self) -> tuple[Key, ...]:
        """Return the keys that the last line names."""
        return SCREEN_KEYS

    def last_line(self, width: int) -> Line:
        """Return the last line: the keys."""
        return keys_line(self.keys(), width)

    def in_detail(self) -> str | None:
        """Return the name of the server that is shown in detail."""
        return None

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return what there is to show; there is room for `room` lines, and there may be more."""
        raise NotImplementedError

    def above(self, moment: Moment, width: int) -> list[Line]:
        """Return what is above all that can be scrolled, on this screen alone."""
        del moment, width
        return []

    def draw(self) -> None:
        """Show what is known now."""
        width, height = self.canvas.size
        moment, cells = self.present.moment, self.present.cells
        if not width or not height:
            return
        lines = [state_line(moment, width, cells)] if is_tiny(width, height) else self._whole(moment, width, height)
        self.canvas.show([fitted(each, width, cells) for each in [*lines, *[EMPTY] * height][:height]])

    def _whole(self, moment: Moment, width: int, height: int) -> list[Line]:
        """Return all lines: title, what is wrong with the source, what there is to show, keys."""
        cells = self.present.cells
        above = self.above(moment, width)
        if moment.lost is not None:
            above = faded(above)
        top = [title_line(moment, width, cells), *banner(moment, width, cells), *above]
        self.room = max(height - len(top) - 1, 1)
        body = self.body(moment, width)
        self._first = max(min(self._first, len(body) - self.room), 0)
        shown = body[self._first : self._first + self.room]
        if moment.lost is not None:
            shown = faded(shown)
        below = len(body) - self._first - len(shown)
        return [*top, *shown, *[EMPTY] * (self.room - len(shown)), self._last_line(below, width)]

    def _last_line(self, below: int, width: int) -> Line:
        """Return the last line, which says how many lines are below the screen."""
        if not below:
            return self.last_line(width)
        more = line(Span(f"{below} more: Down", "note"))
        return spread(self.last_line(max(width - columns(more.text) - 1, 0)), more, width)

    def move(self, lines: int) -> None:
        """Show what is so many lines below."""
        self._first = max(self._first + lines, 0)
        self.draw()

    def on_resize(self, event: Resize) -> None:
        """Draw everything for the new size."""
        del event
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was shown."""
        self.canvas.change_looks(self.present.looks)
        self.call_after_refresh(self.draw)

    def on_canvas_scrolled(self, event: Canvas.Scrolled) -> None:
        """Follow the wheel."""
        self.move(event.lines)

    def action_move(self, lines: int) -> None:
        """Go some lines down, or up."""
        self.move(lines)

    def action_move_screen(self, screens: int) -> None:
        """Go some screens down, or up."""
        self.move(screens * max(self.room - 1, 1))

    def action_move_to_end(self, direction: int) -> None:
        """Go to the first line, or to the last."""
        self.move(direction * _ALL_LINES)

    async def action_back(self) -> None:
        """Go back to the screen before."""
        await self.app.pop_screen()


class ServerScreen(LineScreen):
    """
    One server in detail.

    Args:
        present: What is known now.
        name: Which server.
    """

    def __init__(self, present: Present, name: str) -> None:
        super().__init__(present)
        self.server = name

    def in_detail(self) -> str | None:
        """Return the name of the server."""
        return self.server

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of a server."""
        return SERVER_KEYS

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return the server, or that it is not there any more."""
        servers = moment.frame.servers if moment.frame is not None else ()
        server = next((each for each in servers if each.name == self.server), None)
        if server is None:
            return wrapped(f"{self.server} is not watched any more. Esc shows the others.", width)
        if is_small(*self.size):
            return server_glance(server, moment.at, width, self.present.cells)
        return server_detail(server, moment.at, width, self.present.cells)


class EventsScreen(LineScreen):
    """
    What has happened in the last hour.

    Args:
        present: What is known now.
        name: The server to show; all of them if `None`.
    """

    def __init__(self, present: Present, name: str | None) -> None:
        super().__init__(present)
        self.server = name

    def in_detail(self) -> str | None:
        """Return the name of the server."""
        return self.server

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return the events."""
        if moment.frame is None:
            return []
        return events_screen(moment.frame, self.server, moment.at, width, self.present.cells)


class HelpScreen(LineScreen):
    """What the keys, the states and the abbreviations mean."""

    def body(self, moment: Moment, width: int) -> list[Line]:
        """Return the help."""
        del moment
        return help_screen(width, self.present.cells)
