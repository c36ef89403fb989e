# SPDX-License-Identifier: Apache-2.0
"""
Colours that people with any kind of colour vision tell apart: those of Okabe and Ito.

Their yellow and black are left out, for one cannot be read on white and the other not on Grafana's dark ground. A
quantity has one colour on all dashboards. Red and magenta are of states that answer nobody, and red of critical alerts.
"""

from __future__ import annotations

from typing import Final


SKY: Final = "#56B4E9"
BLUE: Final = "#0072B2"
GREEN: Final = "#009E73"
ORANGE: Final = "#E69F00"
VERMILLION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#8E8E93"
DARK_GREY: Final = "#5F6368"
RED: Final = "#E02F44"
MAGENTA: Final = "#D01C8B"
TEXT: Final = "text"
"""Grafana's own name of the colour of plain text, light or dark: what is neither good nor bad."""

COLORS: Final = (SKY, ORANGE, GREEN, PURPLE, BLUE, VERMILLION, GREY)
"""For series, those first that are easiest to tell from their neighbours."""

EVERY: Final = (*COLORS, DARK_GREY, RED, MAGENTA, TEXT)
"""Also what only states have, severities and figures: dark grey would be lost as a thin line on a dark ground."""

GOOD: Final = GREEN
WARNING: Final = ORANGE
BAD: Final = VERMILLION
PLAIN: Final = SKY
LIMIT: Final = VERMILLION
"""Of the line that a quantity should stay on one side of."""
