# SPDX-License-Identifier: Apache-2.0
"""One server on one screen: what is wrong, its numbers, latencies, drafts, events, and where all that comes from."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.engine_table import ENGINE_COLUMNS
from vllm_watch.cli.terminal.gpu_table import gpu_lines
from vllm_watch.cli.terminal.happened import event_lines, finding_lines
from vllm_watch.cli.terminal.heading import ago, rule
from vllm_watch.cli.terminal.latencies import LATENCY_WIDTH, draft_lines, hits_line, latency_lines
from vllm_watch.cli.terminal.lines import EMPTY, Line, Span, beside, line, wrapped
from vllm_watch.cli.terminal.model import EngineView, ServerView, SourceView
from vllm_watch.cli.terminal.numbers import (
    Number,
    engine_numbers,
    hour_lines,
    number_line,
    server_numbers,
)  # fmt: skip
from vllm_watch.cli.terminal.pieces import state_piece
from vllm_watch.cli.terminal.table import heads, placed, row
from vllm_watch.cli.terminal.what_to_do import lasts, meaning_lines, step_lines
from vllm_watch.daemon.catalog.causes import meaning
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, WRONG
from vllm_watch.daemon.state.window import MIN_SECONDS


_WIDE = 130
"""Columns from which on there are two halves."""

_BLOCK = 62
"""Columns that an engine needs beside another."""

_GAP = 3
_SOURCE_LABEL = 11
_FEW_EVENTS = 3
_LEAST_DRAFTS = 24


def server_detail(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return all lines of a server; the screen shows as many as it has room for."""
    head = _head(server, at, cells)
    if width < _WIDE:
        return [
            head,
            *meaning_lines(server, width),
            *finding_lines(server, width, "wrong"),
            *_present(server, at, width, cells, every=False),
            *gpu_lines(server, width, cells),
            *event_lines(server, at, width, cells, most=_FEW_EVENTS),
            *step_lines(server, width, cells),
            *_sources(server, at, width, cells),
            *_capacity(server, width, cells),
            *finding_lines(server, width, "note"),
            *_more(server, at, width, cells),
        ]
    left = (width - _GAP) * 3 // 5
    right = width - _GAP - left
    halves = [_left(server, at, left, cells), _right(server, at, right, cells)]
    meaning = wrapped(server.meaning, width) if server.meaning else []
    return [head, *meaning, EMPTY, *beside(halves, (left, right), cells, _GAP), *_blocks(server, at, width, cells)]


