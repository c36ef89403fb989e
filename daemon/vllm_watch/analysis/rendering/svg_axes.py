# SPDX-License-Identifier: Apache-2.0
"""The frame of a plot: lines and numbers at its ticks. The numbers of the upright axis are left of the drawing."""

from __future__ import annotations

from collections.abc import Callable

from vllm_watch.analysis.rendering.svg import Attributes, across, element, label, upright
from vllm_watch.analysis.rendering.svg_scales import Plot
from vllm_watch.daemon.catalog.number_texts import duration, limit


AXIS_HEIGHT = 36
"""The pixels below a plot that its level axis takes, with its title."""

_SMALL = 4
_BELOW = 15
_TITLE_BELOW = 31


def upright_axis(plot: Plot, show: Callable[[float], str] = limit) -> str:
    """Return the level lines of a plot at the ticks of its upright axis, with their numbers."""
    parts = []
    for tick in plot.y.ticks:
        _, y = plot.place(plot.x.low, tick)
        parts.append(element("line", {"class": "grid", "x1": "0", "x2": "100%", "y1": y, "y2": y}))
        parts.append(label(show(tick), 0, y + _SMALL, "tick", "end"))
    return "".join(parts)


def level_axis(plot: Plot, title: str, show: Callable[[float], str] = limit, *, has_grid: bool = True) -> str:
    """Return the level axis below a plot, with upright lines through it if they help, and the axis's title."""
    parts = []
    for at, tick in enumerate(plot.x.ticks):
        share = plot.x.share(tick)
        if has_grid:
            parts.append(upright(share, plot.top, plot.bottom, "grid"))
        # On a narrow screen every other number is hidden.
        parts.append(label(show(tick), share, plot.bottom + _BELOW, "tick minor" if at % 2 else "tick"))
    return "".join(parts) + base(plot.bottom, title)


def base(bottom: float, title: str) -> str:
    """Return the line that a plot's values begin at, and the title of its level axis."""
    line = element("line", {"class": "frame", "x1": "0", "x2": "100%", "y1": bottom, "y2": bottom})
    return line + label(title, 1, bottom + _TITLE_BELOW, "axis-title", "end")


def band(left: float, right: float, top: float, height: float, style: str) -> str:
    """Return a rectangle behind a plot, between two places across."""
    place: Attributes = {"x": across(left), "width": across(max(right - left, 0.0)), "y": top, "height": height}
    return element("rect", {"class": style, **place})


def since_start(seconds: float) -> str:
    """Return a tick of time since the start."""
    return "0" if seconds == 0 else duration(seconds)
