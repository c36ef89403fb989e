# SPDX-License-Identifier: Apache-2.0
"""
The application of ``vllm-watch top``.

A thread of the source reads; the application only draws: when the source says that something has changed, once a second
for the ages, and after a key. It has no animations and no command palette.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import traceback

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.message import Message
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.theme import Theme
from textual.types import AnimationLevel

from vllm_watch.cli.terminal.cells import ThemeName
from vllm_watch.cli.terminal.frames import Lost
from vllm_watch.cli.terminal.reading_thread import ReadingThread
from vllm_watch.cli.terminal.screens import Present, TopScreen


_DARK = {
    "dim": "#9aa1ac", "label": "#a9b4c2", "strong": "#ffffff", "note": "#d8dce2", "drawing": "#5cb8ff",
    "full": "#ffb347", "over": "#ffb347", "wrong": "#ffb347", "alarm": "#101418", "alarm-ground": "#ffb347",
    "title": "#ffffff", "title-ground": "#1d4166", "head": "#b5cbe2", "head-ground": "#1e2731",
    "selected-ground": "#1f3852", "key": "#7cc4ff", "quiet": "#a3b4c6", "serving": "#5cb8ff", "starting": "#c3b0ff",
    "filled": "#101418",
}  # fmt: skip

_LIGHT = {
    "dim": "#4c555f", "label": "#4b5560", "strong": "#000000", "note": "#1b1f24", "drawing": "#083f96",
    "full": "#b34700", "over": "#8f2a00", "wrong": "#a84300", "alarm": "#000000", "alarm-ground": "#ffb347",
    "title": "#ffffff", "title-ground": "#1d4f80", "head": "#1f3d5c", "head-ground": "#dde6ef",
    "selected-ground": "#bdd3ea", "key": "#083f96", "quiet": "#4b5560", "serving": "#083f96", "starting": "#4f2a90",
    "filled": "#000000",
}  # fmt: skip


def themes() -> list[Theme]:
    """Return both themes as textual has them."""
    return [_theme("dark", "#d8dce2", "#101418", _DARK), _theme("light", "#1b1f24", "#ffffff", _LIGHT)]


def _theme(name: ThemeName, text: str, ground: str, colors: Mapping[str, str]) -> Theme:
    return Theme(
        name=name,
        primary=colors["key"],
        foreground=text,
        background=ground,
        surface=ground,
        dark=name == "dark",
        variables={f"top-{role}": color for role, color in colors.items()},
    )


TICK_SECONDS = 1.0
"""How often ages are drawn again."""


class _PlainBars(ScrollBarRender):
    """A scroll bar of blanks alone, which every terminal has."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "]
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "]


ScrollBar.renderer = _PlainBars


class TopApp(App[None]):
    """
    Shows what a source reads.

    Args:
        source: Where frames come from.
        theme: On which ground.
        has_color: Whether colours are written.
        tick: Seconds after which ages are drawn again; `None` for tests, which call `tick`.
    """

    TITLE = "vllm-watch top"
    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "leave", "Quit", show=False, priority=True)]

    class Changed(Message):
        """The source has something new."""

    def __init__(
        self,
        source: ReadingThread,
        theme: ThemeName,
        *,
        has_color: bool = True,
        tick: float | None = TICK_SECONDS,
    ) -> None:
        # Without colours the terminal's own ground is kept, so that its own text is readable on it.
        super().__init__(ansi_color=None if has_color else True)
        self.animation_level: AnimationLevel = "none"
        self.failure: str | None = None
        self._source = source
        self._tick = tick
        self._has_color = has_color
        self._present = Present(source)
        self._top = TopScreen(self._present, has_color=has_color)
        for each in themes():
            self.register_theme(each)
        self.theme = theme

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what takes the colours away. Textual's own depends on NO_COLOR, and draws black on black."""
        return [] if self._has_color else [NoColor()]

    def on_mount(self) -> None:
        """Show the screen, and follow the source."""
        self.push_screen(self._top)
        self._source.subscribe(self._tell)
        if self._tick is not None:
            self.set_interval(self._tick, self.tick)

    def tick(self) -> None:
        """Draw the ages, and ask for the last hour of the server that is shown in detail."""
        self.look()
        # Not after each change: a request for an hour makes the source read, which may change which server is shown.
        selected = self._top.selected
        self._present.ask_for_hour(self._top.opened or (selected.name if selected is not None else None))

    def look(self) -> None:
        """Draw what is known now; end if nothing was read, and nothing ever will be."""
        lost = self._source.latest()
        if isinstance(lost, Lost) and lost.is_final:
            self.exit()
        else:
            self._present.look()
            self._top.draw()

    def on_top_app_changed(self) -> None:
        """Draw what the source has."""
        self.look()

    def action_leave(self) -> None:
        """Quit."""
        self.exit()

    def action_pause(self) -> None:
        """Hold what is shown, or go on."""
        self._present.pause()
        self._top.draw()

    def action_read_now(self) -> None:
        """Read at once, and draw everything again, also where something else has written on the terminal."""
        self._source.read_now()
        self.refresh(repaint=True, layout=True)
        self.look()

    def _tell(self) -> None:
        """Tell the application, from the thread of the source, that something has changed."""
        with contextlib.suppress(RuntimeError):  # The application has ended meanwhile.
            self.post_message(self.Changed())

    def _fatal_error(self) -> None:
        """Say in a sentence what failed. Textual calls this for any error, and would print screens of source code."""
        error = self._exception
        place = traceback.extract_tb(error.__traceback__)[-1] if error is not None and error.__traceback__ else None
        where = f" ({place.filename}:{place.lineno})" if place is not None else ""
        self.failure = f"this is an error of top itself, please report it: {type(error).__name__}: {error}{where}"
        self._close_messages_no_wait()


def run_app(source: ReadingThread, theme: ThemeName, *, has_color: bool) -> int:
    """
    Show what a source reads, whose thread runs already, until somebody quits.

    Returns:
        The exit status: 1 if something could not be drawn, or nothing was ever read, which is said in a sentence.
    """
    app = TopApp(source, theme, has_color=has_color)
    asyncio.run(_until_ended(app))
    view = source.latest()
    never = f"{source.title}: {view.reason}" if isinstance(view, Lost) and view.last is None else None
    failure = app.failure or never  # Here and not on the screen only, which is gone now.
    if failure is not None:
        click.echo(f"vllm-watch: {failure}", err=True)
        return 1
    return 0


async def _until_ended(app: TopApp) -> None:
    """Run the application; a signal ends it so that the terminal is as before."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, app.exit)
    await app.run_async()
