# SPDX-License-Identifier: Apache-2.0
"""Runs the application without a terminal, and writes down what is on its screen."""

from __future__ import annotations

import contextlib

from vllm_watch.cli.terminal.app import TopApp
from vllm_watch.cli.terminal.model import ViewOptions


PLAIN = {"text", "ground"}


@contextlib.asynccontextmanager
async def running(source, size=(80, 24), theme="dark", **options):
    """Run the application over a source that a test holds; yield it with the pilot that presses keys."""
    app = TopApp(source, ViewOptions(**options), theme, tick=None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def lines(app):
    """Return the lines of the screen, without the blanks at their ends."""
    return [line.text.rstrip() for line in app.screen.canvas.shown_lines()]


def text(app):
    """Return the screen as one text."""
    return "\n".join(lines(app)).rstrip()


def written(app):
    """Return the lines of the screen and, below them, which role each part has that is more than text."""
    shown = app.screen.canvas.shown_lines()
    return "\n".join([*lines(app), "", *(_roles(number, line) for number, line in enumerate(shown, 1)), ""])


def role_of(app, word):
    """Return the role of the first piece on the screen that has a word."""
    return next(span.role for line in app.screen.canvas.shown_lines() for span in line.spans if word in span.text)


def _roles(number, line):
    parts, column = [], 0
    for span in line.spans:
        if span.role not in PLAIN and span.text.strip():
            parts.append(f"{column}+{len(span.text)} {span.role}")
        column += len(span.text)
    base = "" if line.base in PLAIN else f" on {line.base}"
    return f"{number}{base}: {', '.join(parts)}"
