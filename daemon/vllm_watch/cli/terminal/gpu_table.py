# SPDX-License-Identifier: Apache-2.0
"""The GPUs of one server: a line for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_watch.analysis.rendering import gpu_cells
from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.lines import Line, Span, wrapped
from vllm_watch.cli.terminal.model import ServerView
from vllm_watch.cli.terminal.pieces import of_limit
from vllm_watch.cli.terminal.table import Column, heads, placed, row
from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.catalog.reasons import WRONG
from vllm_watch.daemon.exposition.document import GpuDocument


def gpu_lines(server: ServerView, width: int, cells: Cells) -> list[Line]:
    """Return the GPUs of a server as a table, and why none of them is read, if so; nothing where none is known."""
    if not server.gpus:
        return []
    shown = placed(_COLUMNS, width)
    lines = [*heads(shown, "", ""), *(row(gpu, shown, cells) for gpu in server.gpus)]
    source = next((each for each in server.sources if each.source == "gpu"), None)
    if source is not None and not source.is_up:
        lines += wrapped(f"GPUs: {source.short}", width, role="wrong" if source.standing in WRONG else "note")
    return lines


def _title(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
    return [Span(cells.fit(gpu_cells.title(gpu), width), "strong")]


def _condition(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
    del cells, width
    word = gpu_cells.condition(gpu)
    return [Span(word.text, "alarm" if word.tone == "wrong" else word.tone)]


def _throttling(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
    del width
    word = gpu_cells.throttling(gpu)
    return [Span(_known(word.text, cells), word.tone)]


def _power(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
    del width
    used, most = gpu_cells.watts(gpu)
    return [Span(cells.count(used) if used is None else of_limit(used, most, cells))]


def _known(text: str, cells: Cells) -> str:
    return cells.glyphs.dash if text == MISSING else text


def _number_column(
    name: str, head: tuple[str, str], width: int, rank: int, text: Callable[[GpuDocument], str]
) -> Column[GpuDocument]:
    def cell(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
        del width
        return [Span(_known(text(gpu), cells))]

    return Column(name, *head, width, cell, rank)


def _name_column(name: str, width: int, rank: int, text: Callable[[GpuDocument], str]) -> Column[GpuDocument]:
    def cell(gpu: GpuDocument, cells: Cells, width: int) -> Sequence[Span]:
        return [Span(cells.fit(text(gpu), width), "dim")]

    return Column(name, name, "", width, cell, rank, is_text=True)


_COLUMNS: Sequence[Column[GpuDocument]] = (
    Column("gpu", "GPU", "", 5, _title, 0, grow=7, is_text=True),
    Column("condition", "state", "", 9, _condition, 1, is_text=True),
    _number_column("busy", ("busy", "%"), 5, 2, gpu_cells.busy),
    _number_column("memory", ("memory", "GiB"), 12, 3, gpu_cells.server_memory),
    _number_column("other_memory", ("others", "GiB"), 6, 7, gpu_cells.other_memory),
    Column("power", "power", "W of max", 11, _power, 4),
    _number_column("temperature", ("core", "°C"), 4, 5, gpu_cells.temperature),
    _number_column("clock", ("SM", "MHz"), 5, 9, gpu_cells.clock),
    Column("throttled", "throttled", "% of time", 14, _throttling, 6, grow=40, is_text=True),
    _name_column("place", 12, 10, lambda gpu: gpu.pci_bus_id),
    _name_column("model", 22, 11, lambda gpu: gpu.name),
)
