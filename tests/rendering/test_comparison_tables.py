# SPDX-License-Identifier: Apache-2.0
"""The wide table and that of gains have the client's digits, as text, Markdown and CSV."""

from __future__ import annotations

import csv

from tests.rendering import reports
from tests.support.load_tests import changed, latency, run

from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Comparisons, Side
from vllm_watch.analysis.rendering.comparison_tables import gains_table, table_csv, wide_table


def sides(**more):
    """Return two sides of one run each, whose flags differ."""
    return [Side(name=name, runs=(run(name, config={"seed": name}, **more),)) for name in "ab"]


def cells(table):
    """Return the rows of a table, each by the heads of its columns."""
    heads = [column.head for column in table.columns]
    return [dict(zip(heads, row, strict=True)) for group in table.groups for row in group.rows]


def test_a_wide_row_has_all_of_a_side():
    """The flags that differ, the rates, mean, median and P99 of each latency, and success, with two decimals."""
    first, _ = cells(wide_table(compare_sides(sides(output_throughput=1234.56))))

    assert {
        "Side": "a",
        "seed": "a",
        "Output": "1,234.56",
        "TTFT mean": "80.00",
        "Success": "2,000 of 2,000",
    }.items() <= (first.items())
    assert {f"{name} {each}" for name in ("TTFT", "TPOT", "ITL", "E2EL") for each in ("mean", "P50", "P99")} <= set(
        first
    )


def test_memory_is_a_column_where_it_is_known():
    """Weights and the cache that was used are a column, and there is none where nothing is known."""
    hardware = {"model_memory_gib": "16", "kv_cache_memory_gib": "20"}
    a, b = sides()
    with_memory = [changed(each, hardware=hardware, use=reports.server_use()) for each in (a, b)]

    assert cells(wide_table(compare_sides(with_memory)))[0]["Memory"] == "20.40"
    assert "Memory" not in cells(wide_table(compare_sides([a, b])))[0]


def test_p99_of_few_requests_is_marked():
    """The value that the client printed is there, with a mark; CSV has the number alone."""
    table = wide_table(compare_sides(sides(ttft_ms=latency(80.0, count=100))))

    assert cells(table)[0]["TTFT P99"] == "200.00 †"
    assert table.notes
    assert next(csv.DictReader(table_csv(table).splitlines()))["TTFT P99 (ms)"] == "200.00"


def test_gains_are_absolute_and_in_per_cent():
    """Each metric of each side has the baseline's value, its own, and both gains; CSV has no commas in numbers."""
    pair = reports.comparison(metrics=(reports.row(a=1200.0, b=900.0, difference=-300.0, percent=-25.0),))
    table = gains_table(Comparisons(baseline="draft2", sides=(), pairs=(pair,)))

    assert table.groups[0].rows == (
        ("draft4", "Output", "tokens/s", "1,200.00", "900.00", "-300.00", "-25.00", "shown"),
    )
    assert table_csv(table).splitlines()[1] == "draft4,Output,tokens/s,1200.00,900.00,-300.00,-25.00,shown"
