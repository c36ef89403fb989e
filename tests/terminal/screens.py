# SPDX-License-Identifier: Apache-2.0
"""Runs the application without a terminal, and writes down what is on its screen."""

from __future__ import annotations

import asyncio
import contextlib
import time

from unittest.mock import patch

from tests.support.waiting import SECONDS, STEPS
from textual.widgets import Footer

from vllm_watch.cli.terminal.app import TopApp
from vllm_watch.cli.terminal.screens import ROLES


QUIET = 2
"""Looks in a row that find nothing to do."""


@contextlib.asynccontextmanager
async def running(source, size=(80, 24), theme="dark", **options):
    """Run the application over a source that a test holds; yield it with the pilot that presses keys."""
    app = TopApp(source, theme, tick=None, **options)

    async def rest(*_):
        """Take the place of textual's wait, which takes an application that a busy machine starves for an idle one."""
        end = time.monotonic() + SECONDS
        quiet = 0
        while quiet < QUIET:
            assert time.monotonic() < end, text(app)
            await asyncio.sleep(STEPS[-1])
            app.screen._on_timer_update()
            quiet = 0 if is_busy(app) else quiet + 1

    with patch("textual.pilot.wait_for_idle", rest), patch("textual.app.wait_for_idle", rest):
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield app, pilot


def is_busy(app):
    """Tell whether a message waits, a change of size does, or something is still to be laid out or drawn."""
    screen = app.screen
    return (
        any(node.message_queue_size or node._next_callbacks for node in (app, *screen.walk_children(with_self=True)))
        or app._resize_event is not None
        or screen.size != app.size
        or screen._layout_required
        or bool(screen._callbacks or screen._dirty_widgets)
        # Textual draws the footer after the rest, where there is room for it.
        or (app.size.height >= 10 and any(screen.query(Footer)) and not lines(app)[-1])
    )


def strips(app):
    """Return the lines of the screen, each as its pieces with their styles."""
    return [list(strip) for strip in app.screen._compositor.render_strips()]


def lines(app):
    """Return the lines of the screen, without the blanks at their ends."""
    return ["".join(piece.text for piece in strip).rstrip() for strip in strips(app)]


def text(app):
    """Return the screen as one text."""
    return "\n".join(lines(app)).rstrip() + "\n"


def role_of(app, word):
    """Return the role of the first piece on the screen that has a word."""
    style = next(piece.style for strip in strips(app) for piece in strip if word in piece.text)
    for role in ROLES[::-1]:
        look = app.screen.get_component_rich_style(f"role--{role}", partial=True)
        if role != "text" and (look.color, bool(look.bold)) == (style.color, bool(style.bold)):
            return role
    return "text"
