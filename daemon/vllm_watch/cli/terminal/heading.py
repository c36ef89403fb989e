# SPDX-License-Identifier: Apache-2.0
"""The first and the last lines of every screen: what is read, how old it is, what is wrong with that; the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vllm_watch.cli.terminal.cells import Cells, columns
from vllm_watch.cli.terminal.keys import Key
from vllm_watch.cli.terminal.lines import EMPTY, Line, Span, line, spread, wrapped
from vllm_watch.cli.terminal.model import Lost, ServerView
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.pieces import state_word
from vllm_watch.daemon.catalog.causes import severity
from vllm_watch.daemon.catalog.number_texts import moment as calendar_time


PROGRAM = "vllm-watch"
_BANNER_LINES = 3
_TIME_OF_DAY = len("12:34:56")
_OTHER_TIME = 60.0
"""Seconds between two clocks from which on it is not their difference: what is shown is a recording."""


def title_line(moment: Moment, width: int, cells: Cells) -> Line:
    """Return what is read, when that was, how often, and the time."""
    often = [Span(f"every {moment.delay:g} s")] if moment.delay else []
    parts = [_age(moment, cells), *often, Span(_clock(moment))]
    replay = ", a replay" if moment.frame is not None and moment.frame.is_replay else ""
    left = line(Span(f" {PROGRAM} ", "title"), f" {moment.title}{replay}")
    # What is read is whole if it can be; the time and how often it is read go first.
    room = width - columns(left.text) - len("  ")
    right: list[Span] = []
    for part in parts:  # The age is on every screen; the others are where there is room.
        following = [*right, Span("  "), part] if right else [part]
        if right and columns("".join(each.text for each in following)) > room:
            break
        right = following
    return spread(left, line(*right, " "), width)._replace(base="title")


def lost_text(moment: Moment, lost: Lost, cells: Cells) -> str:
    """Return since when nothing can be read, or that nothing was ever read; and why."""
    if lost.last is None:
        again = f", tried again every {moment.delay:g} s" if moment.delay and not lost.is_final else ""
        return f"NOT REACHED YET{again}: {lost.reason}"
    return f"LOST {cells.age(moment.now - lost.since)}: {lost.reason}"


def banner(moment: Moment, width: int, cells: Cells) -> list[Line]:
    """Return what the reader must know before the values: that they are not read any more, or not shown."""
    if moment.lost is not None:
        rows = wrapped(lost_text(moment, moment.lost, cells), width, role="alarm", first=Span(" ", "alarm"))
        return [Line((*row.spans, Span(" " * (width - columns(row.text)), "alarm"))) for row in rows[:_BANNER_LINES]]
    if moment.paused is not None:
        what = "the recording stands still" if moment.is_held else "the values stay as they are"
        text = f" PAUSED {ago(moment.now - moment.paused, cells)}; {what}. Space goes on."
        return [line(Span(cells.fit(text, width), "alarm"))]
    return []


def ago(seconds: float, cells: Cells) -> str:
    """Return a time in the past: ``3 s ago``, ``now``."""
    age = cells.age(seconds)
    return age if age == "now" else f"{age} ago"


def counts_line(servers: Sequence[ServerView], width: int, cells: Cells) -> Line:
    """Return how many servers are in each state, the worst first, as many states as there is room for."""
    counts = Counter((severity(each.state, each.cause), state_word(each.state, each.cause)) for each in servers)
    pieces = [Span(f"{len(servers)} {'server' if len(servers) == 1 else 'servers'}", "strong")]
    left = width - columns(pieces[0].text)
    for (_, word), number in sorted(counts.items(), reverse=True):
        text = f"{number} {word.text}"
        left -= 2 + columns(text)
        if left < 2:  # So that there is room for the mark that some are left out.
            pieces.append(Span(f" {cells.glyphs.cut}"))
            break
        pieces += [Span("  "), word._replace(text=text)]
    return Line(tuple(pieces))


def keys_line(keys: Sequence[Key], width: int) -> Line:
    """Return the keys that there is room for, the most important first."""
    pieces: list[Span] = []
    used = 0
    for key in keys:
        size = columns(f"{key.shown} {key.word}") + (2 if pieces else 0)
        if used + size > width:
            break
        pieces += [*([Span("  ")] if pieces else []), Span(key.shown, "key"), Span(f" {key.word}", "label")]
        used += size
    return line(*pieces) if pieces else EMPTY


def rule(title: str, width: int, cells: Cells) -> Line:
    """Return a line that begins a part of a screen."""
    return line(Span(cells.fit(title, width), "head"), base="head")


def _age(moment: Moment, cells: Cells) -> Span:
    if moment.age is None:
        return Span("nothing read yet")
    known = f"read {ago(moment.age, cells)}"
    return Span(known, "alarm") if moment.lost is not None or moment.paused is not None else Span(known, "title")


def _clock(moment: Moment) -> str:
    """Return the time of the servers' clock; with its date where that is another time than the reader's."""
    if moment.frame is None:
        return ""
    text = calendar_time(moment.at)
    return f"{text if abs(moment.at - moment.now) > _OTHER_TIME else text[-_TIME_OF_DAY:]} UTC"
