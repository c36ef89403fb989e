# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a server as a table of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_watch.analysis.rendering import gpu_cells
from vllm_watch.analysis.rendering.document import Block, Cells, Column, plain_table
from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.exposition.document import GpuDocument
from vllm_watch.daemon.exposition.json_view import gpu_documents
from vllm_watch.daemon.state.gpu_report import ServerGpu


_COLUMNS = (
    Column("GPU"), Column("State", is_text=True), Column("Busy", "%"), Column("Memory", "GiB"),
    Column("Other", "GiB"), Column("Power", "W"), Column("Core", "°C"), Column("SM", "MHz"),
    Column("Throttled", "% of time", is_text=True),
)  # fmt: skip


def gpu_table(gpus: Iterable[ServerGpu]) -> Iterator[Block]:
    """Yield the table of what is known of any; nothing where no GPU is. Why they are not read is among the sources."""
    every = [_row(gpu) for gpu in gpu_documents(gpus)]
    known = [number for number in range(len(_COLUMNS)) if {row[number] for row in every} - {MISSING}]
    if every:
        rows = tuple(tuple(row[number] for number in known) for row in every)
        yield plain_table("", tuple(_COLUMNS[number] for number in known), rows)


def _row(gpu: GpuDocument) -> Cells:
    return (
        gpu_cells.title(gpu),
        gpu_cells.condition(gpu).text,
        gpu_cells.busy(gpu),
        gpu_cells.server_memory(gpu),
        gpu_cells.other_memory(gpu),
        gpu_cells.power(gpu),
        gpu_cells.temperature(gpu),
        gpu_cells.clock(gpu),
        gpu_cells.throttling(gpu).text,
    )
