# SPDX-License-Identifier: Apache-2.0
"""The table of servers: its columns, its order, and which servers a filter leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from vllm_watch.analysis.rendering.gpu_cells import Word, condition
from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.lines import Span
from vllm_watch.cli.terminal.model import LatencyLevel, ServerView, Stage
from vllm_watch.cli.terminal.pieces import course_piece, latency_of, latency_piece, of_limit, ratio_bar, state_piece
from vllm_watch.cli.terminal.table import Column, ordered
from vllm_watch.cli.terminal.thresholds import KV_FULL_RATIO
from vllm_watch.daemon.catalog.causes import severity
from vllm_watch.daemon.catalog.gpu_texts import STATE_WORDS


_PERCENT_WIDTH = 5
_RANK_OF_WRONG = 2


class Order(NamedTuple):
    """How servers are ordered: by a column, and whether the other way round."""

    column: str = "state"
    is_reversed: bool = False


def _name(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    return [Span(cells.fit(server.name, width), "strong")]


def _state(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [state_piece(server.state, cells, server.cause)]


def _output(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [Span(cells.tokens(server.now.generation_tokens_per_second))]


def _trend(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    rates = [point.generation_tokens_per_second for point in server.recent]
    return [course_piece(rates, width, cells)]


def _running(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [Span(of_limit(server.now.requests_running, server.max_running_requests, cells))]


def _waiting(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    waiting = server.now.requests_waiting
    return [Span(cells.count(waiting), "over" if waiting and server.state == "saturated" else "text")]


def _kv_cache(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    usage = server.now.kv_cache_usage_ratio
    is_full = usage is not None and usage >= KV_FULL_RATIO
    number = Span(cells.percent(usage).rjust(_PERCENT_WIDTH), "over" if is_full else "text")
    return [number, Span(" "), ratio_bar(usage, width - _PERCENT_WIDTH - 1, cells, fills=True)]


def _kv_cache_size(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [Span(cells.tokens(server.kv_cache_capacity_tokens))]


def _model(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    return [Span(cells.fit(server.model_name or "", width), "dim")]


def _finding(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    wrong = [finding.text for finding in server.findings if finding.weight == "wrong"]
    return [Span(cells.fit(next(iter(wrong), server.meaning), width), "wrong" if wrong else "dim")]


def _engines(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [Span(cells.count(len(server.engines)))]


def _gpus(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
    """Return how many GPUs are lost, or else need somebody; if none does, how busy the busiest is."""
    wrong = [word.text for word in _wrong_gpus(server)]
    if wrong:
        worst = next((word for word in STATE_WORDS.values() if word in wrong), wrong[0])
        return [Span(cells.fit(f"{wrong.count(worst)} {worst}", width), "alarm")]
    known = [ratio for gpu in server.gpus if (ratio := gpu.values.get("gpu_busy_ratio")) is not None]
    return [Span(cells.percent(max(known, default=None)).rjust(width))]


def _wrong_gpus(server: ServerView) -> list[Word]:
    return [word for gpu in server.gpus if (word := condition(gpu)).tone == "wrong"]


def _latency_column(name: str, stage: Stage, level: LatencyLevel, title: str, rank: int) -> Column[ServerView]:
    def value(server: ServerView) -> float | None:
        known: float | None = getattr(latency_of(server.latencies, stage), level)
        return known

    def cell(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
        del width
        return [latency_piece(latency_of(server.latencies, stage), level, cells)]

    return Column(name, title, f"{level} ms", 7, cell, rank, key=value)


def _lowest_column(
    name: str, title: str, unit: str, rank: int, text: Callable[[float | None, Cells], str]
) -> Column[ServerView]:
    """Return a column of a gauge that is not added up: the lowest of the engines, for which one looks."""

    def value(server: ServerView) -> float | None:
        readings = [getattr(engine, name) for engine in server.engines]
        return min((reading.value for reading in readings if reading is not None), default=None)

    def cell(server: ServerView, cells: Cells, width: int) -> Sequence[Span]:
        del width
        return [Span(text(value(server), cells))]

    return Column(name, title, unit, 6, cell, rank, key=value)


def _now(name: str) -> Callable[[ServerView], float | None]:
    """Return what reads a number of a server's last point."""
    return attrgetter(f"now.{name}")


