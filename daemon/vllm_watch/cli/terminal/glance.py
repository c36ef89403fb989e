# SPDX-License-Identifier: Apache-2.0
"""Small screens: a line for each server, or one line for all of them."""

from __future__ import annotations

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.heading import counts_line, lost_text
from vllm_watch.cli.terminal.lines import Line, Span, line, wrapped
from vllm_watch.cli.terminal.model import ServerView
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.numbers import LABEL, tokens_text, used_tokens
from vllm_watch.cli.terminal.overview import Shown
from vllm_watch.cli.terminal.pieces import finding_mark, latency_of, latency_piece, state_piece
from vllm_watch.cli.terminal.what_to_do import lasts, step_lines


_SMALL = (60, 12)
_TINY = (40, 10)
_STATE = 12
_OUTPUT = 12
_WAITING = 13
_WITH_WAITING = 52


def is_small(width: int, height: int) -> bool:
    """Whether there is room for a line of each server only."""
    return width < _SMALL[0] or height < _SMALL[1]


def is_tiny(width: int, height: int) -> bool:
    """Whether there is room for one line only."""
    return width < _TINY[0] or height < _TINY[1]


def state_line(moment: Moment, width: int, cells: Cells) -> Line:
    """Return one line for everything."""
    if moment.lost is not None:
        return line(Span(lost_text(moment, moment.lost, cells), "alarm"))
    if moment.frame is None:
        return line("reading")
    before = (Span("PAUSED ", "alarm"),) if moment.paused is not None else ()
    servers = moment.frame.servers
    if len(servers) != 1:
        return Line((*before, *counts_line(servers, width - sum(len(each.text) for each in before), cells).spans))
    now = servers[0].now
    return line(
        *before,
        state_piece(servers[0].state, cells, servers[0].cause),
        f" {cells.tokens(now.generation_tokens_per_second)} tok/s",
        f" run {cells.count(now.requests_running)}",
        f" wait {cells.count(now.requests_waiting)}",
    )


def server_lines(shown: Shown, width: int, height: int, cells: Cells) -> list[Line]:
    """Return a line for each server, as many as there is room for."""
    rows = [_server_line(server, width, cells) for server in shown.servers[shown.top : shown.top + height]]
    return [
        each._replace(base="selected") if index == shown.selected else each
        for index, each in enumerate(rows, shown.top)
    ]


def _server_line(server: ServerView, width: int, cells: Cells) -> Line:
    now = server.now
    waiting = f"{cells.count(now.requests_waiting)} waiting".rjust(_WAITING) if width >= _WITH_WAITING else ""
    output = f"{cells.tokens(now.generation_tokens_per_second)} tok/s".rjust(_OUTPUT)
    state = state_piece(server.state, cells, server.cause)
    name = cells.fit(server.name, max(width - _STATE - len(waiting) - len(output), 1))
    return line(state, Span(" " * (_STATE - len(state.text))), Span(name, "strong"), output, waiting)


def server_glance(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return one server in a few short lines, the most important first, and below them what to do."""
    now = server.now
    ttft = latency_of(server.latencies, "time_to_first_token")
    tokens = tokens_text(used_tokens(server.engines), server.kv_cache_capacity_tokens, cells)
    usage = f"{cells.percent(now.kv_cache_usage_ratio)} %{' fullest' if len(server.engines) > 1 else ''}"
    rows = (
        ("output", Span(f"{cells.number(now.generation_tokens_per_second)} tok/s")),
        ("running", Span(cells.of_most(now.requests_running, server.max_running_requests))),
        ("waiting", Span(cells.count(now.requests_waiting))),
        ("KV cache", Span(f"{usage}  {tokens}".rstrip())),
        ("TTFT p95", latency_piece(ttft, "p95", cells)),
    )
    return [
        line(state_piece(server.state, cells, server.cause), f"{lasts(server, at, cells)}  {server.name}"),
        *(
            row
            for finding in server.findings[:1]
            for row in wrapped(finding.text, width, first=finding_mark(finding))[:2]
        ),
        *(line(Span(label.ljust(LABEL), "label"), piece) for label, piece in rows),
        *step_lines(server, width, cells),
    ]
