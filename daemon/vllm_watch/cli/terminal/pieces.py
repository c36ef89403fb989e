# SPDX-License-Identifier: Apache-2.0
"""Pieces of lines that several screens show: a state, a latency, a bar, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.lines import Role, Span
from vllm_watch.cli.terminal.model import Latency, LatencyLevel, Stage
from vllm_watch.cli.terminal.thresholds import KV_FULL_RATIO
from vllm_watch.daemon.catalog.findings import Finding, Weight
from vllm_watch.daemon.catalog.states import EngineState


OVER = "!"
"""Stands behind a latency that is over the objective."""

_IN_SECONDS = 9.995
"""From here on a latency is written in seconds."""

_HEADROOM = 8 / 7
"""The highest value leaves an eighth of the line empty: sparklines one below the other do not touch."""

_MARKS: dict[Weight, tuple[str, Role]] = {"wrong": ("! ", "wrong"), "note": ("- ", "note")}


def state_word(state: EngineState, cause: str | None) -> Span:
    """Return a state; that its operator has stopped a server is as quiet as that they put it to sleep."""
    return Span("stopped", "sleeping") if cause == "stopped" else Span(state, state)


def state_piece(state: EngineState, cells: Cells, cause: str | None = None) -> Span:
    """Return a state with its symbol."""
    word = state_word(state, cause)
    return word._replace(text=f"{cells.state(state)} {word.text}")


def latency_of(latencies: Sequence[Latency], stage: Stage) -> Latency:
    """Return how long a stage took; of one that is not known, a latency without numbers."""
    return next((each for each in latencies if each.stage == stage), Latency(stage))


def is_in_seconds(*values: float | None) -> bool:
    """Return whether latencies beside each other are written in seconds: all of them, if one is that long."""
    return any(value is not None and value >= _IN_SECONDS for value in values)


def latency_piece(latency: Latency, level: LatencyLevel, cells: Cells, *, in_seconds: bool | None = None) -> Span:
    """
    Return a latency in milliseconds, or with its unit in seconds, and with a mark if it is over the objective.

    One that is only known to be more than a bound is written with a sign before that: ``>160s``. One that is only
    roughly known has two digits and another sign: ``~130s``.

    Args:
        latency: All that is known of a stage.
        level: Which of its quantiles to return.
        cells: What writes cells.
        in_seconds: Whether it is written in seconds; by default a long one is.
    """
    value: float | None = getattr(latency, level)
    least, roughly = level in latency.at_least, level in latency.roughly
    is_over = value is not None and latency.objective is not None and (value, least) > (latency.objective, False)
    below = latency.below if value is None else None
    text = cells.latency(
        below if value is None else value,
        in_seconds=is_in_seconds(value) if in_seconds is None else in_seconds,
        digits=2 if roughly else 3,
    )
    text = f"{'<' if below is not None else '>' if least else '~' if roughly else ''}{text}"
    # The blank keeps the digits of those that are not over below those that are.
    return Span(f"{text}{OVER if is_over else ' '}", "over" if is_over else "text")


def ratio_bar(ratio: float | None, width: int, cells: Cells, *, fills: bool) -> Span:
    """Return a ratio as a bar; where something fills, a full one has another look."""
    is_full = fills and ratio is not None and ratio >= KV_FULL_RATIO
    return Span(cells.bar(ratio, width), "full" if is_full else "bar")


def course_piece(values: Sequence[float | None], width: int, cells: Cells, top: float | None = None) -> Span:
    """Return values until now as a sparkline; `top` is the most there can be."""
    highest = max((value for value in values[-width:] if value is not None), default=0.0) if top is None else top
    return Span(cells.sparkline(values, width, highest * _HEADROOM), "spark")


def finding_mark(finding: Finding) -> Span:
    """Return what stands before a finding."""
    return Span(*_MARKS[finding.weight])


def of_limit(value: float | None, limit: float | None, cells: Cells) -> str:
    """Return a number of requests and the most there can be, for a narrow column: ``12/64``."""
    return cells.count(value) if limit is None else f"{cells.count(value)}/{cells.count(limit)}"
