# SPDX-License-Identifier: Apache-2.0
"""The tables: servers with their order and the filter, the engines of a server, and its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from vllm_watch.analysis.rendering import gpu_cells
from vllm_watch.cli.terminal.cells import fit
from vllm_watch.cli.terminal.frames import (
    Latencies,
    LatencyLevel,
    Server,
    Stage,
    cause_of,
    latencies_of,
    short_of,
    standing_of,
    state_of,
    value,
)
from vllm_watch.cli.terminal.lines import Cell, Column, Item, Line, Role, Span, line, ordered, table_lines, wrapped
from vllm_watch.cli.terminal.numbers import course_piece, latency_piece, of_limit, ratio_bar, state_piece
from vllm_watch.daemon.catalog.codes import KV_FULL_RATIO
from vllm_watch.daemon.catalog.gpu_texts import STATE_WORDS
from vllm_watch.daemon.catalog.number_texts import count, share, shortened, significant
from vllm_watch.daemon.catalog.reasons import WRONG
from vllm_watch.daemon.catalog.states import severity
from vllm_watch.daemon.exposition.document import EngineDocument, GpuDocument


_PERCENT_WIDTH = 5
_RANK_OF_WRONG = 2

SORT_MARK = "▼"
"""Stands behind the title of the column that the table is sorted by."""


def columns_for(servers: Sequence[Server]) -> Sequence[Column[Server]]:
    """Return the columns of these servers: GPUs only where some are known, and before most others if any is wrong."""
    if not any(server.document.gpus for server in servers):
        return [column for column in COLUMNS if column.name != "gpus"]
    if not any(_wrong_gpus(server) for server in servers):
        return COLUMNS
    return [replace(column, rank=_RANK_OF_WRONG) if column.name == "gpus" else column for column in COLUMNS]


def next_order(column: str) -> str:
    """Return the name of the column that the table is sorted by after this one."""
    return SORTED_BY[(SORTED_BY.index(column) + 1) % len(SORTED_BY)]


def arranged(servers: Sequence[Server], sorted_by: str, words: str) -> list[Server]:
    """
    Return the servers that have all words of a filter in their name, model or state, sorted by a column.

    Those that are equal keep the order of the frame: the worst first, then by name.
    """
    column = next(column for column in COLUMNS if column.name == sorted_by)
    wanted = words.casefold().split()
    return ordered([server for server in servers if all(word in _searched(server) for word in wanted)], column)


def engine_lines(server: Server, width: int) -> list[Line]:
    """Return the engines of a server as a table; nothing where none is known."""
    return table_lines(server.engines, _engine_columns(server.document.slo), width) if server.engines else []


def gpu_lines(server: Server, width: int) -> list[Line]:
    """Return the GPUs of a server as a table, and why none of them is read, if so; nothing where none is known."""
    gpus = server.document.gpus
    if not gpus:
        return []
    source = next((source for source in server.document.sources if source.source == "gpu"), None)
    lines = table_lines(gpus, _GPU_COLUMNS, width)
    if source is not None and not source.up:
        role: Role = "wrong" if standing_of(source, server.document) in WRONG else "note"
        lines += wrapped(f"GPUs: {short_of(source)}", width, role=role)
    return lines


def _searched(server: Server) -> str:
    return f"{server.name} {_model(server)} {server.state}".casefold()


def _wrong_gpus(server: Server) -> list[gpu_cells.Word]:
    return [word for gpu in server.document.gpus if (word := gpu_cells.condition(gpu)).tone == "wrong"]


def _text(read: Callable[[Item], str], role: Role = "text") -> Cell[Item]:
    return lambda item, _width: line(Span(read(item), role))


def _number(write: Callable[[float | None], str], read: Callable[[Item], float | None]) -> Cell[Item]:
    return lambda item, _width: line(write(read(item)))


def _usage(read: Callable[[Item], float | None]) -> Cell[Item]:
    """Return the cell of a KV cache: how full it is in per cent, and as a bar."""

    def cell(item: Item, width: int) -> Line:
        usage = read(item)
        is_full = usage is not None and usage >= KV_FULL_RATIO
        percent = Span(share(usage).rjust(_PERCENT_WIDTH), "over" if is_full else "text")
        return line(percent, " ", ratio_bar(usage, width - _PERCENT_WIDTH - 1, fills=True))

    return cell


def _latency(read: Callable[[Item], Latencies], stage: Stage, level: LatencyLevel) -> Cell[Item]:
    return lambda item, _width: line(latency_piece(read(item)[stage], level))


def _state(server: Server, _width: int) -> Line:
    return line(state_piece(server.state, server.cause))


def _trend(server: Server, width: int) -> Line:
    return line(course_piece([point.generation_tokens_per_second for point in server.recent], width))


def _running(server: Server, _width: int) -> Line:
    return line(of_limit(server.now.requests_running, server.sum_of_facts("max_running_requests")))


def _waiting(server: Server, _width: int) -> Line:
    waiting = server.now.requests_waiting
    return line(Span(count(waiting), "over" if waiting and server.state == "saturated" else "text"))


def _finding(server: Server, _width: int) -> Line:
    wrong = next((finding.text for finding in server.findings if finding.weight == "wrong"), None)
    return line(Span(server.meaning, "dim") if wrong is None else Span(wrong, "wrong"))


def _gpus(server: Server, width: int) -> Line:
    """Return how many GPUs are lost, or else need somebody; if none does, how busy the busiest is."""
    wrong = [word.text for word in _wrong_gpus(server)]
    if wrong:
        worst = next((word for word in STATE_WORDS.values() if word in wrong), wrong[0])
        return line(Span(fit(f"{wrong.count(worst)} {worst}", width), "alarm"))
    busy = [ratio for gpu in server.document.gpus if (ratio := gpu.values.get("gpu_busy_ratio")) is not None]
    return line(share(max(busy, default=None)))


def _latency_column(name: str, stage: Stage, level: LatencyLevel, title: str, rank: int) -> Column[Server]:
    return Column(name, title, f"{level} ms", 7, _latency(attrgetter("latencies"), stage, level), rank)


def _lowest_column(name: str, title: str, unit: str, rank: int, write: Callable[[float | None], str]) -> Column[Server]:
    """Return a column of a gauge that is not added up: the lowest of the engines, for which one looks."""

    def lowest(server: Server) -> float | None:
        values = [value(engine, name) for engine in server.engines]
        return min((number for number in values if number is not None), default=None)

    return Column(name, title, unit, 6, _number(write, lowest), rank)


def _model(server: Server) -> str:
    return server.document.model_name or ""


_NAME = attrgetter("name")
_OUTPUT = attrgetter("now.generation_tokens_per_second")
_KV_CACHE = attrgetter("now.kv_cache_usage_ratio")

COLUMNS: Sequence[Column[Server]] = (
    Column("server", "server", "", 13, _text(_NAME, "strong"), 0, grow=11, is_text=True, key=_NAME),
    Column("state", "state", "", 11, _state, 1, is_text=True, key=lambda server: severity(server.state, server.cause)),
    Column("generation", "output", "tok/s", 7, _number(shortened, _OUTPUT), 2, key=_OUTPUT),
    Column("trend", "", "trend", 7, _trend, 7, grow=24, is_text=True),
    Column("running", "running", "of max", 8, _running, 3, key=attrgetter("now.requests_running")),
    Column("waiting", "waiting", "", 8, _waiting, 4, key=attrgetter("now.requests_waiting")),
    Column("kv_cache", "KV cache", "% used", 11, _usage(_KV_CACHE), 5, grow=6, key=_KV_CACHE),
    replace(_latency_column("ttft_p95", "time_to_first_token", "p95", "TTFT", 6), key=attrgetter("now.ttft_p95")),
    _latency_column("tpot_p50", "time_per_output_token", "p50", "TPOT", 8),
    _latency_column("itl_p95", "inter_token", "p95", "ITL", 9),
    _lowest_column("prefix_cache_hit_ratio", "prefix", "hits %", 10, share),
    _lowest_column("spec_decode_mean_acceptance_length", "accept", "length", 11, significant),
    Column("gpus", "GPUs", "% busy", 8, _gpus, 9),
    Column("finding", "what is wrong", "", 36, _finding, 12, grow=60, is_text=True),
    Column("model", "model", "", 16, _text(_model, "dim"), 17, grow=16, is_text=True),
)
"""Those with a key, by which the table can be sorted, are shown in 80 columns with room for a mark behind the title."""

SORTED_BY = tuple(column.name for column in COLUMNS if column.key is not None)
"""The columns by which the table is sorted, one after the other."""


def _engine_columns(slo: Mapping[str, float | None]) -> Sequence[Column[EngineDocument]]:

    def gauge_column(
        name: str, head: tuple[str, str], width: int, rank: int, write: Callable[[float | None], str]
    ) -> Column[EngineDocument]:
        return Column(name, *head, width, _number(write, lambda engine: value(engine, name)), rank)

    def latency_column(stage: Stage, title: str, rank: int) -> Column[EngineDocument]:
        return Column(stage, title, "p95 ms", 7, _latency(partial(latencies_of, slo=slo), stage, "p95"), rank)

    def state(engine: EngineDocument, _width: int) -> Line:
        return line(state_piece(state_of(engine), cause_of(engine)))

    def usage(engine: EngineDocument) -> float | None:
        return value(engine, "kv_cache_usage_ratio")

    def running(engine: EngineDocument, _width: int) -> Line:
        return line(of_limit(value(engine, "requests_running"), engine.facts.get("max_running_requests")))

    return (
        Column("engine", "engine", "", 6, _text(attrgetter("engine"), "strong"), 0, grow=6, is_text=True),
        Column("state", "state", "", 11, state, 1, is_text=True),
        gauge_column("generation_tokens_per_second", ("output", "tok/s"), 6, 2, shortened),
        Column("running", "running", "of max", 8, running, 3),
        gauge_column("requests_waiting", ("waiting", ""), 7, 4, count),
        Column("kv_cache", "KV cache", "% used", 11, _usage(usage), 5, grow=20, is_text=True),
        latency_column("time_to_first_token", "TTFT", 6),
        latency_column("time_per_output_token", "TPOT", 7),
        gauge_column("prefix_cache_hit_ratio", ("prefix", "hits %"), 6, 8, share),
        gauge_column("spec_decode_mean_acceptance_length", ("accept", "length"), 6, 9, significant),
    )


def _condition(gpu: GpuDocument, _width: int) -> Line:
    word = gpu_cells.condition(gpu)
    return line(Span(word.text, "alarm" if word.tone == "wrong" else word.tone))


def _throttling(gpu: GpuDocument, _width: int) -> Line:
    word = gpu_cells.throttling(gpu)
    return line(Span(word.text, word.tone))


def _power(gpu: GpuDocument) -> str:
    used, most = gpu_cells.watts(gpu)
    return count(used) if used is None else of_limit(used, most)


_GPU_COLUMNS: Sequence[Column[GpuDocument]] = (
    Column("gpu", "GPU", "", 5, _text(gpu_cells.title, "strong"), 0, grow=7, is_text=True),
    Column("condition", "state", "", 9, _condition, 1, is_text=True),
    Column("busy", "busy", "%", 5, _text(gpu_cells.busy), 2),
    Column("memory", "memory", "GiB", 12, _text(gpu_cells.server_memory), 3),
    Column("other_memory", "others", "GiB", 6, _text(gpu_cells.other_memory), 7),
    Column("power", "power", "W of max", 11, _text(_power), 4),
    Column("temperature", "core", "°C", 4, _text(gpu_cells.temperature), 5),
    Column("clock", "SM", "MHz", 5, _text(gpu_cells.clock), 9),
    Column("throttled", "throttled", "% of time", 14, _throttling, 6, grow=40, is_text=True),
    Column("place", "place", "", 12, _text(attrgetter("pci_bus_id"), "dim"), 10, is_text=True),
    Column("model", "model", "", 22, _text(attrgetter("name"), "dim"), 11, is_text=True),
)
