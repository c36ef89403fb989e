# SPDX-License-Identifier: Apache-2.0
"""
What each role looks like: on a dark and on a light ground, and without colours.

Good is blue and bad is orange, which nearly everybody can tell apart, and the bad states are filled, so that they
differ without their colour, too. The colours are exact; textual takes the nearest where a terminal has 256 or 16 of
them. The ground is drawn as well: what a terminal's own ground is, and whether text can be read on it, is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

from vllm_watch.cli.terminal.lines import Role
from vllm_watch.cli.terminal.model import ThemeName


def _styles(texts: Mapping[Role, str]) -> Mapping[Role, Style]:
    return {role: Style.parse(text) for role, text in texts.items()}


DARK: Mapping[Role, Style] = _styles({
    "ground": "#d8dce2 on #101418",
    "text": "none",
    "dim": "#9aa1ac",
    "label": "#a9b4c2",
    "strong": "bold #ffffff",
    "title": "#ffffff on #1d4166",
    "head": "#b5cbe2 on #1e2731",
    "sorted": "bold #ffffff on #1d4166",
    "selected": "on #1f3852",
    "bar": "#5cb8ff",
    "full": "#ffb347",
    "spark": "#5cb8ff",
    "over": "bold #ffb347",
    "wrong": "#ffb347",
    "note": "#d8dce2",
    "alarm": "bold #101418 on #ffb347",
    "key": "bold #7cc4ff",
    "idle": "#a3b4c6",
    "serving": "bold #5cb8ff",
    "starting": "#c3b0ff",
    "sleeping": "#a3b4c6",
    "unknown": "underline #d8dce2",
    "saturated": "bold #101418 on #ffc266",
    "stalled": "bold #101418 on #ff8f3c",
    "down": "bold #ffffff on #b33c00",
})  # fmt: skip

LIGHT: Mapping[Role, Style] = _styles({
    "ground": "#1b1f24 on #ffffff",
    "text": "none",
    "dim": "#4c555f",
    "label": "#4b5560",
    "strong": "bold #000000",
    "title": "#ffffff on #1d4f80",
    "head": "#1f3d5c on #dde6ef",
    "sorted": "bold #ffffff on #1d4f80",
    "selected": "on #bdd3ea",
    "bar": "#083f96",
    "full": "#b34700",
    "spark": "#083f96",
    "over": "bold #8f2a00",
    "wrong": "#a84300",
    "note": "#1b1f24",
    "alarm": "bold #000000 on #ffb347",
    "key": "bold #083f96",
    "idle": "#4b5560",
    "serving": "bold #083f96",
    "starting": "#4f2a90",
    "sleeping": "#4b5560",
    "unknown": "underline #1b1f24",
    "saturated": "bold #000000 on #ffc266",
    "stalled": "bold #000000 on #ff8f3c",
    "down": "bold #ffffff on #b33c00",
})  # fmt: skip

MONOCHROME: Mapping[Role, Style] = _styles({
    "ground": "none",
    "text": "none",
    "dim": "dim",
    "label": "none",
    "strong": "bold",
    "title": "reverse",
    "head": "underline",
    "sorted": "bold underline reverse",
    "selected": "reverse",
    "bar": "none",
    "full": "bold",
    "spark": "none",
    "over": "bold",
    "wrong": "bold",
    "note": "none",
    "alarm": "bold reverse",
    "key": "bold",
    "idle": "none",
    "serving": "none",
    "starting": "none",
    "sleeping": "none",
    "unknown": "underline",
    "saturated": "bold reverse underline",
    "stalled": "bold reverse underline",
    "down": "bold reverse underline",
})  # fmt: skip
"""The attributes of a terminal alone: its own colours stay, whatever they are."""

_LIGHT_GROUNDS = frozenset({"7", "15"})
"""Of `COLORFGBG`: white, and bright white."""


def theme_of_terminal(environment: Mapping[str, str]) -> ThemeName:
    """Return the theme that suits the ground of a terminal, if that says so in ``COLORFGBG``: ``0;15`` is light."""
    return "light" if environment.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_GROUNDS else "dark"


def looks(theme: ThemeName, *, has_color: bool) -> Mapping[Role, Style]:
    """Return what each role looks like."""
    if not has_color:
        return MONOCHROME
    return LIGHT if theme == "light" else DARK


def themes() -> list[Theme]:
    """Return the themes for what textual draws itself."""
    return [_theme("dark", DARK), _theme("light", LIGHT)]


def _theme(name: ThemeName, styles: Mapping[Role, Style]) -> Theme:
    text, ground, key = styles["ground"].color, styles["ground"].bgcolor, styles["key"].color
    return Theme(
        name=f"vllm-watch-{name}",
        primary=_hex(key),
        foreground=_hex(text),
        background=_hex(ground),
        surface=_hex(ground),
        dark=name == "dark",
    )


def _hex(color: Color | None) -> str:
    return color.name if color is not None else ""
