# SPDX-License-Identifier: Apache-2.0
"""
The cells of a terminal's tables as text: numbers, ages, bars, sparklines, marks; and what a terminal can show.

Numbers have three significant digits; their unit is in the head. What is not known is a dash, never 0. Everything has
a form in ASCII, and no meaning is in a colour alone.
"""

from __future__ import annotations

import math
import unicodedata

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.support.printable import printable


ThemeName = Literal["dark", "light"]
THEME_NAMES: tuple[ThemeName, ...] = get_args(ThemeName)

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
CUT = "…"
"""The end of a text that was cut."""

_PARTS = "▏▎▍▌▋▊▉"
"""The end of a bar that is not quite full, by eighths."""

_LEAST_SECONDS = 0.1
"""Less has three decimals in seconds, so that it is no longer than the others."""


_LEVELS = "▁▂▃▄▅▆▇█"
"""Of a sparkline, from the lowest to the highest; a value of 0 has the lowest."""

STATE_SYMBOLS: Mapping[EngineState, str] = {
    "idle": "○", "serving": "●", "starting": "◌", "sleeping": "◇", "unknown": "?", "saturated": "▲", "stalled": "■",
    "down": "✕",
}  # fmt: skip


def bar(ratio: float | None, width: int) -> str:
    """Return a horizontal bar of this many columns; spaces where nothing is known."""
    if ratio is None or not math.isfinite(ratio):
        return " " * width
    share = min(max(ratio, 0.0), 1.0) * width
    whole = int(share)
    part = _PARTS[: int((share - whole) * (len(_PARTS) + 1))][-1:]
    return ("█" * whole + part).ljust(width, "░")


def sparkline(values: Sequence[float | None], width: int, top: float) -> str:
    """
    Return the last values as a line of this many columns, the latest at the right; a space where nothing is known.

    Args:
        values: Oldest first.
        width: Columns.
        top: What the highest level stands for.
    """
    shown = values[-width:] if width > 0 else ()
    return "".join(" " if value is None else _level(value / top if top > 0 else 0.0) for value in shown).rjust(width)


def _level(ratio: float) -> str:
    """Return a level: only 0 has the lowest, so that little differs from nothing."""
    return _LEVELS[min(math.ceil(min(max(ratio, 0.0), 1.0) * (len(_LEVELS) - 1)), len(_LEVELS) - 1)]


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
