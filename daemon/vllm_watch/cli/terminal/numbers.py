# SPDX-License-Identifier: Apache-2.0
"""What an engine or a server does now, one number a line: with its course, and the source that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from vllm_watch.cli.terminal.cells import Cells, columns
from vllm_watch.cli.terminal.lines import Line, Span, line
from vllm_watch.cli.terminal.model import EngineView, Point, ServerView
from vllm_watch.cli.terminal.pieces import course_piece, ratio_bar
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES
from vllm_watch.daemon.state.snapshot import Reading


LABEL = 10
"""Columns of the names of numbers."""

HOUR_SECONDS = 3600.0

_VALUE = 7
_UNIT = 11
_SOURCE = 15
_LEAST_BAR = 6

Read = Callable[[Point], float | None]

_OUTPUT: Read = attrgetter("generation_tokens_per_second")
_PROMPT: Read = attrgetter("prompt_tokens_per_second")
_RUNNING: Read = attrgetter("requests_running")
_WAITING: Read = attrgetter("requests_waiting")
_KV_CACHE: Read = attrgetter("kv_cache_usage_ratio")


class Number(NamedTuple):
    """
    A number as a line.

    Args:
        label: What it is.
        value: The number as text.
        unit: What follows it.
        course: Its values until now, oldest first.
        top: The most there can be, if that is known.
        ratio: The number, if it is a ratio, which has a bar instead.
        note: What follows the bar.
        reading: Where the number comes from; `None` if it is a sum or not known.
    """

    label: str
    value: str
    unit: str
    course: Sequence[float | None] = ()
    top: float | None = None
    ratio: float | None = None
    note: str = ""
    reading: Reading | None = None


def engine_numbers(engine: EngineView, recent: Sequence[Point], cells: Cells) -> list[Number]:
    """
    Return the gauges of an engine.

    Args:
        engine: Which one.
        recent: The last points of its server, if that has no other engine.
        cells: What writes cells.
    """
    output, prompt = engine.generation_tokens_per_second, engine.prompt_tokens_per_second
    running, waiting = engine.requests_running, engine.requests_waiting
    deferred = _value(engine.requests_deferred)
    usage = engine.kv_cache_usage_ratio
    return [
        Number("output", cells.number(_value(output)), "tok/s", _course(recent, _OUTPUT), reading=output),
        Number("prompt", cells.number(_value(prompt)), "tok/s", _course(recent, _PROMPT), reading=prompt),
        Number(
            "running", cells.count(_value(running)), _of(engine.max_running_requests, cells), _course(recent, _RUNNING),
            engine.max_running_requests, reading=running,
        ),
        Number(
            "waiting", cells.count(_value(waiting)), f"{cells.count(deferred)} deferred" if deferred else "",
            _course(recent, _WAITING), reading=waiting,
        ),
        _kv_cache(_value(usage), engine.kv_cache_capacity_tokens, cells, usage),
    ]  # fmt: skip


def server_numbers(server: ServerView, cells: Cells) -> list[Number]:
    """Return the sums over the engines of a server, and of their KV caches the fullest beside the tokens in all."""
    now, recent = server.now, server.recent
    usage, used = now.kv_cache_usage_ratio, used_tokens(server.engines)
    tokens = tokens_text(used, server.kv_cache_capacity_tokens, cells)
    return [
        Number("output", cells.number(now.generation_tokens_per_second), "tok/s", _course(recent, _OUTPUT)),
        Number("prompt", cells.number(now.prompt_tokens_per_second), "tok/s", _course(recent, _PROMPT)),
        Number(
            "running", cells.count(now.requests_running), _of(server.max_running_requests, cells),
            _course(recent, _RUNNING), server.max_running_requests,
        ),
        Number("waiting", cells.count(now.requests_waiting), "", _course(recent, _WAITING)),
        Number("KV cache", cells.percent(usage), "% fullest", ratio=usage, note=tokens),
    ]  # fmt: skip


def used_tokens(engines: Sequence[EngineView]) -> float | None:
    """Return how many tokens are in the KV caches of engines, if that is known of each."""
    used = [_used(_value(engine.kv_cache_usage_ratio), engine.kv_cache_capacity_tokens) for engine in engines]
    known = [tokens for tokens in used if tokens is not None]
    return sum(known) if known and len(known) == len(used) else None


def number_line(number: Number, at: float, width: int, cells: Cells) -> Line:
    """Return a number in so many columns; `at` is the time by the servers' clock."""
    source = _origin(number.reading, at, cells)
    room = width - LABEL - _VALUE - _UNIT - 2 - (_SOURCE if number.reading is not None else 0)
    return line(
        Span(number.label.ljust(LABEL), "label"),
        Span(number.value.rjust(_VALUE), "strong"),
        f" {number.unit.ljust(_UNIT)} ",
        *_drawing(number, room, cells),
        Span(source.rjust(_SOURCE), "dim") if number.reading is not None else "",
    )


