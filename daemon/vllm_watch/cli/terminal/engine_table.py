# SPDX-License-Identifier: Apache-2.0
"""The table of the engines of one server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.lines import Span
from vllm_watch.cli.terminal.model import EngineView, Stage
from vllm_watch.cli.terminal.pieces import latency_of, latency_piece, of_limit, ratio_bar, state_piece
from vllm_watch.cli.terminal.table import Column


_PERCENT = 5


def _engine(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
    return [Span(cells.fit(engine.engine, width), "strong")]


def _state(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [state_piece(engine.state, cells, engine.cause)]


def _running(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
    del width
    return [Span(of_limit(_gauge(engine, "requests_running"), engine.max_running_requests, cells))]


def _kv_cache(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
    usage = _gauge(engine, "kv_cache_usage_ratio")
    return [
        Span(cells.percent(usage).rjust(_PERCENT)),
        Span(" "),
        ratio_bar(usage, width - _PERCENT - 1, cells, fills=True),
    ]


def _gauge(engine: EngineView, name: str) -> float | None:
    reading = getattr(engine, name)
    return None if reading is None else float(reading.value)


def _gauge_column(
    name: str, head: tuple[str, str], width: int, rank: int, text: Callable[[Cells, float | None], str]
) -> Column[EngineView]:
    def cell(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
        del width
        return [Span(text(cells, _gauge(engine, name)))]

    return Column(name, *head, width, cell, rank)


def _latency_column(stage: Stage, title: str, rank: int) -> Column[EngineView]:
    def cell(engine: EngineView, cells: Cells, width: int) -> Sequence[Span]:
        del width
        return [latency_piece(latency_of(engine.latencies, stage), "p95", cells)]

    return Column(stage, title, "p95 ms", 7, cell, rank)


ENGINE_COLUMNS: Sequence[Column[EngineView]] = (
    Column("engine", "engine", "", 6, _engine, 0, grow=6, is_text=True),
    Column("state", "state", "", 11, _state, 1, is_text=True),
    _gauge_column("generation_tokens_per_second", ("output", "tok/s"), 6, 2, Cells.tokens),
    Column("running", "running", "of max", 8, _running, 3),
    _gauge_column("requests_waiting", ("waiting", ""), 7, 4, Cells.count),
    Column("kv_cache", "KV cache", "% used", 11, _kv_cache, 5, grow=20, is_text=True),
    _latency_column("time_to_first_token", "TTFT", 6),
    _latency_column("time_per_output_token", "TPOT", 7),
    _gauge_column("prefix_cache_hit_ratio", ("prefix", "hits %"), 6, 8, Cells.percent),
    _gauge_column("spec_decode_mean_acceptance_length", ("accept", "length"), 6, 9, Cells.number),
)
