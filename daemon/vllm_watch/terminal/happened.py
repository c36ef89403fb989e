# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server, and what has happened to it in the last hour, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.terminal.cells import Cells
from vllm_watch.terminal.heading import rule
from vllm_watch.terminal.lines import Line, Role, Span, line, wrapped
from vllm_watch.terminal.model import Event, Frame, ServerView
from vllm_watch.terminal.pieces import finding_mark


_AGE_WIDTH = 12
_NOT_READ = "Of so many servers the events are not read together. Open one with Enter, then press e."


def finding_lines(server: ServerView, width: int) -> list[Line]:
    """Return what `check` would report."""
    return [
        row
        for finding in server.findings
        for row in wrapped(
            finding.text, width, first=finding_mark(finding), role="text" if finding.severity == "note" else "wrong"
        )
    ]


def event_lines(events: Sequence[Event], at: float, width: int, cells: Cells) -> list[Line]:
    """Return events with their ages, the latest first."""
    return [row for event in events for row in _event(event, "", at, width, cells)]


def events_screen(frame: Frame, only: str | None, at: float, width: int, cells: Cells) -> list[Line]:
    """
    Return the events of the last hour, the latest first.

    Args:
        frame: What was read.
        only: The server to show; all of them if `None`.
        at: The time, by the servers' clock.
        width: Columns of the screen.
        cells: What writes cells.
    """
    servers = [server for server in frame.servers if only is None or server.name == only]
    happened = [(event, server.name) for server in servers for event in server.events or ()]
    happened.sort(key=lambda each: each[0].at, reverse=True)
    of = "all servers" if only is None else only
    lines = [rule(f"What has happened in the last hour: {of}", width, cells)]
    for event, name in happened:
        lines += _event(event, "" if only is not None else name, at, width, cells)
    if len(servers) > 1 and any(server.events is None for server in servers):
        lines += wrapped(_NOT_READ, width)
    elif not happened:
        lines += wrapped(_nothing(servers), width)
    return lines


def _nothing(servers: Sequence[ServerView]) -> str:
    if servers and all(server.events is None for server in servers):
        return "This vllm-watch does not report events; one of the same version as this program does."
    return "Nothing has happened in the last hour: no start, no change of state, no failure."


def _event(event: Event, server: str, at: float, width: int, cells: Cells) -> list[Line]:
    age = cells.age(at - event.at)
    when = Span(cells.fit("now" if age == "now" else f"{age} ago", _AGE_WIDTH), "label")
    role: Role = "wrong" if event.kind == "failure" else "text"
    engine = f"engine {event.engine}: " if event.engine is not None else ""
    times = f" ({event.times} times)" if event.times > 1 else ""
    name = f"{server}: " if server else ""
    rows = wrapped(f"{name}{engine}{event.text}{times}", max(width - _AGE_WIDTH, 1), role=role)
    blank = Span(" " * _AGE_WIDTH)
    return [line(when if index == 0 else blank, *row.spans) for index, row in enumerate(rows)]
