# SPDX-License-Identifier: Apache-2.0
"""The tables of what vllm-watch costs, whose numbers are kept figures: the whole one, and the READMEs' three lines."""

from __future__ import annotations

import math
import re

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.figures import Kept
from tests.benchmarks.gpu import MEMORY, SHARE
from tests.benchmarks.lines import GOALS
from tests.benchmarks.once import BUSY, PROGRAMS
from tests.benchmarks.terminal import MANY, ONE


ROOT = Path(__file__).parents[2]
RATES = [f"{rate:,} lines/s" for rate in GOALS if rate]
Row = tuple[list[tuple[str, str]], list[tuple[str, str]]]
STARTS = ("--version", "once, 300 lines", "run, ready")
ROWS: tuple[Row, ...] = (
    (
        [*(("lines", rate) for rate in RATES), ("lines", "memory, one server")],
        [("lines", f"{rate}: mtail") for rate in RATES],
    ),
    *(
        ([("once", f"{of}once"), ("once", f"{of}backfill")], [("once", f"{of}mtail, {each}") for each in PROGRAMS])
        for of in ("", f"{BUSY}: ")
    ),
    ([("many", "200 servers"), ("many", "memory")], []),
    ([("start", f"{name}: by the clock") for name in STARTS], []),
    ([("top", each) for each in (ONE, f"{ONE}: memory", MANY, "first screen")], []),
    ([("gpu", each) for each in (SHARE, MEMORY)], []),
)
"""Of each row the figures in its two last cells, by benchmark and name, in the order of their numbers."""
SHORT = (ROWS[0], *ROWS[2:4])
TABLES = {
    ROOT / "README.md": ("Cost", SHORT),
    ROOT / "README.zh-CN.md": ("开销", SHORT),
    ROOT / "tests" / "benchmarks" / "README.md": ("Figures", ROWS),
}
"""Of each document with a table the section that it is in, and its rows."""

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?![\d,.]*(?: lines| 行))")
"""A number, but not how many lines are read."""


def filled(text: str, heading: str, rows: Sequence[Row], kept: Kept) -> str:
    """Return a document with the kept figures in a section's table; `ValueError` if it has other rows or numbers."""
    start = text.index(f"\n## {heading}\n")
    end = text.index("\n## ", start + 1)
    lines = text[start:end].split("\n")
    numbers = [number for number, line in enumerate(lines) if line.startswith("| ")][1:]
    for number, cells in zip(numbers, rows, strict=True):
        before, *shown, after = lines[number].rsplit("|", 3)
        pairs = zip(shown, cells, strict=True)
        new = [_filled_cell(cell, [kept.benchmarks[a].figures[b] for a, b in names]) for cell, names in pairs]
        lines[number] = "|".join([before, *new, after])
    return text[:start] + "\n".join(lines) + text[end:]


def _filled_cell(cell: str, values: list[float]) -> str:
    """Return a cell with other values in place of its numbers."""
    if len(_NUMBER.findall(cell)) != len(values):
        raise ValueError(f"{cell.strip()}: expected {len(values)} numbers")
    following: Iterator[float] = iter(values)
    return _NUMBER.sub(lambda _: _shown(next(following)), cell)


def _shown(value: float) -> str:
    """Return a value with two digits, or whole."""
    decimals = max(1 - math.floor(math.log10(value)), 0) if value else 0
    return f"{value:,.{decimals}f}"
