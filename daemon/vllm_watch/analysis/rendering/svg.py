# SPDX-License-Identifier: Apache-2.0
"""SVG elements as text, and the styles of their lines and marks."""

from __future__ import annotations

import html

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from vllm_watch.daemon.support.printable import printable


LAYER_WIDTH = 1000
"""The units across a layer."""

Attributes: TypeAlias = Mapping[str, float | str]

_BESIDE = {"start": {"dx": "4"}, "end": {"dx": "-4"}}

_SAMPLE_WIDTH = 28


def element(name: str, attributes: Attributes, *children: str) -> str:
    """Return an element; its attributes are escaped, its children are elements or escaped texts."""
    written = "".join(f' {key}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def escaped(text: str) -> str:
    """Return a text as HTML and SVG show it, with everything escaped that cannot be seen."""
    return html.escape(printable(text))


def number(value: float) -> str:
    """Return a coordinate, to a tenth of a pixel."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # The sum makes 0 of -0.


def across(share: float) -> str:
    """Return a place across the drawing, from 0 to 1, as per cent."""
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + "%"


def drawing(key: str, title: str, description: str, height: float, *children: str) -> str:
    """Return a whole drawing that a screen reader reads as its title and description."""
    attributes: Attributes = {
        "class": "drawing",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-desc",
        "width": "100%",
        "height": height,
    }
    named = (
        element("title", {"id": f"{key}-title"}, escaped(title)),
        element("desc", {"id": f"{key}-desc"}, escaped(description)),
    )
    return element("svg", attributes, *named, *children)


def layer(top: float, height: float, *children: str) -> str:
    """Return a part of a drawing that is stretched to its width: `LAYER_WIDTH` units across, pixels down."""
    attributes: Attributes = {
        "y": top,
        "width": "100%",
        "height": height,
        "viewBox": f"0 0 {LAYER_WIDTH} {number(height)}",
        "preserveAspectRatio": "none",
        "overflow": "visible",
    }
    return element("svg", attributes, *children)


def label(text: str, share: float, top: float, style: str = "label", anchor: str = "middle") -> str:
    """
    Return a text at a place across, its base line at `top` pixels.

    Args:
        text: What is written.
        share: The place across, from 0 to 1.
        top: The base line, in pixels from the top.
        style: The classes of the text.
        anchor: Which part of the text is at the place: its ``middle``, or, some pixels beside it, its start or end.
    """
    attributes = {"class": style, "x": across(share), "y": number(top), "text-anchor": anchor}
    return element("text", attributes | _BESIDE.get(anchor, {}), escaped(text))


def upright(share: float, top: float, bottom: float, style: str) -> str:
    """Return an upright line at a place across."""
    place = across(share)
    return element("line", {"class": style, "x1": place, "x2": place, "y1": top, "y2": bottom})


def _value(value: float | str) -> str:
    return html.escape(value) if isinstance(value, str) else number(value)


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


def style_rules() -> str:
    """Return the rules of the styles: ``--c0`` and so on are the colours, ``s0`` and so on the classes."""
    light = "".join(f"--c{at}:{style.light};" for at, style in enumerate(STYLES))
    dark = "".join(f"--c{at}:{style.dark};" for at, style in enumerate(STYLES))
    rules = "".join(
        f".s{at}{{--c:var(--c{at})}}.line.s{at}{{stroke-dasharray:{style.dashes}}}" for at, style in enumerate(STYLES)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"


def style_class(style: int) -> str:
    """Return the class of a style."""
    return f"s{style % len(STYLES)}"


def mark(style: int, share: float, top: float) -> str:
    """Return a mark at a place across; it keeps its shape however wide the drawing is."""
    path = element("path", {"class": f"mark {style_class(style)}", "d": STYLES[style % len(STYLES)].mark})
    return element("svg", {"x": across(share), "y": top, "overflow": "visible"}, path)


def sample(style: int, *, is_marked: bool) -> str:
    """Return a small drawing of a line for a legend."""
    line = element("path", {"class": f"line {style_class(style)}", "d": f"M0 7H{_SAMPLE_WIDTH}"})
    marks = [mark(style, 0.5, 7)] if is_marked else []
    size: Attributes = {"class": "sample", "width": _SAMPLE_WIDTH, "height": 14, "aria-hidden": "true"}
    return element("svg", size, line, *marks)


def bar(style: int, left: float, right: float, top: float, height: float) -> str:
    """Return an upright bar between two places across."""
    place: Attributes = {"x": across(left), "width": across(right - left), "y": top, "height": height}
    return element("rect", {"class": f"bar {style_class(style)}", **place})
