# SPDX-License-Identifier: Apache-2.0
"""
Writes the README's picture of `top`, as the application draws it: ``python -m tests.terminal.picture``.

What is in it are recorded servers, and the picture is textual's own of its screen.
"""

from __future__ import annotations

import asyncio
import re
import sys

from pathlib import Path

from msgspec.structs import replace
from tests.terminal.made_up import HandSource
from tests.terminal.recorded import recorded_frame, recorded_server, two_engines
from tests.terminal.screens import running


PICTURE = Path(__file__).parents[2] / "daemon" / "top.svg"
SIZE = (110, 30)

_NAMES = {
    "stalled": "chat-2",
    "saturated": "chat-1",
    "sleeping": "batch-1",
    "serving": "code-1",
    "two-engines": "code-2",
    "idle": "embed-1",
}
"""The servers of the picture, as an operator may call them, by what each does."""

_ELSEWHERE = re.compile(r"\s*@font-face \{.*?\}|\s*<!--.*?-->", re.DOTALL)
"""Fonts of another host, and who made the picture."""

_NUMBER = re.compile(r"terminal-\d+")
"""What rich gives the classes so that an HTML file may have several pictures; it is another one each time."""


def picture():
    """Return the picture as SVG; it asks no other host for fonts."""

    async def draw():
        servers = [two_engines() if state == "two-engines" else recorded_server(state) for state in _NAMES]
        named = [server._replace(document=replace(server.document, name=_NAMES[server.name])) for server in servers]
        async with running(HandSource(recorded_frame(*named)), SIZE) as (app, pilot):
            await pilot.press("down")
            await pilot.pause()
            await pilot.pause()  # The scroll bar comes after what it scrolls.
            return app.export_screenshot()

    return _NUMBER.sub("terminal", _ELSEWHERE.sub("", asyncio.run(draw())))


def main():
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")
    sys.stderr.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()
