# SPDX-License-Identifier: Apache-2.0
"""The widget that a screen is drawn on: it draws only those lines again that have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from vllm_watch.cli.terminal.lines import EMPTY, Line, Role


_WHEEL_LINES = 3


class Canvas(Widget):
    """
    Shows lines.

    Args:
        looks: What each role looks like.
    """

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    class Clicked(Message):
        """A line was clicked."""

        def __init__(self, y: int) -> None:
            super().__init__()
            self.y = y

    class Scrolled(Message):
        """The wheel was turned, by so many lines downwards."""

        def __init__(self, lines: int) -> None:
            super().__init__()
            self.lines = lines

    def __init__(self, looks: Mapping[Role, Style]) -> None:
        super().__init__()
        self._looks = looks
        self._lines: Sequence[Line] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Show lines, each as wide as the widget."""
        pairs = zip_longest(self._lines, lines)
        changed = [Region(0, y, self.size.width, 1) for y, (old, new) in enumerate(pairs) if old != new]
        self._lines = lines
        if changed:
            self.refresh(*changed)

    def change_looks(self, looks: Mapping[Role, Style]) -> None:
        """Draw everything in another look."""
        self._looks = looks
        self.refresh()

    def shown_lines(self) -> Sequence[Line]:
        """Return what is shown."""
        return self._lines

    def render_line(self, y: int) -> Strip:
        """Return a line as textual wants it."""
        row = self._lines[y] if y < len(self._lines) else EMPTY
        ground = self._looks["ground"] + self._looks[row.base]
        segments = [Segment(span.text, ground + self._looks[span.role]) for span in row.spans if span.text]
        return Strip(segments).adjust_cell_length(self.size.width, ground)

    def on_click(self, event: Click) -> None:
        """Tell the screen which line was clicked."""
        self.post_message(self.Clicked(event.y))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Tell the screen to show what is below."""
        event.stop()
        self.post_message(self.Scrolled(_WHEEL_LINES))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Tell the screen to show what is above."""
        event.stop()
        self.post_message(self.Scrolled(-_WHEEL_LINES))
