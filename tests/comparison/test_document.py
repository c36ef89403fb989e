# SPDX-License-Identifier: Apache-2.0
"""The document of the method says what the code does."""

from __future__ import annotations

import re

from pathlib import Path
from typing import get_args

from vllm_watch.analysis.comparison.comparison_model import FAMILY, OUTPUT, Grade
from vllm_watch.analysis.comparison.verdicts import HEADLINE, others_confidence
from vllm_watch.daemon.statistics.ratio import detectable_difference


TEXT = (Path(__file__).parents[2] / "daemon" / "COMPARING.md").read_text(encoding="utf-8")
VARIATIONS = (0.01, 0.02, 0.03, 0.05, 0.10)


def cells(line):
    """Return the cells of a table's row."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_runs_is_computed():
    """Each figure is the smallest difference of the headline that so many runs find in 9 of 10 cases."""
    rows = [cells(line) for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]

    assert ["2", "3", "5", "10", "20"] == [row[0] for row in rows]
    for number, *figures in rows:
        found = [detectable_difference(cv, int(number), HEADLINE) * 100 for cv in VARIATIONS]
        assert figures == [f"{each:.0f} %" if each >= 100 else f"{each:.1f} %" for each in found]


def test_every_grade_is_explained():
    """The table of grades has all of them."""
    assert set(get_args(Grade)) == set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))


def test_the_metrics_that_are_tested_are_named():
    """The document says how many metrics are tested, and with which intervals."""
    levels = [HEADLINE, *(others_confidence(OUTPUT, is_passed=is_passed) for is_passed in (True, False))]

    assert len(FAMILY) == 8
    assert "eight metrics that are fixed beforehand" in TEXT
    assert all(f"{round(each * 100, decimals):g} %" in TEXT for each, decimals in zip(levels, (1, 1, 2), strict=True))