def _as_percent(value: float | None, cells: Cells) -> str:
    return cells.percent(value)


def _as_number(value: float | None, cells: Cells) -> str:
    return cells.number(value)


def _severity(server: ServerView) -> float:
    return float(severity(server.state, server.cause))


COLUMNS: Sequence[Column[ServerView]] = (
    Column("server", "server", "", 14, _name, 0, grow=10, is_text=True, key=lambda server: server.name),
    Column("state", "state", "", 11, _state, 1, is_text=True, key=_severity),
    Column("generation", "output", "tok/s", 7, _output, 2, key=_now("generation_tokens_per_second")),
    Column("trend", "", "trend", 7, _trend, 7, grow=24, is_text=True),
    Column("running", "running", "of max", 8, _running, 3, key=_now("requests_running")),
    Column("waiting", "waiting", "", 8, _waiting, 4, key=_now("requests_waiting")),
    Column("kv_cache", "KV cache", "% used", 11, _kv_cache, 5, grow=6, key=_now("kv_cache_usage_ratio")),
    Column("kv_cache_size", "KV of", "tokens", 6, _kv_cache_size, 13, key=attrgetter("kv_cache_capacity_tokens")),
    _latency_column("ttft_p50", "time_to_first_token", "p50", "TTFT", 14),
    _latency_column("ttft_p95", "time_to_first_token", "p95", "TTFT", 6),
    _latency_column("tpot_p50", "time_per_output_token", "p50", "TPOT", 8),
    _latency_column("tpot_p95", "time_per_output_token", "p95", "TPOT", 15),
    _latency_column("itl_p95", "inter_token", "p95", "ITL", 9),
    _lowest_column("prefix_cache_hit_ratio", "prefix", "hits %", 10, _as_percent),
    _lowest_column("spec_decode_mean_acceptance_length", "accept", "length", 11, _as_number),
    Column("engines", "engines", "", 7, _engines, 16),
    Column("gpus", "GPUs", "% busy", 8, _gpus, 9),
    Column("finding", "what is wrong", "", 36, _finding, 12, grow=60, is_text=True),
    Column("model", "model", "", 16, _model, 17, grow=16, is_text=True),
)  # fmt: skip
"""Those that it is sorted by have room for a mark behind their titles."""

SORTED_BY = tuple(
    column.name
    for column in COLUMNS
    if column.key is not None and column.rank <= 7  # Those that 80 columns show.
)
"""The columns by which the table is sorted, one after the other."""


def columns_for(servers: Sequence[ServerView]) -> Sequence[Column[ServerView]]:
    """Return the columns of these servers: GPUs only where some are known, and before most others if any is wrong."""
    if not any(server.gpus for server in servers):
        return [column for column in COLUMNS if column.name != "gpus"]
    if not any(_wrong_gpus(server) for server in servers):
        return COLUMNS
    return [replace(column, rank=_RANK_OF_WRONG) if column.name == "gpus" else column for column in COLUMNS]


def next_order(order: Order) -> Order:
    """Return the order by the next column."""
    return Order(SORTED_BY[(SORTED_BY.index(order.column) + 1) % len(SORTED_BY)])


def arranged(servers: Sequence[ServerView], order: Order, words: str) -> list[ServerView]:
    """
    Return the servers that have all words of a filter in their name, model or state, in order.

    Those that are equal keep the order of the frame: the worst first, then by name.
    """
    column = next(each for each in COLUMNS if each.name == order.column)
    wanted = words.casefold().split()
    left = [server for server in servers if all(word in _searched(server) for word in wanted)]
    return ordered(left, column, is_reversed=order.is_reversed)


def _searched(server: ServerView) -> str:
    return f"{server.name} {server.model_name or ''} {server.state}".casefold()
