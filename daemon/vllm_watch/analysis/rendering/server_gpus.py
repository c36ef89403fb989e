# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a server as a table of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_watch.analysis.loadtest import gpu_texts
from vllm_watch.analysis.loadtest.number_texts import MISSING
from vllm_watch.analysis.rendering.document import Block, Cells, Column, plain_table
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
        gpu_texts.title(gpu),
        gpu_texts.condition(gpu).text,
        gpu_texts.busy(gpu),
        gpu_texts.server_memory(gpu),
        gpu_texts.other_memory(gpu),
        gpu_texts.power(gpu),
        gpu_texts.temperature(gpu),
        gpu_texts.clock(gpu),
        gpu_texts.throttling(gpu).text,
    )
