# SPDX-License-Identifier: Apache-2.0
"""What is drawn can be read: on dark and light grounds, with 16 colours, and without any."""

from __future__ import annotations

import asyncio
import functools

import pytest

from rich._palettes import STANDARD_PALETTE
from rich.color import ColorSystem
from rich.style import Style
from tests.terminal.made_up import HandSource, every_state
from tests.terminal.screens import running, strips

from vllm_watch.cli.terminal.cells import STATE_SYMBOLS
from vllm_watch.cli.terminal.screens import ROLES, ServerTable
from vllm_watch.daemon.catalog.states import ENGINE_STATES


ON_A_SELECTED_LINE = {"text", "strong", "dim", "over", *ENGINE_STATES}


@functools.cache
def looks(theme, *, has_color=True):
    """Return how each role looks on the screen, and on the line that is selected."""

    async def run():
        async with running(HandSource(every_state()), theme=theme, has_color=has_color) as (app, _):
            screen = app.screen
            parts = {
                role: screen.get_component_rich_style(f"role--{role}", partial=True)
                for role in ROLES[8:]
                if role != "text"
            }
            parts |= {state: screen.get_component_rich_style(f"role--{state}", partial=True) for state in ENGINE_STATES}
            cursor = screen.query_one(ServerTable).get_component_rich_style("datatable--cursor")
            return screen.rich_style, cursor, {"text": Style(), **parts}

    ground, cursor, parts = asyncio.run(run())
    whole = {role: ground + style for role, style in parts.items()}
    return whole, {role: cursor + parts[role] for role in ON_A_SELECTED_LINE}


def luminance(triplet):
    """Return how bright a colour is, from 0 to 1, as WCAG defines it."""
    parts = [part / 255 for part in triplet]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(style, system):
    """Return the contrast of text and ground, from 1 to 21, in the colours of a kind of terminal."""
    pair = [style.color, style.bgcolor]
    if system is ColorSystem.STANDARD:
        pair = [STANDARD_PALETTE[color.downgrade(system).number] for color in pair]
    else:
        pair = [color.triplet for color in pair]
    bright = sorted(map(luminance, pair))
    return (bright[1] + 0.05) / (bright[0] + 0.05)


@pytest.mark.parametrize(("system", "least"), [(ColorSystem.TRUECOLOR, 4.5), (ColorSystem.STANDARD, 2.9)])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_role_can_be_read(theme, system, least):
    """Each role has the contrast that WCAG asks of text, and enough where a terminal has 16 colours only."""
    whole, selected = looks(theme)
    found = {**{(role, "selected"): contrast(style, system) for role, style in selected.items()}}
    found |= {(role, ""): contrast(style, system) for role, style in whole.items()}

    assert {} == {key: round(value, 2) for key, value in found.items() if value < least}


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_selected_line_and_the_first_one_are_seen(theme, system):
    """The ground of the selected line and of the first one is another than that of the screen, however few colours."""
    whole, selected = looks(theme)
    ground, *others = (
        style.bgcolor.triplet if system is ColorSystem.TRUECOLOR else style.bgcolor.downgrade(system).number
        for style in (whole["text"], selected["text"], whole["title"])
    )

    assert ground not in others


def test_states_differ_without_their_colour():
    """Bad states are filled and bold; no two states have the same look and the same symbol, with colours or without."""
    for has_color in (True, False):
        styles, _ = looks("dark", has_color=has_color)
        ground = styles["text"].bgcolor
        filled = {state for state in ENGINE_STATES if styles[state].bgcolor != ground or styles[state].reverse}
        assert {"saturated", "stalled", "down"} == filled
        assert all(styles[state].bold for state in filled)
        assert len({(str(styles[state]), STATE_SYMBOLS[state]) for state in ENGINE_STATES}) == len(ENGINE_STATES)


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["1", ""])
def test_without_colours_none_is_written(monkeypatch, variable):
    """Without colours no piece of the screen has one, not even the ground, and bad states are in reverse."""
    monkeypatch.setenv("NO_COLOR", variable)

    async def run():
        async with running(HandSource(every_state()), has_color=False) as (app, pilot):
            await pilot.press("slash", "g")
            await pilot.pause()
            return [segment for strip in strips(app) for segment in strip]

    segments = asyncio.run(run())

    colours = {color.name for _, style, _ in segments for color in (style.color, style.bgcolor) if color is not None}
    assert {"default"} >= colours
    assert any(style.reverse for word, style, _ in segments if "stalled" in word)
