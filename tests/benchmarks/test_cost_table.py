# SPDX-License-Identifier: Apache-2.0
"""The documents' figures are those that `make bench` has kept."""

from __future__ import annotations

import msgspec
import pytest

from tests.benchmarks.__main__ import KEPT
from tests.benchmarks.cost_table import ROWS, TABLES, filled
from tests.benchmarks.figures import Kept, KeptBenchmark


TABLE = """# Tool

## Cost

| what | ours | theirs |
|---|---|---|
| a log of 20 lines | 1, 1, 1 or 1 % of a core; 1 MiB | 1, 1, 1 or 1 % |
| a million lines | `once` 1 s, `backfill` 1 s | 1 s, 1 s |
| of a busy server | `once` 1 s, `backfill` 1 s | 1 s, 1 s |
| 200 servers | 1 %, 1 MiB | |
| start | 1 s, on 300 lines 1 s, 1 s | |
| `top` | 1 % and 1 MiB, or 1 %; after 1 s | |
| GPUs | 1 %, 1 MiB | |

## More

| 5 | 6 | 7 |
"""


def kept(value):
    """Return kept figures that are all the same."""
    benchmarks = {}
    for benchmark, name in (figure for row in ROWS for cell in row for figure in cell):
        benchmarks.setdefault(benchmark, KeptBenchmark(0.1, {})).figures[name] = value
    return Kept("0.1.0", "2026-11-22", "2 cores", benchmarks)


@pytest.mark.parametrize("document", TABLES, ids=lambda path: str(path.relative_to(path.parents[-2])))
def test_the_readmes_figures_are_those_that_are_kept(document):
    """Each number of the table is that of the last release; `make bench ARGS=--keep` writes them."""
    text = document.read_text(encoding="utf-8")

    assert text == filled(text, *TABLES[document], msgspec.json.decode(KEPT.read_bytes(), type=Kept))


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0123, "0.012"), (1.26, "1.3"), (26.4, "26"), (264.0, "264"), (1264.0, "1,264"), (0.0, "0")]
)
def test_figures_take_the_place_of_numbers(value, shown):
    """All numbers of the two last cells are replaced, but how many lines are read; the rest stays as it is."""
    text = filled(TABLE, "Cost", ROWS, kept(value))

    assert f"| a log of 20 lines | {shown}, {shown}, {shown} or {shown} % of a core; {shown} MiB |" in text
    assert f"| start | {shown} s, on 300 lines {shown} s, {shown} s | |" in text
    assert text.endswith("| 5 | 6 | 7 |\n")
    assert text == filled(text, "Cost", ROWS, kept(value))
