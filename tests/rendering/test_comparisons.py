# SPDX-License-Identifier: Apache-2.0
"""A comparison says first what was tested and whether it can be, then each metric with its verdict."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tests.rendering import pages, reports
from tests.rendering.pages import comparisons_markdown, comparisons_table
from tests.rendering.test_report import rows

from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.load_test import Distribution
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.distribution_figures import together
from vllm_watch.analysis.rendering.json_output import comparisons_json


FORMATS = [comparisons_table, comparisons_markdown, comparisons_json, comparisons_html]
REASON = "The lengths differ: 201 and 803 input tokens for each request."
REFUSED = {"comparable": False, "reasons": (REASON,), "metrics": (), "method": ""}
SEVERAL = reports.comparisons(("draft4", "draft8"))


def unwrapped(comparisons):
    """Return comparisons as text in one line."""
    return " ".join(comparisons_table(comparisons).split())


def test_what_differs_comes_before_any_metric():
    """The flags that differ are the first table, what is the same is one paragraph, and the method is the last line."""
    text = comparisons_table(reports.comparisons())

    assert ["num-speculative-tokens", "2", "4"] in rows(text)
    assert ["seed", "1", "\N{EN DASH}"] in rows(text)
    assert "The same on both sides: model Qwen3.6-27B, max-num-batched-tokens 8192." in text
    assert text.index("What differs") < text.index("The same on both") < text.index("Verdict") < text.index("Method:")
    assert "Method: Student's t" in text.splitlines()[-2]


def test_each_metric_has_its_interval_n_and_verdict():
    """A row has both values, the difference, its interval, n, and a verdict; `~` says what would have been seen."""
    text = comparisons_table(reports.comparisons())

    assert ["Output (tokens/s)", "468", "520", "+51.7", "+11.0 [8.1, 14.0]", "5/5", "better"] in rows(text)
    assert ["P99", "186", "240", "+54.5", "+29.4 [12.0, 49.0]", "5/5", "worse"] in rows(text)
    assert ["Median", "58.0", "57.4", "-0.600", "-1.0 [-6.2, 4.4]", "5/5", "~"] in rows(text)
    assert ["Mean", "3.24", "3.22", "-0.0200", "-0.6 [-1.1, -0.1]", "5/5", "~ small"] in rows(text)
    assert ["Mean", *["\N{EN DASH}"] * 4, "5/5", "\N{EN DASH} [1]"] in rows(text)
    assert "A difference would have been shown from: TTFT P50 5.30 %." in text
    assert "[1] The chunks of a stream hold several tokens with drafts." in text


def test_the_headline_is_said_in_a_sentence():
    """The headline's verdict is the first sentence, whatever it is, with both values and what could be found."""
    better = unwrapped(reports.comparisons())
    unseen = reports.row(verdict="no_difference_shown", is_headline=True, detectable_percent=4.51)
    few = reports.row(verdict="too_few", is_headline=True, low=None, high=None)

    assert better.index("In short") < better.index("ok Output (tokens/s)") < better.index("What differs")
    assert "ok Output (tokens/s): draft4 is better than draft2, 520 against 468: +11.0 [8.1, 14.0] %." in better
    assert "no difference is shown; these runs can only show one of 4.51 % or more." in unwrapped(
        reports.comparisons(metrics=(unseen,))
    )
    assert "there are not enough runs" in unwrapped(reports.comparisons(metrics=(few,)))


def test_what_became_worse_is_said_in_a_sentence():
    """A metric besides the headline that is shown to be better or worse is a sentence below that of the headline."""
    text = unwrapped(reports.comparisons())

    assert "warning TTFT P99 (ms): draft4 is worse than draft2, 240 against 186: +29.4 [12.0, 49.0] %." in text
    assert text.index("is better than") < text.index("is worse than") < text.index("What differs")


@pytest.mark.parametrize("render", [comparisons_table, comparisons_markdown])
def test_not_comparable_comes_before_any_number(render):
    """Sides that are not comparable have their reasons first and no metrics; forced, the numbers stay below them."""
    refused = render(reports.comparisons(**REFUSED))
    forced = render(reports.comparisons(comparable=False, reasons=(REASON,)))

    assert "No numbers: these sides are not comparable." in " ".join(refused.split())
    assert "Verdict" not in refused
    assert (
        forced.index("Not comparable") < forced.index(REASON) < forced.index("What differs") < forced.index("Verdict")
    )


def test_several_sides_begin_with_the_decisions():
    """Of several sides there are first who wins by what and one row for each, then every comparison."""
    text = comparisons_table(SEVERAL)

    assert ["Lowest TTFT", "draft2"] in rows(text)
    assert ["Least memory", "~", "no difference is shown"] in rows(text)
    assert ["draft8", "num-speculative-tokens 2, seed 1"] in rows(text)
    assert ["draft8", "60.0", "3.20", "528"] in rows(text)
    assert text.index("Decisions") < text.index("All configurations") < text.index("draft4 with draft2\n")


def test_several_sides_say_each_thing_once():
    """A headline and what all sides have in common are said for all together, and not again for each comparison."""
    text = unwrapped(SEVERAL)

    assert text.count("draft4 is better than draft2") == text.count("draft8 is better than draft2") == 1
    assert text.count("draft8 is worse than draft2") == 1
    assert text.count("The same on all sides: model Qwen3.6-27B, max-num-batched-tokens 8192.") == 1
    assert "The same on both sides" not in text
    assert text.startswith("draft4, draft8 compared with draft2")


