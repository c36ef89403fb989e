# SPDX-License-Identifier: Apache-2.0
"""Recorded load tests of real servers are rendered in every format, and as a page that is small and whole."""

from __future__ import annotations

import json
import re

import pytest

from tests.loadtest.load_tests import FOLDER, report_of
from tests.rendering import pages
from tests.rendering.pages import comparisons_markdown, comparisons_table

from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.load_test import Report
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.json_output import comparisons_json, report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text


pytestmark = pytest.mark.slow
NOT_SAID = re.compile(r"\b(None|nan|inf)\b")


def read(*names):
    """Return the runs of some recorded load tests as one report."""
    return Report(runs=tuple(run for name in names for run in report_of(FOLDER / f"{name}.jsonl.xz").runs))


def test_a_real_load_test_is_rendered():
    """A recorded run has a result of both views, phases, a timeline and its latencies."""
    report = read("draft2-run1")
    root = pages.read(report_html(report))
    titles = [node.text for node in root.find("h3")]

    assert not NOT_SAID.search(report_text(report) + report_markdown(report) + root.text)
    assert max(map(len, report_text(report).splitlines())) <= 80
    assert {"ttft_ms", "tpot_ms"} <= set(json.loads(report_json(report))["runs"][0]["result"])
    assert ["The run over time", "Time to first token (TTFT): share of the values at or below"] == titles[:2]


def test_a_real_curve_is_rendered():
    """Eight loads of one server are a table, two curves, and a page under the limit."""
    page = report_html(report_of(FOLDER / "curve.jsonl.xz"))

    assert len(page.encode()) < 1_500_000
    assert "All 8 runs" in page
    assert "Latency turns at " in page
    assert "Time to first token against throughput" in page


def test_a_real_comparison_is_rendered():
    """Two configurations of a real server, two runs each, are compared in each format."""
    sides = [Side(name=name, runs=read(f"{name}-run1", f"{name}-run2").runs) for name in ("draft2", "draft4")]
    compared = compare_sides(sides)
    page = comparisons_html(compared)

    assert not NOT_SAID.search(comparisons_table(compared) + comparisons_markdown(compared) + pages.read(page).text)
    assert max(map(len, comparisons_table(compared).splitlines())) <= 80
    assert {"flag": "speculative-config.num_speculative_tokens", "a": "2", "b": "4"} in (
        json.loads(comparisons_json(compared))["config"]
    )
    assert "Differences with their intervals" in page