def hour_lines(server: ServerView, at: float, width: int, cells: Cells) -> list[Line]:
    """Return the last hour of a server, if it is known: each course, of means, with the highest of all values."""
    if not server.hour:
        return []
    hour = [point for point in server.hour if at - point.at <= HOUR_SECONDS]
    room = max(width - LABEL - _VALUE - 1, 1)
    courses: tuple[tuple[str, Read, Callable[[float | None], str], float | None], ...] = (
        ("output", _OUTPUT, cells.number, None),
        ("running", _RUNNING, cells.count, None),
        ("waiting", _WAITING, cells.count, None),
        ("KV cache", _KV_CACHE, partial(_percent, cells=cells), 1.0),
    )
    rows = []
    for label, read, text, top in courses:
        values = _by_time(hour, read, at, room)
        highest = max((value for point in hour if (value := read(point)) is not None), default=None)
        rows.append(
            line(
                Span(label.ljust(LABEL), "label"),
                Span(text(highest).rjust(_VALUE)),
                " ",
                course_piece(values, room, cells, top),
            )
        )
    return rows


def _percent(ratio: float | None, cells: Cells) -> str:
    return cells.percent(ratio) if ratio is None else f"{cells.percent(ratio)} %"


def _course(points: Sequence[Point], read: Read) -> list[float | None]:
    return [read(point) for point in points]


def _by_time(points: Sequence[Point], read: Read, at: float, parts: int) -> list[float | None]:
    """Return the means of so many parts of the last hour, oldest first; `None` where a part has no value."""
    found: list[list[float]] = [[] for _ in range(parts)]
    for point in points:
        value = read(point)
        part = int((1 - (at - point.at) / HOUR_SECONDS) * parts)
        if value is not None and 0 <= part < parts:
            found[part].append(value)
    return [sum(values) / len(values) if values else None for values in found]


def _kv_cache(usage: float | None, capacity: float | None, cells: Cells, reading: Reading | None) -> Number:
    """Return the use of the KV cache: in tokens, too, if its size is known."""
    note = tokens_text(_used(usage, capacity), capacity, cells)
    return Number("KV cache", cells.percent(usage), "%", ratio=usage, note=note, reading=reading)


def _used(usage: float | None, capacity: float | None) -> float | None:
    return None if usage is None or capacity is None else usage * capacity


def tokens_text(used: float | None, capacity: float | None, cells: Cells) -> str:
    """Return how many tokens are used, of how many."""
    if capacity is None:
        return ""
    known = f"of {cells.tokens(capacity)}" if used is None else cells.tokens_of(used, capacity)
    return f"{known} tokens"


def _drawing(number: Number, room: int, cells: Cells) -> list[Span]:
    if not number.note and number.ratio is None:
        return [course_piece(number.course, room, cells, number.top)]
    bar = max(room - columns(number.note) - 1, _LEAST_BAR)
    return [ratio_bar(number.ratio, bar, cells, fills=True), Span(f" {number.note}")]


def _origin(reading: Reading | None, at: float, cells: Cells) -> str:
    """Return where a number comes from, and how old it is there."""
    if reading is None:
        return ""
    return f"{SOURCE_NAMES[reading.source]} {cells.age(at - reading.at)}"


def _of(limit: float | None, cells: Cells) -> str:
    return "" if limit is None else f"of {cells.count(limit)}"


def _value(reading: Reading | None) -> float | None:
    return None if reading is None else reading.value
