# SPDX-License-Identifier: Apache-2.0
"""The single requests of a client: why some failed, how TTFT grows with the prompt, and the slowest."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.analysis.loadtest.load_test import PromptSlope, Run
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Figure,
    Paragraph,
    Table,
    known_table,
    plain_table,
    said_columns,
)
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import count, limit, milliseconds, significant


_COLUMNS = (
    Column(N_("No.")),
    Column(N_("Sent after"), "s"),
    Column(N_("Prompt"), "tokens"),
    Column(N_("Answer"), "tokens"),
    Column("TTFT", "ms"),
    Column("E2EL", "ms"),
)
_TITLE = N_("TTFT by the length of the prompt")
_TOP, _HEIGHT = 14, 220


def request_blocks(run: Run) -> tuple[Block, ...]:
    """Return what the requests show; nothing if the client wrote nothing of them."""
    details = run.requests
    if details is None:
        return ()
    blocks: list[Block] = []
    if details.errors:
        blocks.append(Paragraph(_("Failed: {errors}.", errors=errors_text(details.errors))))
    if details.slope is not None:
        blocks.append(Paragraph(_slope_text(details.slope)))
    rows = tuple(
        (
            count(each.number),
            significant(each.start_s),
            count(each.prompt_tokens),
            count(each.output_tokens),
            significant(each.ttft_ms),
            significant(each.e2el_ms),
        )
        for each in details.slowest
    )
    if rows:
        blocks.append(known_table(_("The slowest"), said_columns(_COLUMNS), rows))
    return tuple(blocks)


def errors_text(errors: Mapping[str, int]) -> str:
    """Return how many requests failed for which reason: ``14 times HTTP 503, 6 times timeout``."""
    return listed(f"{count(number)} \u00d7 {reason}" for reason, number in errors.items())


def prompt_figure(run: Run, key: str) -> Figure | None:
    """Return TTFT against the length of the prompt, a mark for each request; `None` if that is not known."""
    points = () if run.requests is None else run.requests.ttft_by_prompt
    if len(points) < 2:
        return None
    x, y = svg.linear(tokens for tokens, _ttft in points), svg.linear(ttft for _tokens, ttft in points)
    plot = svg.Plot(x, y, _TOP, _HEIGHT)
    parts = [svg.upright_axis(plot, milliseconds), svg.level_axis(plot, _("Prompt, tokens"), limit)]
    parts += [svg.mark(0, *plot.place(*point)) for point in points]
    slope = None if run.requests is None else run.requests.slope
    description = "" if slope is None else _slope_text(slope)
    picture = svg.drawing(key, _(_TITLE), description, plot.bottom + svg.AXIS_HEIGHT, *parts)
    return Figure(key, _(_TITLE), picture, table=_points(points))


def _points(points: tuple[tuple[float, float], ...]) -> Table:
    size = max(1, -(-len(points) // svg.TABLE_ROWS))
    rows = tuple((count(round(tokens)), significant(ttft)) for tokens, ttft in sorted(points)[::size])
    return plain_table(_("TTFT by prompt"), (Column(_("Prompt"), _("tokens")), Column("TTFT", "ms")), rows)


def _slope_text(slope: PromptSlope) -> str:
    grows = _(
        "{value} ms for each 1,000 tokens of the prompt",
        value=significant(slope.ms_per_1000_tokens),
    )
    between = _(
        "{low} to {high}, over {count} requests",
        low=significant(slope.low),
        high=significant(slope.high),
        count=count(slope.count),
    )
    if slope.low <= 0 <= slope.high:
        return _("That TTFT grows with the prompt is not shown: {grows} ({between}).", grows=grows, between=between)
    if slope.low > 0:
        return _("TTFT grows by {grows} ({between}).", grows=grows, between=between)
    return _("TTFT falls by {grows} ({between}).", grows=grows, between=between)
