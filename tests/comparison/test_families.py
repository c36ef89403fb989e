# SPDX-License-Identifier: Apache-2.0
"""
Whole comparisons of made-up runs whose truth is known: how often a difference is shown that is none, and one that is.

Runs of a configuration vary in speed by a factor (lognormal), and each latency by one of its own besides.
``VLLM_WATCH_FAMILIES=2000 pytest --whole -s tests/comparison/test_families.py`` prints the table of COMPARING.md.
"""

from __future__ import annotations

import math
import random
import sys

import pytest

from tests.support.load_tests import called_different, latency, row, run
from tests.support.samples import number_of

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import Side


LAYOUTS = ((2, 2), (3, 3), (5, 5), (2, 5), (2, 10), (3, 10))
PAIRS = number_of(100, 1000, "VLLM_WATCH_FAMILIES")
CV = 0.03
OWN = {"ttft_ms": 0.05, "tpot_ms": 0.005, "e2el_ms": 0.01}
POWER = {(2, 2): 0.60, (3, 3): 0.85, (5, 5): 0.95, (2, 5): 0.85, (2, 10): 0.90, (3, 10): 0.95}
"""How often +20 % is shown at least, where runs vary by 3 %."""

pytestmark = pytest.mark.slow


def drawn(generator, name, number, speed):
    """Return a side of so many runs."""
    made = []
    for at in range(number):
        actual = speed * math.exp(generator.gauss(0, CV))
        latencies = {
            name: latency(mean / actual * math.exp(generator.gauss(0, OWN[name])))
            for name, mean in (("ttft_ms", 80.0), ("tpot_ms", 7.0), ("e2el_ms", 780.0))
        }
        made.append(run(f"{name}{at}", actual, **latencies))
    return Side(name=name, runs=tuple(made))


def compared(layout, speed):
    """Yield comparisons of two sides, the second so many times as fast."""
    generator = random.Random(f"{layout} {speed}")
    for _ in range(PAIRS):
        yield compare_pair(drawn(generator, "a", layout[0], 1.0), drawn(generator, "b", layout[1], speed))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_families_of_false_differences(layout):
    """A/A: in 5 % of the comparisons at most any difference is shown, and the headline's interval holds 0 in 96 %."""
    found = list(compared(layout, 1.0))
    families = sum(bool(called_different(each)) for each in found) / PAIRS
    likely = sum(row(each, "output_throughput").grade == "likely" for each in found) / PAIRS
    headline = [row(each, "output_throughput") for each in found]
    held = sum(each.low <= 0 <= each.high for each in headline) / PAIRS
    sys.stdout.write(f"\n{layout}: any shown {families:.1%}, headline likely {likely:.1%}, holds {held:.1%}\n")
    chance = 3 * math.sqrt(0.05 * 0.95 / PAIRS)

    assert families <= 0.05 + chance
    assert 0.96 - chance <= held <= 0.96 + chance


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_found(layout):
    """A/B: +20 % is shown as often as the table says, and never as a loss; the interval holds the truth in 96 %."""
    found = {speed: [row(each, "output_throughput") for each in compared(layout, speed)] for speed in (1.1, 1.2)}
    shown = {speed: sum(each.grade == "shown" for each in rows) / PAIRS for speed, rows in found.items()}
    seen = {speed: sum(each.grade != "not_decided" for each in rows) / PAIRS for speed, rows in found.items()}
    held = sum(each.low <= 20 <= each.high for each in found[1.2]) / PAIRS
    sys.stdout.write(f"\n{layout}: shown {shown}, shown or likely {seen}, holds {held:.1%}\n")

    assert shown[1.2] >= POWER[layout]
    assert 0.96 - 0.065 <= held
    assert not [each for each in found[1.2] if each.grade == "shown" and not each.is_better]
