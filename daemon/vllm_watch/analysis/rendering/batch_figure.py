# SPDX-License-Identifier: Apache-2.0
"""How large the batches were: the share of engine steps with so many tokens."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.load_test import Distribution
from vllm_watch.analysis.rendering.distributions import is_known
from vllm_watch.analysis.rendering.document import Column, Figure, plain_table
from vllm_watch.analysis.rendering.svg import drawing, label
from vllm_watch.analysis.rendering.svg_axes import AXIS_HEIGHT, base, upright_axis
from vllm_watch.analysis.rendering.svg_scales import Plot, Scale, linear
from vllm_watch.analysis.rendering.svg_styles import bar
from vllm_watch.daemon.catalog.number_texts import limit, percent, significant, spread


_TOP = 16
_HEIGHT = 160
_GAP = 0.12
_TITLE = "Batch size: share of engine steps"


def batch_figure(distribution: Distribution | None, key: str) -> Figure | None:
    """Return the shares of the engine's steps by their number of tokens; `None` if they are not known."""
    if distribution is None or not is_known(distribution):
        return None
    buckets = _filled(distribution)
    y = linear((share * 100 for _, _, share in buckets), ticks=3)
    width = 1 / len(buckets)
    plot = Plot(Scale(0.0, 1.0, ()), y, _TOP, _HEIGHT)
    parts = [upright_axis(plot)]
    for at, (low, high, share) in enumerate(buckets):
        _, top = plot.place(0, share * 100)
        parts.append(bar(0, (at + _GAP) * width, (at + 1 - _GAP) * width, top, plot.bottom - top))
        style = "tick minor" if at % 2 and len(buckets) > 6 else "tick"
        text = f"≤ {limit(high)}" if high is not None else f"> {limit(low or 0)}"
        parts.append(label(text, (at + 0.5) * width, plot.bottom + 15, style))
    parts.append(base(plot.bottom, "Tokens in a step"))
    most = max(buckets, key=lambda bucket: bucket[2])
    description = f"Most steps, {percent(most[2])} %, had {spread(most[0], most[1])} tokens."
    svg = drawing(key, _TITLE, description, _TOP + _HEIGHT + AXIS_HEIGHT, *parts)
    rows = tuple((spread(low, high), significant(share * 100)) for low, high, share in buckets)
    table = plain_table("Shares of the steps", (Column("Tokens"), Column("Steps", "%")), rows)
    return Figure(key, _TITLE, svg, table=table)


def _filled(distribution: Distribution) -> list[tuple[float | None, float | None, float]]:
    """Return the bounds and the share of each bucket, without the empty ones at both ends."""
    total = sum(distribution.counts)
    ends = [None, *distribution.bounds, None]
    buckets = [(ends[at], ends[at + 1], each / total) for at, each in enumerate(distribution.counts)]
    filled = [at for at, bucket in enumerate(buckets) if bucket[2] > 0]
    return buckets[filled[0] : filled[-1] + 1]