def test_several_sides_say_first_who_is_not_comparable():
    """Of several sides the ones that cannot be compared are named before any table."""
    text = unwrapped(reports.comparisons(("draft4", "draft8"), **REFUSED))

    assert "draft8 is not comparable with draft2. " + REASON in text
    assert text.index(REASON) < text.index("Decisions")


def test_no_column_has_the_name_of_another_side():
    """The columns are A and B unless a side is called so: then they have the names of the two that are compared."""
    letters = reports.comparisons(("C",))
    names = msgspec.structs.replace(
        SEVERAL,
        baseline="A",
        sides=tuple(Side(name=name, runs=SEVERAL.sides[0].runs) for name in "ABC"),
        pairs=tuple(
            msgspec.structs.replace(pair, baseline="A", candidate=name)
            for pair, name in zip(SEVERAL.pairs, "BC", strict=True)
        ),
    )

    assert "A is draft2 (2 runs), the baseline; B is C (2 runs)." in unwrapped(letters)
    assert ["Flag", "A", "B"] in rows(comparisons_table(letters))
    assert "The baseline is A (2 runs); C (2 runs) is compared with it." in unwrapped(names)
    assert ["Flag", "A", "C"] in rows(comparisons_table(names))


def test_no_table_is_without_values():
    """Where no value is known of all sides, there is no table that only repeats their names."""
    matrix = tuple(msgspec.structs.replace(each, values={}) for each in SEVERAL.matrix)

    alike = tuple(msgspec.structs.replace(each, config={}) for each in SEVERAL.matrix)

    assert "No difference of configuration is known." in unwrapped(msgspec.structs.replace(SEVERAL, matrix=alike))
    assert "All configurations" in comparisons_markdown(SEVERAL)
    assert "All configurations" not in comparisons_markdown(msgspec.structs.replace(SEVERAL, matrix=matrix))


def test_json_of_two_sides_is_one_comparison():
    """Two sides have the documented keys, lists also where they are empty, and what is not known is absent."""
    one = json.loads(comparisons_json(reports.comparisons(reasons=(), warnings=())))

    assert {"baseline", "candidate", "comparable", "reasons", "config", "method", "metrics"} <= set(one)
    assert [] == one["reasons"]
    assert {"flag": "seed", "a": "1"} == one["config"][1]
    assert {"metric": "output_throughput", "n": [5, 5], "verdict": "better", "low": 8.1, "high": 14.0}.items() <= (
        one["metrics"][0].items()
    )
    assert "low" not in one["metrics"][4]


def test_json_of_several_sides_is_all_comparisons():
    """Several sides have a list of comparisons beside the matrix and the decisions."""
    several = json.loads(comparisons_json(SEVERAL))

    assert ["draft4", "draft8"] == [each["candidate"] for each in several["comparisons"]]
    assert {"ttft_ms.p50": 60.0, "tpot_ms.mean": 3.2, "output_throughput": 528.0} == several["matrix"][2]["values"]
    assert "winner" not in several["decisions"][1]


@pytest.mark.parametrize("render", FORMATS)
@pytest.mark.parametrize("known", [{}, REFUSED, {"config": (), "common_config": {}, "method": ""}])
def test_whatever_is_not_known_is_not_said(render, known):
    """No format shows a value of Python's."""
    assert not re.search(r"\b(None|nan)\b", render(reports.comparisons(**known)))


def test_sides_are_drawn_over_each_other():
    """A page has a drawing of all sides for the time and for each latency, with a legend of them."""
    root = pages.read(comparisons_html(reports.comparisons()))
    titles = [figure.find("h3")[0].text for figure in root.find("figure")]
    legends = [[item.text for item in figure.find("ul")[0].find("li")] for figure in root.find("figure")]

    assert ["Differences with their 95 % intervals", "The sides over time"] == titles[:2]
    assert "Time to first token (TTFT): share of the values at or below" in titles
    assert ["draft2: draft2-run1", "draft4: draft4-run1"] == legends[1]
    assert ["draft2", "draft4"] == legends[2]


def test_intervals_are_drawn_with_their_verdicts():
    """Each metric with an interval is a line from its low to its high end, in the style of its verdict."""
    page = comparisons_html(reports.comparisons())
    lines = re.findall(r'class="interval (s\d)" x1="([\d.]+)%" x2="([\d.]+)%"', page)

    assert ["s2", "s1", "s4", "s4"] == [style for style, _, _ in lines]
    assert (8.1 + 20) / 80 * 100 == pytest.approx(float(lines[0][1]), abs=0.01)
    assert (14.0 + 20) / 80 * 100 == pytest.approx(float(lines[0][2]), abs=0.01)


def test_sides_with_several_loads_are_curves():
    """Sides that have several loads are lines of throughput against latency; repeated runs of one load are not."""
    runs = reports.sweep().runs
    several = msgspec.structs.replace(
        reports.comparisons(), sides=(Side(name="a", runs=runs), Side(name="b", runs=runs))
    )
    curve = "Time to first token against throughput"

    assert curve in comparisons_html(several)
    assert curve not in comparisons_html(reports.comparisons())


def test_a_page_has_its_tables_before_its_drawings():
    """On a page of two sides the metrics come before the drawings."""
    text = comparisons_html(reports.comparisons())

    assert text.index(">Verdict<") < text.index("<figure>")


def test_runs_of_a_side_are_one_distribution():
    """Distributions over different parts of one grid become one, in which no value is lost."""
    low = Distribution(bounds=(1.0, 2.0), counts=(0, 3, 0))
    high = Distribution(bounds=(2.0, 3.0), counts=(0, 5, 1))

    assert Distribution(bounds=(1.0, 2.0, 3.0), counts=(0, 3, 5, 1)) == together([low, high])
    assert Distribution(bounds=(), counts=(0.0,)) == together([])
