# SPDX-License-Identifier: Apache-2.0
"""What a terminal can show, as far as its environment says so."""

from __future__ import annotations

import sys

from collections.abc import Mapping
from typing import Literal, get_args


ThemeName = Literal["dark", "light"]
THEME_NAMES: tuple[ThemeName, ...] = get_args(ThemeName)

_LIGHT_GROUNDS = frozenset({"7", "15"})
"""Of `COLORFGBG`: white, and bright white."""

_FEW_CHARACTERS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals whose fonts have few characters: the console of Linux has no sparklines and few symbols."""

_ALWAYS_UTF8 = (3, 15)
"""From this version on Python's mode of UTF-8 says nothing about the locale."""


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
