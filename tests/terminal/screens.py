# SPDX-License-Identifier: Apache-2.0
"""Runs the application without a terminal, and writes down what is on its screen."""

from __future__ import annotations

import contextlib
import time

from tests.support.waiting import SECONDS, STEPS
from textual.widgets import Footer

from vllm_watch.cli.terminal.app import TopApp
from vllm_watch.cli.terminal.screens import ROLES


@contextlib.asynccontextmanager
async def running(source, size=(80, 24), theme="dark", **options):
    """Run the application over a source that a test holds; yield it with the pilot that presses keys."""
    app = TopApp(source, theme, tick=None, **options)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


async def settle(app, pilot):
    """Wait until the screen has its footer, if any: textual draws that after the rest, on a busy machine much later."""
    end = time.monotonic() + SECONDS
    await pilot.pause()
    while any(footer.display for footer in app.screen.query(Footer)) and not lines(app)[-1]:
        assert time.monotonic() < end, text(app)
        await pilot.pause(STEPS[-1])


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
