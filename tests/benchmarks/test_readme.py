# SPDX-License-Identifier: Apache-2.0
"""The README's figures are those that `make bench` has kept."""

from __future__ import annotations

import re

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.benchmarks.__main__ import KEPT
from tests.benchmarks.figures import Kept
from tests.benchmarks.lines import GOALS


README = Path(__file__).parents[2] / "README.md"
RATES = [f"{rate:,} lines/s" for rate in GOALS if rate]
ROWS = {
    "a log that grows": (
        [*(("lines", rate) for rate in RATES), ("lines", "memory, one server")],
        [("lines", f"{rate}: mtail") for rate in RATES],
    ),
    "a finished log": (
        [("once", "once"), ("once", "backfill")],
        [("once", "mtail, lean"), ("once", "mtail, rich")],
    ),
    "200 servers": ([("many", "200 servers"), ("many", "memory")], []),
    "99 of 100 lines": ([("latency", "rare lines: p99"), ("latency", "under load: p99")], []),
    "start": (
        [("start", f"{name}: by the clock") for name in ("--version", "once, 300 lines", "run, ready")],
        [],
    ),
}
"""How a row of the README begins, and the figures of its two last cells, each by its benchmark and name."""

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
OTHER_NUMBERS = re.compile(r"on \d+ lines")


def cells():
    """Return the two last cells of each row of the README's table of what it costs."""
    section = re.search(r"(?ms)^## Cost$(.*?)^## ", README.read_text(encoding="utf-8"))[1]
    return re.findall(r"(?m)^\| (?!what)([^|-][^|]*) \| ([^|]*) \|([^|]*)\|$", section)


def test_every_row_is_held():
    """No row of the table is without a benchmark."""
    assert len(ROWS) == len(cells())
    assert all(text.startswith(begin) for begin, (text, *_) in zip(ROWS, cells(), strict=True))


@pytest.mark.parametrize("begin", ROWS)
def test_the_readmes_figures_are_those_that_are_kept(begin):
    """Each number is the figure of the last release, rounded to the digits that are shown."""
    kept = msgspec.json.decode(KEPT.read_bytes(), type=Kept)
    shown = next(values for text, *values in cells() if text.startswith(begin))
    for cell, figures in zip(shown, ROWS[begin], strict=True):
        numbers = [Decimal(text.replace(",", "")) for text in NUMBER.findall(OTHER_NUMBERS.sub("", cell))]
        exact = [kept.benchmarks[benchmark].figures[name].value for benchmark, name in figures]

        assert len(exact) == len(numbers)
        assert numbers == [Decimal(str(value)).quantize(number) for value, number in zip(exact, numbers, strict=True)]
