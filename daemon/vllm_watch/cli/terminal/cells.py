# SPDX-License-Identifier: Apache-2.0
"""
The cells of a terminal's tables as text: numbers, ages, bars, sparklines, marks; and what a terminal can show.

Numbers have three significant digits; their unit is in the head. What is not known is a dash, never 0. Everything has
a form in ASCII, and no meaning is in a colour alone.
"""

from __future__ import annotations

import math
import sys
import unicodedata

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.support.printable import printable


ThemeName = Literal["dark", "light"]
THEME_NAMES: tuple[ThemeName, ...] = get_args(ThemeName)

_LIGHT_GROUNDS = frozenset({"7", "15"})
"""Of `COLORFGBG`: white, and bright white."""

_FEW_CHARACTERS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals whose fonts have few characters: the console of Linux has no sparklines and few symbols."""

_ALWAYS_UTF8 = (3, 15)
"""From this version on Python's mode of UTF-8 says nothing about the locale."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
CUT = "…"
"""The end of a text that was cut."""

_PARTS = 8
_LEAST_SECONDS = 0.1
"""Less has three decimals in seconds, so that it is no longer than the others."""


class Glyphs(NamedTuple):
    """
    The characters that cells are made of, each one column wide.

    Args:
        full, empty: Of a bar.
        parts: The end of a bar that is not quite full, by eighths.
        levels: Of a sparkline, from the lowest to the highest; a value of 0 has the lowest.
        arrows: What a column is sorted by: from the top, or the other way round.
        states: One for each state.
    """

    full: str
    empty: str
    parts: str
    levels: str
    arrows: str
    states: Mapping[EngineState, str]


UNICODE = Glyphs(
    full="█",
    empty="░",
    parts="▏▎▍▌▋▊▉",
    levels="▁▂▃▄▅▆▇█",
    arrows="▼▲",
    states={
        "idle": "○", "serving": "●", "starting": "◌", "sleeping": "◇", "unknown": "?", "saturated": "▲", "stalled": "■",
        "down": "✕",
    },
)  # fmt: skip
ASCII = Glyphs(
    full="#",
    empty=".",
    parts="",
    levels="_.:-=+*#",
    arrows="v^",
    states={
        "idle": ".", "serving": "+", "starting": "o", "sleeping": "z", "unknown": "?", "saturated": "!", "stalled": "#",
        "down": "x",
    },
)  # fmt: skip


class Cells:
    """
    Writes cells.

    Args:
        glyphs: What to write them with.
    """

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        self.glyphs = glyphs

    def bar(self, ratio: float | None, width: int) -> str:
        """Return a horizontal bar of this many columns; spaces where nothing is known."""
        if ratio is None or not math.isfinite(ratio):
            return " " * width
        share = min(max(ratio, 0.0), 1.0) * width
        whole = int(share)
        part = self.glyphs.parts[: int((share - whole) * _PARTS)][-1:]
        return (self.glyphs.full * whole + part).ljust(width, self.glyphs.empty)

    def sparkline(self, values: Sequence[float | None], width: int, top: float | None = None) -> str:
        """
        Return the last values as a line of this many columns, the latest at the right; a space where nothing is known.

        Args:
            values: Oldest first.
            width: Columns.
            top: What the highest level stands for; by default the highest of the values.
        """
        shown = values[-width:] if width > 0 else ()
        known = [value for value in shown if value is not None]
        highest = max(known, default=0.0) if top is None else top
        levels = [" " if value is None else self._level(value / highest if highest > 0 else 0.0) for value in shown]
        return "".join(levels).rjust(max(width, 0))

    def state(self, state: EngineState) -> str:
        """Return the character of a state, to be written before its name."""
        return self.glyphs.states[state]

    def _level(self, ratio: float) -> str:
        """Return a level: only 0 has the lowest, so that little differs from nothing."""
        levels = self.glyphs.levels
        return levels[min(math.ceil(min(max(ratio, 0.0), 1.0) * (len(levels) - 1)), len(levels) - 1)]


def latency_text(seconds: float | None, *, in_seconds: bool, digits: int = 3) -> str:
    """Return a latency in ms without the unit, or in seconds with it: ``58.3``, ``1,250``, ``12.5s``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    rounded = float(f"{seconds:.{digits - 1}e}")
    if rounded == 0:
        return "0s" if in_seconds else "0"
    if not in_seconds:
        return _in_digits(rounded * 1000, digits)
    return f"{_in_digits(rounded, digits) if rounded >= _LEAST_SECONDS else f'{rounded:.3f}'}s"


def age(seconds: float | None) -> str:
    """Return a time since something in its largest unit: ``now``, ``3 s``, ``4 min``, ``2 d``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, ""))
    return f"{int(seconds // size)} {unit}" if unit else "now"


def ago(seconds: float) -> str:
    """Return a time in the past: ``3 s ago``, ``now``."""
    text = age(seconds)
    return text if text == "now" else f"{text} ago"


def fit(text: str, width: int) -> str:
    """Return a text in exactly this many columns: cut with a mark, or padded on its right."""
    safe = printable(text)
    if columns(safe) > width:
        safe = _cut(safe, width - 1) + CUT if width > 0 else ""
    return safe + " " * (width - columns(safe))


def _in_digits(value: float, digits: int) -> str:
    """Return a positive number with so many significant digits, thousands apart."""
    decimals = max(digits - 1 - math.floor(math.log10(value) + 1e-9), 0)
    return f"{value:,.{decimals}f}"


def columns(text: str) -> int:
    """Return how many columns a terminal needs for a text: two for a character of East Asian width, none for marks."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    kept, used = [], 0
    for char in text:
        used += _columns_of(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept)


def theme_of_terminal(environment: Mapping[str, str]) -> ThemeName:
    """Return the theme that suits the ground of a terminal, if that says so in ``COLORFGBG``: ``0;15`` is light."""
    return "light" if environment.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_GROUNDS else "dark"


def has_unicode(environment: Mapping[str, str], *, is_utf8_mode: bool = bool(sys.flags.utf8_mode)) -> bool:
    """
    Whether a terminal shows more than ASCII.

    Args:
        environment: The variables of the process.
        is_utf8_mode: Whether Python is in its mode of UTF-8. In the locale C and in one that is not installed it turns
            that on by itself, and changes `LC_CTYPE`, so that the encoding of its streams does not tell them apart.
    """
    if environment.get("TERM", "") in _FEW_CHARACTERS:
        return False
    if is_utf8_mode and not environment.get("PYTHONUTF8") and sys.version_info < _ALWAYS_UTF8:
        return False
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG", "")
    return "utf8" in locale.lower().replace("-", "")
