# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a server, and what has happened to it in the last hour, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.heading import ago, rule
from vllm_watch.cli.terminal.lines import Line, Role, Span, line, wrapped
from vllm_watch.cli.terminal.model import Event, Frame, ServerView
from vllm_watch.cli.terminal.pieces import finding_mark
from vllm_watch.daemon.catalog.findings import Weight


_AGE_WIDTH = 12
_SHORT = 2
_NOT_READ = "Of so many servers the events are not read together. Open one with Enter, then press e."


def finding_lines(server: ServerView, width: int, weight: Weight) -> list[Line]:
    """Return what is wrong with a server, or what should be known."""
    return [
        row
        for finding in server.findings
        if finding.weight == weight
        for row in wrapped(finding.text, width, first=finding_mark(finding), role=weight)
    ]


def common_lines(frame: Frame, width: int, most: int | None = None) -> list[Line]:
    """
    Return what is wrong or should be known that is about no server.

    Args:
        frame: What was read.
        width: Columns of the screen.
        most: How many findings, each in two lines at most; without it all of them whole.
    """
    shown = frame.findings[:most]
    rows = [wrapped(each.text, width, first=finding_mark(each), role=each.weight) for each in shown]
    lines = [row for each in rows for row in (each if most is None else each[:_SHORT])]
    left = len(frame.findings) - len(shown)
    return [*lines, line(Span(f"  and {left} more, which --once shows", "note"))] if left else lines


def event_lines(server: ServerView, at: float, width: int, cells: Cells, *, most: int | None = None) -> list[Line]:
    """Return the events of a server with their ages, the latest first, and at most so many."""
    return [
        row for event in (server.events or ())[:most] for row in _event(event, _engine(event, server), at, width, cells)
    ]


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
    happened = [(event, server) for server in servers for event in server.events or ()]
    happened.sort(key=lambda each: each[0].at, reverse=True)
    of = "all servers" if only is None else only
    lines = [rule(f"What has happened in the last hour: {of}", width, cells)]
    for event, server in happened:
        name = f"{server.name}: " if len(servers) > 1 else ""
        lines += _event(event, f"{name}{_engine(event, server)}", at, width, cells)
    if len(servers) > 1 and any(server.events is None for server in servers):
        lines += wrapped(_NOT_READ, width)
    elif not happened:
        lines += wrapped(_nothing(servers), width)
    return lines


def _nothing(servers: Sequence[ServerView]) -> str:
    if servers and all(server.events is None for server in servers):
        return "This vllm-watch does not report events; one of the same version as this program does."
    return "Nothing has happened in the last hour: no start, no change of state, no failure."


def _engine(event: Event, server: ServerView) -> str:
    """Return which of several engines an event happened to."""
    return f"engine {event.engine}: " if event.engine is not None and len(server.engines) > 1 else ""


def _event(event: Event, subject: str, at: float, width: int, cells: Cells) -> list[Line]:
    when = Span(cells.fit(ago(at - event.at, cells), _AGE_WIDTH), "label")
    times = f" ({event.times} times)" if event.times > 1 else ""
    role: Role = "wrong" if event.kind in {"failure", "xid"} else "text"
    return wrapped(f"{subject}{event.text}{times}", width, first=when, role=role)
