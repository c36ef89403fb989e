# SPDX-License-Identifier: Apache-2.0
"""
The colours of each role, on a dark and on a light ground; ``top.tcss`` says what is bold or underlined.

Good is blue and bad is orange, which nearly everybody can tell apart, and the bad states are filled, so that they
differ without their colour, too. The ground is drawn as well: what a terminal's own ground is, and whether text can be
read on it, is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

from vllm_watch.cli.terminal.cells import ThemeName


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
