# SPDX-License-Identifier: Apache-2.0
"""
SVG elements as text.

A drawing has the width of the page and a height in pixels. It has no view box: one unit is one pixel, so text has the
same size on a phone as on a wide screen. What must stretch is placed in per cent, or is in a layer: an inner drawing
of 1,000 units that is stretched to the width, whose lines keep their thickness.
"""

from __future__ import annotations

import html

from collections.abc import Mapping
from typing import TypeAlias

from vllm_watch.daemon.support.printable import printable


LAYER_WIDTH = 1000
"""The units across a layer."""

Attributes: TypeAlias = Mapping[str, float | str]

_BESIDE = {"start": {"dx": "4"}, "end": {"dx": "-4"}}


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
