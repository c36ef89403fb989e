# SPDX-License-Identifier: Apache-2.0
"""
How lines and marks are told apart: by colour, by dashes and by the shape of the mark, each enough alone.

The colours are Okabe and Ito's, darker on a light ground, so that people with any kind of colour vision can tell them
apart.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.analysis.rendering.svg import Attributes, across, element, layer
from vllm_watch.analysis.rendering.svg_scales import Plot


class Style(NamedTuple):
    """A line's colour on a light and on a dark ground, its dashes, and the path of its mark around 0, 0."""

    light: str
    dark: str
    dashes: str
    mark: str


STYLES = (
    Style("#0072b2", "#56b4e9", "none", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    Style("#c25400", "#e69f00", "7 3", "M-3.6-3.6h7.2v7.2h-7.2z"),
    Style("#00785a", "#2fc79b", "2 3", "M0-4.6L4.6 3.6H-4.6z"),
    Style("#a3215c", "#e078ad", "9 3 2 3", "M0-5L5 0L0 5L-5 0z"),
    Style("#5a6572", "#aab4bf", "12 4", "M0 4.6L4.6-3.6H-4.6z"),
    Style("#7a5a00", "#f0e442", "4 2 1 2 1 2", "M-4.4-1.5h2.9v-2.9h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9z"),
)
"""The styles in the order in which they are used; more lines than these begin anew."""

_SAMPLE_WIDTH = 28


def css() -> str:
    """Return the rules of the styles: ``--c0`` and so on are the colours, ``s0`` and so on the classes."""
    light = "".join(f"--c{at}:{style.light};" for at, style in enumerate(STYLES))
    dark = "".join(f"--c{at}:{style.dark};" for at, style in enumerate(STYLES))
    rules = "".join(
        f".s{at}{{--c:var(--c{at})}}.line.s{at}{{stroke-dasharray:{style.dashes}}}" for at, style in enumerate(STYLES)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"


def name(style: int) -> str:
    """Return the class of a style."""
    return f"s{style % len(STYLES)}"


def mark(style: int, share: float, top: float) -> str:
    """Return a mark at a place across; it keeps its shape however wide the drawing is."""
    path = element("path", {"class": f"mark {name(style)}", "d": STYLES[style % len(STYLES)].mark})
    return element("svg", {"x": across(share), "y": top, "overflow": "visible"}, path)


def sample(style: int, *, is_marked: bool) -> str:
    """Return a small drawing of a line for a legend."""
    line = element("path", {"class": f"line {name(style)}", "d": f"M0 7H{_SAMPLE_WIDTH}"})
    marks = [mark(style, 0.5, 7)] if is_marked else []
    size: Attributes = {"class": "sample", "width": _SAMPLE_WIDTH, "height": 14, "aria-hidden": "true"}
    return element("svg", size, line, *marks)


def bar(style: int, left: float, right: float, top: float, height: float) -> str:
    """Return an upright bar between two places across."""
    place: Attributes = {"x": across(left), "width": across(right - left), "y": top, "height": height}
    return element("rect", {"class": f"bar {name(style)}", **place})


def polyline(style: int, plot: Plot, path: str) -> str:
    """Return a line in the layer of a plot; nothing if its path is empty."""
    line = element("path", {"class": f"line {name(style)}", "d": path})
    return layer(plot.top, plot.height, line) if path else ""
