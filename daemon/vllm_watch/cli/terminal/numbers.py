# SPDX-License-Identifier: Apache-2.0
"""
What an engine or a server does, as lines: its numbers with their course and their source, latencies, accepted drafts.

Also the pieces that tables share with them: a state, a latency, a bar, a course.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import cast

from vllm_watch.cli.terminal.cells import STATE_SYMBOLS, age, bar, columns, fit, latency_text, sparkline
from vllm_watch.cli.terminal.frames import (
    STAGE_NAMES,
    Latencies,
    Latency,
    LatencyLevel,
    Point,
    Server,
    Stage,
    gauge,
    value,
)
from vllm_watch.cli.terminal.lines import Line, Pane, Span, line
from vllm_watch.daemon.catalog.codes import KV_FULL_RATIO
from vllm_watch.daemon.catalog.number_texts import MISSING, count, of_most, share, shortened, significant
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, SourceName
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.exposition.document import EngineDocument, ReadingDocument


HOUR_SECONDS = 3600.0

LATENCY_WIDTH = 50
"""Columns of the table of latencies."""

_LABEL = 10
_VALUE = 7
_UNIT = 11
_SOURCE = 15
_LEAST_BAR = 6

_OVER = "!"
"""Stands behind a latency that is over the objective."""

_IN_SECONDS = 9.995
"""From here on a latency is written in seconds."""

_HEADROOM = 8 / 7
"""The highest value leaves an eighth of the line empty: sparklines one below the other do not touch."""

_LEVELS: tuple[LatencyLevel, ...] = ("p50", "p95", "p99")
_STAGE = 16
_QUANTILE = 8
_OBJECTIVE = 10
_ALWAYS_SHOWN: frozenset[Stage] = frozenset({"time_to_first_token", "time_per_output_token", "inter_token"})

_DRAFT = 8
_DRAFT_PERCENT = 7
_HITS = 11

Read = Callable[[Point], float | None]

_OUTPUT: Read = attrgetter("generation_tokens_per_second")
_PROMPT: Read = attrgetter("prompt_tokens_per_second")
_RUNNING: Read = attrgetter("requests_running")
_WAITING: Read = attrgetter("requests_waiting")
_KV_CACHE: Read = attrgetter("kv_cache_usage_ratio")


def state_word(state: EngineState, cause: str | None) -> Span:
    """Return a state; that its operator has stopped a server is as quiet as that they put it to sleep."""
    return Span("stopped", "sleeping") if cause == "stopped" else Span(state, state)


def state_piece(state: EngineState, cause: str | None = None) -> Span:
    """Return a state with its symbol."""
    word = state_word(state, cause)
    return word._replace(text=f"{STATE_SYMBOLS[state]} {word.text}")


def is_in_seconds(*values: float | None) -> bool:
    """Return whether latencies beside each other are written in seconds: all of them, if one is that long."""
    return any(seconds is not None and seconds >= _IN_SECONDS for seconds in values)


def latency_piece(latency: Latency, level: LatencyLevel, *, in_seconds: bool | None = None) -> Span:
    """
    Return a latency in milliseconds, or with its unit in seconds, and with a mark if it is over the objective.

    Args:
        latency: All that is known of a stage.
        level: Which of its quantiles to return; one that is only roughly known has two digits.
        in_seconds: Whether it is written in seconds; by default a long one is.
    """
    known, seconds = latency.quantiles.get(level), latency.seconds(level)
    sign = "" if known is None else known.sign
    is_over = (
        seconds is not None and latency.objective is not None and (seconds, sign == ">") > (latency.objective, False)
    )
    text = latency_text(
        None if known is None else known.seconds,
        in_seconds=is_in_seconds(seconds) if in_seconds is None else in_seconds,
        digits=2 if sign == "~" else 3,
    )
    text = f"{sign}{text}"
    # The blank keeps the digits of those that are not over below those that are.
    return Span(f"{text}{_OVER if is_over else ' '}", "over" if is_over else "text")


def ratio_bar(ratio: float | None, width: int, *, fills: bool) -> Span:
    """Return a ratio as a bar; where something fills, a full one has another look."""
    is_full = fills and ratio is not None and ratio >= KV_FULL_RATIO
    return Span(bar(ratio, width), "full" if is_full else "bar")


def course_piece(values: Sequence[float | None], width: int, top: float | None = None) -> Span:
    """Return values until now as a sparkline; `top` is the most there can be."""
    highest = max((number for number in values[-width:] if number is not None), default=0.0) if top is None else top
    return Span(sparkline(values, width, highest * _HEADROOM), "spark")


def of_limit(number: float | None, limit: float | None) -> str:
    """Return a number of requests and the most there can be, for a narrow column: ``12/64``."""
    return count(number) if limit is None else f"{count(number)}/{count(limit)}"


def number_lines(server: Server, pane: Pane) -> list[Line]:
    """
    Return what a server does now, with its course, and of a server with one engine with the source of each number.

    Of several engines these are sums, and of their KV caches the fullest beside the tokens in all.
    """
    now, most = server.now, server.sum_of_facts("max_running_requests")
    deferred = sum(value(engine, "requests_deferred") or 0 for engine in server.engines)
    texts = (
        ("output", _OUTPUT, significant(_OUTPUT(now)), "tok/s"),
        ("prompt", _PROMPT, significant(_PROMPT(now)), "tok/s"),
        ("running", _RUNNING, count(_RUNNING(now)), "" if most is None else f"of {count(most)}"),
        ("waiting", _WAITING, count(_WAITING(now)), f"{count(deferred)} deferred" if deferred else ""),
        ("KV cache", _KV_CACHE, share(_KV_CACHE(now)), "%" if len(server.engines) == 1 else "% fullest"),
    )
    lines = []
    for (label, read, text, unit), gauge_name in zip(texts, _GAUGES, strict=True):
        reading = gauge(server.engines[0], gauge_name) if len(server.engines) == 1 else None
        room = pane.width - _LABEL - _VALUE - _UNIT - 2 - (_SOURCE if reading is not None else 0)
        if label == "KV cache":
            drawing = _kv_cache(server, room)
        else:
            drawing = [course_piece(list(map(read, server.recent)), room, most if label == "running" else None)]
        head = (Span(label.ljust(_LABEL), "label"), Span(text.rjust(_VALUE), "strong"), f" {unit.ljust(_UNIT)} ")
        lines.append(line(*head, *drawing, *_origin(reading, pane.at)))
    return lines


_GAUGES = (
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
)
"""The gauges that have a line each, in this order."""


def _kv_cache(server: Server, room: int) -> list[Span]:
    """Return a bar, and how many tokens are in use in all KV caches, of how many."""
    capacity = server.sum_of_facts("kv_cache_capacity_tokens")
    tokens = [_used(engine) for engine in server.engines]
    used = None if None in tokens else sum(each for each in tokens if each is not None)
    note = ""
    if capacity is not None:
        note = f"{f'of {shortened(capacity)}' if used is None else of_most(used, capacity, shortened)} tokens"
    width = max(room - columns(note) - 1, _LEAST_BAR)
    return [ratio_bar(server.now.kv_cache_usage_ratio, width, fills=True), Span(f" {note}")]


def _used(engine: EngineDocument) -> float | None:
    usage, capacity = value(engine, "kv_cache_usage_ratio"), engine.facts.get("kv_cache_capacity_tokens")
    return None if usage is None or capacity is None else usage * capacity


def _origin(reading: ReadingDocument | None, at: float) -> list[Span]:
    if reading is None:
        return []
    source = SOURCE_NAMES[cast("SourceName", reading.source)]
    return [Span(f"{source} {age(at - reading.at)}".rjust(_SOURCE), "dim")]


def hour_lines(server: Server, pane: Pane) -> list[Line]:
    """Return the last hour of a server, if it is known: each course, of means, with the highest of all values."""
    if not server.hour:
        return []
    hour = [point for point in server.hour if pane.at - point.at <= HOUR_SECONDS]
    room = max(pane.width - _LABEL - _VALUE - 1, 1)
    courses: tuple[tuple[str, Read, Callable[[float | None], str], float | None], ...] = (
        ("output", _OUTPUT, significant, None),
        ("running", _RUNNING, count, None),
        ("waiting", _WAITING, count, None),
        ("KV cache", _KV_CACHE, lambda ratio: share(ratio) + ("" if ratio is None else " %"), 1.0),
    )
    return [
        line(
            Span(label.ljust(_LABEL), "label"),
            Span(
                text(max((number for point in hour if (number := read(point)) is not None), default=None)).rjust(_VALUE)
            ),
            " ",
            course_piece(_by_time(hour, read, pane.at, room), room, top),
        )
        for label, read, text, top in courses
    ]


def _by_time(points: Sequence[Point], read: Read, at: float, parts: int) -> list[float | None]:
    """Return the means of each of some equal parts of the last hour, oldest first; `None` where one has no value."""
    values: list[list[float]] = [[] for _ in range(parts)]
    for point in points:
        number = read(point)
        part = int((1 - (at - point.at) / HOUR_SECONDS) * parts)
        if number is not None and 0 <= part < parts:
            values[part].append(number)
    return [sum(numbers) / len(numbers) if numbers else None for numbers in values]


def latency_lines(latencies: Latencies, *, every: bool) -> list[Line]:
    """
    Return the latencies of the last minute, in milliseconds; a stage that takes long in seconds.

    With `every` all stages that are known are shown, not only what users feel.
    """
    levels = "".join(f"{level} ".rjust(_QUANTILE) for level in _LEVELS)
    lines = [line(Span(f"{'ms, last minute'.ljust(_STAGE)}{levels}{'objective'.rjust(_OBJECTIVE)}", "head"))]
    for stage, latency in latencies.items():
        if stage not in _ALWAYS_SHOWN and not (every and latency.quantiles):
            continue
        in_seconds = is_in_seconds(*map(latency.seconds, _LEVELS))
        pieces = [latency_piece(latency, level, in_seconds=in_seconds) for level in _LEVELS]
        objective = latency_text(latency.objective, in_seconds=in_seconds)
        lines.append(
            line(
                Span(STAGE_NAMES[stage].ljust(_STAGE), "label"),
                *(Span(piece.text.rjust(_QUANTILE), piece.role) for piece in pieces),
                Span(objective.rjust(_OBJECTIVE), "label"),
            )
        )
    return lines


def draft_lines(engine: EngineDocument, width: int) -> list[Line]:
    """Return how many tokens of its drafts an engine accepts; nothing if it drafts none."""
    length, drafted = value(engine, "spec_decode_mean_acceptance_length"), engine.facts.get("num_speculative_tokens")
    if length is None and drafted is None and not engine.position_acceptance:
        return []
    # Each step gives one token more than it accepts of its draft.
    least, most = engine.facts.get("num_speculative_tokens_least"), ""
    if drafted is not None:
        most = f" of {count(drafted + 1)}" if least is None else f", {count(least)} to {count(drafted)} a draft"
    lines = [line(Span(fit(f"tokens a step {significant(length)}{most}", width), "head"))]
    room = max(width - _DRAFT - _DRAFT_PERCENT - 1, 1)
    return lines + [
        line(
            Span(f"draft {position}".ljust(_DRAFT), "label"),
            ratio_bar(ratio, room, fills=False),
            f"{share(ratio).rjust(_DRAFT_PERCENT - 1)} %",
        )
        for position, ratio in enumerate(engine.position_acceptance, 1)
    ]


def hits_line(engine: EngineDocument) -> Line:
    """Return how much of the prompts the caches had, in per cent."""
    pieces: list[Span] = []
    for name, series in (("prefix", "prefix"), ("external", "external_prefix"), ("multimodal", "mm")):
        ratio = value(engine, f"{series}_cache_hit_ratio")
        text = MISSING if ratio is None else f"{share(ratio)} %"
        pieces += [Span(f"{name} "), Span(text, "strong"), Span("   ")]
    prompt = {True: "not in prompt tok/s", False: "also in prompt tok/s", None: ""}[engine.prompt_excludes_cached]
    return line(Span("cache hits".ljust(_HITS), "label"), *pieces, Span(prompt, "dim"))
