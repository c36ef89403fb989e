# SPDX-License-Identifier: Apache-2.0
"""
What every screen begins with: what is read and how old it is, what is wrong with that, how many servers are how.

Also the screen that `top --once` prints, which is plain text and needs no textual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.cli.terminal.cells import age, ago, columns, fit
from vllm_watch.cli.terminal.frames import Frame, Lost, Server, View
from vllm_watch.cli.terminal.lines import EMPTY, Line, Pane, Span, fitted, line, spread, table_lines, wrapped
from vllm_watch.cli.terminal.numbers import state_word
from vllm_watch.cli.terminal.server_detail import finding_line, server_detail
from vllm_watch.cli.terminal.tables import columns_for
from vllm_watch.daemon.catalog.number_texts import moment as calendar_time
from vllm_watch.daemon.catalog.states import severity


PROGRAM = "vllm-watch"
NO_SERVER = "No server is watched. vllm-watch discover lists what runs on this machine."
_BANNER_LINES = 3
_SHORT_FINDING = 2
_TIME_OF_DAY = len("12:34:56")
_OTHER_TIME = 60.0
"""Seconds between two clocks from which on it is not their difference: what is shown is a recording."""


class Moment(NamedTuple):
    """
    What is read, and the time that it is shown at.

    Args:
        view: What was read.
        now: The time by the clock of the reader.
        title: What is read, in words.
        delay: Seconds between two readings; 0 if there is only one.
        paused: Since when the view is paused, by the clock of the reader.
    """

    view: View
    now: float
    title: str
    delay: float
    paused: float | None = None

    @property
    def frame(self) -> Frame | None:
        """What is known, which may be old."""
        return self.view.last if isinstance(self.view, Lost) else self.view

    @property
    def lost(self) -> Lost | None:
        """That nothing can be read now, and why."""
        return self.view if isinstance(self.view, Lost) else None

    @property
    def at(self) -> float:
        """The time by the clock that the times of servers are in; 0 if nothing is known."""
        frame = self.frame
        if frame is None:
            return 0.0
        return frame.at + max(self.now - frame.received, 0.0)


def title_line(moment: Moment, width: int) -> Line:
    """Return what is read, when that was, how often, and the time."""
    often = [Span(f"every {moment.delay:g} s", "title")] if moment.delay else []
    replay = ", a replay" if moment.frame is not None and moment.frame.is_replay else ""
    left = line(Span(f" {PROGRAM}  {moment.title}{replay}", "title"))
    # What is read is whole if it can be; the time and how often it is read go first.
    room = width - columns(left.text) - len("  ")
    right = [_age(moment)]  # The age is on every screen; the others are where there is room.
    for part in (*often, Span(_clock(moment), "title")):
        following = [*right, Span("  ", "title"), part]
        if columns(line(*following).text) > room:
            break
        right = following
    return Line(
        tuple(
            span._replace(role="title") if span.role == "text" else span
            for span in spread(left, line(*right, " "), width).spans
        )
    )


def _age(moment: Moment) -> Span:
    if moment.frame is None:
        return Span("nothing read yet", "title")
    is_old = moment.lost is not None or moment.paused is not None
    return Span(f"read {ago(max(moment.now - moment.frame.received, 0.0))}", "alarm" if is_old else "title")


def _clock(moment: Moment) -> str:
    """Return the time of the servers' clock; with its date where that is another time than the reader's."""
    if moment.frame is None:
        return ""
    text = calendar_time(moment.at)
    return f"{text if abs(moment.at - moment.now) > _OTHER_TIME else text[-_TIME_OF_DAY:]} UTC"


def banner(moment: Moment, width: int) -> list[Line]:
    """Return what the reader must know before the values: that they are not read any more, or not shown."""
    if moment.lost is not None:
        rows = wrapped(_lost(moment, moment.lost), width, role="alarm", first=Span(" "))[:_BANNER_LINES]
    elif moment.paused is not None:
        text = f" PAUSED {ago(moment.now - moment.paused)}; the values stay as they are. Space goes on."
        rows = [line(Span(text, "alarm"))]
    else:
        rows = []
    return [line(Span(fit(row.text, width), "alarm")) for row in rows]


def _lost(moment: Moment, lost: Lost) -> str:
    if lost.last is None:
        again = f", tried again every {moment.delay:g} s" if moment.delay and not lost.is_final else ""
        return f"NOT REACHED YET{again}: {lost.reason}"
    return f"LOST {age(moment.now - lost.since)}: {lost.reason}"


def common_lines(frame: Frame, width: int, most: int | None = None) -> list[Line]:
    """
    Return what is wrong or should be known that is about no server.

    Args:
        frame: What was read.
        width: Columns of the screen.
        most: How many findings, each in two lines at most; without it all of them whole.
    """
    lines = [
        row
        for finding in frame.findings[:most]
        for row in finding_line(finding, width)[: None if most is None else _SHORT_FINDING]
    ]
    left = len(frame.findings[most:]) if most is not None else 0
    return [*lines, line(Span(f"  and {left} more, which --once shows", "note"))] if left else lines


def counts_line(servers: Sequence[Server], width: int) -> Line:
    """Return how many servers are in each state, the worst first, as many states as there is room for."""
    counts = Counter(
        (severity(server.state, server.cause), state_word(server.state, server.cause)) for server in servers
    )
    pieces = [Span(f"{len(servers)} {'server' if len(servers) == 1 else 'servers'}", "strong")]
    left = width - columns(pieces[0].text)
    for (_, word), number in sorted(counts.items(), reverse=True):
        text = f"{number} {word.text}"
        left -= 2 + columns(text)
        if left < 2:  # So that there is room for the mark that some are left out.
            pieces.append(Span(" …"))
            break
        pieces += [Span("  "), word._replace(text=text)]
    return Line(tuple(pieces))


def once_screen(moment: Moment, width: int) -> str:
    """Return a screen as text: one server whole; of several a table, and the worst one whole."""
    lines = [title_line(moment, width), *banner(moment, width), EMPTY]
    frame = moment.frame
    if frame is not None:
        lines += [*common_lines(frame, width), *_servers(frame.servers, Pane(width, moment.at))]
    return "".join(f"{fitted(row, width).text.rstrip()}\n" for row in lines)


def _servers(servers: Sequence[Server], pane: Pane) -> list[Line]:
    if len(servers) == 1:
        return server_detail(servers[0], pane)
    if not servers:
        return [counts_line(servers, pane.width), *wrapped(NO_SERVER, pane.width)]
    table = table_lines(servers, columns_for(servers), pane.width)
    return [counts_line(servers, pane.width), *table, EMPTY, *server_detail(servers[0], pane)]