def _left(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    lines = [
        rule(f"Now; tok/s over the last {MIN_SECONDS:g} s or more", width, cells),
        *_present(server, at, width, cells, every=True),
        EMPTY,
    ]
    gpus = gpu_lines(server, width, cells)
    lines += [*gpus, EMPTY] if gpus else []
    hour = hour_lines(server, at, width, cells)
    return [*lines, rule("Last hour: the highest, and the course", width, cells), *hour] if hour else lines


def _right(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    wrong = [*finding_lines(server, width, "wrong"), *finding_lines(server, width, "note")] or [line("nothing")]
    steps = step_lines(server, width, cells)
    events = event_lines(server, at, width, cells) or [line("nothing")]
    capacity = _capacity(server, width, cells)
    return [
        rule("What is wrong or should be known", width, cells), *wrong, EMPTY,
        *([*steps, EMPTY] if steps else []),
        rule("Sources", width, cells), *_sources(server, at, width, cells), EMPTY,
        *([rule("Capacity", width, cells), *capacity, EMPTY] if capacity else []),
        rule("Events of the last hour", width, cells), *events,
    ]  # fmt: skip


def _more(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return what a small screen shows only to those who scroll."""
    hour = hour_lines(server, at, width, cells)
    titled = [rule("Last hour: the highest, and the course", width, cells), *hour] if hour else []
    return [*titled, *_blocks(server, at, width, cells)]


def _head(server: ServerView, at: float, cells: Cells) -> Line:
    """Return the state and how long it has lasted, the name, and what is served."""
    up = (
        f"up {cells.duration(float(round(at - server.start_time)))}"
        if server.start_time is not None and server.state != "down"
        else ""
    )
    starts = f"{server.starts} starts seen" if server.starts is not None and server.starts > 1 else ""
    facts = [server.model_name, f"vLLM {server.version}" if server.version else "", up, starts]
    dot = f" {cells.glyphs.dot} "
    about = dot.join(["", *(fact for fact in facts if fact)])
    state = state_piece(server.state, cells, server.cause)
    return line(state, lasts(server, at, cells), "  ", Span(server.name, "strong"), about)


def _present(server: ServerView, at: float, width: int, cells: Cells, *, every: bool) -> list[Line]:
    """Return the numbers of now, and the latencies of the last minute."""
    if len(server.engines) == 1:
        engine = server.engines[0]
        return [
            *_numbers(engine_numbers(engine, server.recent, cells), at, width, cells),
            *_details(engine, width, cells, every=every),
        ]
    shown = placed(ENGINE_COLUMNS, width)
    table = [*heads(shown, "", ""), *(row(engine, shown, cells) for engine in server.engines)] if server.engines else []
    return [
        *_numbers(server_numbers(server, cells), at, width, cells),
        *table,
        *latency_lines(server.latencies, cells, every=every),
    ]


def _numbers(numbers: Sequence[Number], at: float, width: int, cells: Cells) -> list[Line]:
    return [number_line(number, at, width, cells) for number in numbers]


def _details(engine: EngineView, width: int, cells: Cells, *, every: bool) -> list[Line]:
    """Return latencies, with the drafts at their side if there is room and else below, and the hits of the caches."""
    latencies = latency_lines(engine.latencies, cells, every=every)
    room = min(width - LATENCY_WIDTH - _GAP, LATENCY_WIDTH)
    if room < _LEAST_DRAFTS:
        return [*latencies, hits_line(engine, cells), *draft_lines(engine, width, cells)]
    both = beside([latencies, draft_lines(engine, room, cells)], (LATENCY_WIDTH, room), cells, _GAP)
    return [*both, hits_line(engine, cells)]


def _blocks(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return each engine of several, as many side by side as there is room for."""
    if len(server.engines) < 2:
        return []
    across = max(min(width // _BLOCK, len(server.engines)), 1)
    each = (width - _GAP * (across - 1)) // across
    lines: list[Line] = []
    for first in range(0, len(server.engines), across):
        blocks = [_block(engine, at, each, cells) for engine in server.engines[first : first + across]]
        lines += [EMPTY, *beside(blocks, [each] * len(blocks), cells, _GAP)]
    return lines


def _block(engine: EngineView, at: float, width: int, cells: Cells) -> list[Line]:
    title = line(Span(f"engine {engine.engine}  ", "strong"), state_piece(engine.state, cells, engine.cause))
    why = wrapped(meaning(engine.state, engine.cause), width, role="wrong") if engine.cause else []
    numbers = _numbers(engine_numbers(engine, (), cells), at, width, cells)
    return [title, *why, *numbers, *_details(engine, width, cells, every=False)]


def _sources(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return what each source says about itself; those that work take one line."""
    return [each for source in server.sources for each in _source(source, at, width, cells)]


def _source(source: SourceView, at: float, width: int, cells: Cells) -> list[Line]:
    last = "" if source.last_reading is None else f", read {ago(at - source.last_reading, cells)}"
    if source.standing == "not read":
        last = ""
    elif not last and source.standing in WRONG:
        last = ", nothing read yet"  # Of one that is well the words tell: a log without statistics yet.
    # What to do about one that fails is among what is wrong.
    text = f"{source.standing}{last}: {source.short}"
    name = Span(SOURCE_NAMES[source.source].ljust(_SOURCE_LABEL), "label")
    return wrapped(text, width, first=name, role="wrong" if source.standing in WRONG else "text")


def _capacity(server: ServerView, width: int, cells: Cells) -> list[Line]:
    """Return how many tokens per second each engine sustains; why that is not known is among the notes."""
    lines: list[Line] = []
    for engine in server.engines:
        known = engine.capacity
        if known.tokens_per_second is None:
            continue
        name = f"engine {engine.engine}: " if len(server.engines) > 1 else ""
        bounds = f"{cells.number(known.low)} to {cells.number(known.high)}"
        text = f"{name}{cells.number(known.tokens_per_second)} tok/s ({bounds}): {known.meaning}"
        lines += wrapped(text, width, first=Span("capacity".ljust(_SOURCE_LABEL), "label"))
    return lines
