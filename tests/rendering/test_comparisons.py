# SPDX-License-Identifier: Apache-2.0
"""A comparison says first what was tested and whether it can be, then each metric with its verdict."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from msgspec.structs import replace
from tests.rendering import pages, reports
from tests.rendering.pages import comparisons_markdown, comparisons_table
from tests.rendering.test_report import rows
from tests.support.load_tests import LOAD, latency, single

from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Comparisons, Side, Sweep
from vllm_watch.analysis.loadtest.load_test import Distribution
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.comparison_answer import brief
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.difference_figure import difference_figure
from vllm_watch.analysis.rendering.distribution_figures import together
from vllm_watch.analysis.rendering.json_output import comparisons_json
from vllm_watch.analysis.rendering.text import render_blocks


FORMATS = [comparisons_table, comparisons_markdown, comparisons_json, comparisons_html]
REASON = "The lengths differ: 201 and 803 input tokens for each request."
REFUSED = {"comparable": False, "reasons": (REASON,), "metrics": ()}
SEVERAL = reports.comparisons(("draft4", "draft8"))


def unwrapped(comparisons):
    """Return comparisons as text in one line."""
    return " ".join(comparisons_table(comparisons).split())


def short(comparisons):
    """Return the lines of the answer as a terminal of 80 columns shows them."""
    return render_blocks(brief(comparisons)).splitlines()


def test_an_answer_is_a_sentence_and_about_ten_lines():
    """The sentence, five metrics with their differences and grades, what to do next, and what is left out."""
    lines = short(reports.comparisons())

    assert lines[0] == "draft4 is faster: output 520 against 468 tokens/s, +11 % (shown)."
    assert ["Output (tokens/s)", "468", "520", "+51.7", "+11.0", "shown"] in rows("\n".join(lines))
    assert ["TTFT P50 (ms)", "58.0", "57.4", "-0.600", "-1.0", "not decided"] in rows("\n".join(lines))
    assert "Next: runs of each side, in turns (A B B A), that would show it: TTFT P50 9." in " ".join(lines)
    assert lines[-1] == "1 warning; --all has it, all metrics and what differs."
    assert 8 <= len(lines) <= 12
    assert max(map(len, lines)) <= 80


def test_one_run_of_each_is_answered_in_twelve_lines():
    """At most: of a burst of few requests, with long names, the answer is on the first line."""
    load = replace(LOAD, max_concurrency=None, num_prompts=100)
    few = {"load": load, "successful": 100, "ttft_ms": latency(3000.0, count=100)}
    names = [f"result-with-drafts-of-{number}-tokens" for number in ("four", "eight")]
    sides = [single(name, speed, **few) for name, speed in zip(names, (1.0, 0.75), strict=True)]
    lines = short(compare_sides(sides))

    assert lines[0].startswith(f"{names[1]} is slower in these two runs: output ")
    assert len(lines) <= 12


def test_what_must_be_known_of_a_value_is_below_the_table():
    """A percentile of few requests is there, marked, and the mark is explained."""
    few = reports.latency_row(
        "ttft_ms.p99", "likely", 185.6, 240.1, 54.5, 29.4, -2.0, 49.0, note="P99 of few requests."
    )
    lines = short(reports.comparisons(metrics=(few,)))

    assert ["TTFT P99 (ms)", "186", "240*", "+54.5", "+29.4", "likely"] in rows("\n".join(lines))
    assert "* P99 of few requests." in lines


def test_long_names_of_sides_are_letters():
    """The columns are A and B where names are long, which a line says, unless another side is called so."""
    lines = short(Comparisons(baseline="b" * 20, sides=(), pairs=(reports.comparison("b" * 20, "c" * 20),)))

    assert f"A is {'b' * 20}, B is {'c' * 20}." in lines
    assert ["Flag", "draft2", "C"] in rows(comparisons_table(reports.comparisons(("C",))))


def test_several_sides_are_a_row_each():
    """Of several sides each has its sentence, and one table has a row for each with its difference and grade."""
    lines = short(SEVERAL)

    assert [line.partition(":")[0] for line in lines[:2]] == ["draft4 is faster", "draft8 is faster"]
    assert ["draft8", "528", "60.0", "3.20", "+11.0", "shown"] in rows("\n".join(lines))
    assert len(lines) <= 12


def test_a_sweep_says_where_it_stops_growing():
    """Where the sides are loads of one configuration, the answer is its knee, and no side is compared with another."""
    sweep = Sweep(name="", loads=("1", "2"), output_throughput=(1.0, 2.0), sentence="Output stops growing at 2.")
    lines = short(msgspec.structs.replace(SEVERAL, sweeps=(sweep,)))

    assert lines[0] == "Output stops growing at 2."
    assert ["draft8", "528", "60.0", "3.20"] in rows("\n".join(lines))
    assert "is faster" not in " ".join(lines)


@pytest.mark.parametrize("render", [comparisons_table, comparisons_markdown, comparisons_html])
def test_the_answer_comes_first(render):
    """Every format begins with the sentence; doubts, what differs and all metrics come after it."""
    text = render(reports.comparisons())
    body = text.partition("<main>")[2] or text
    places = [body.index(each) for each in ("is faster", "Take care", "What differs", "All metrics")]

    assert places == sorted(places)


def test_what_differs_and_what_is_the_same():
    """The flags that differ are a table, what is the same is one paragraph."""
    text = comparisons_table(reports.comparisons())

    assert ["num-speculative-tokens", "2", "4"] in rows(text)
    assert ["seed", "1", "\N{EN DASH}"] in rows(text)
    assert "The same on both sides: model Qwen3.6-27B, max-num-batched-tokens 8192." in text


def test_each_metric_has_its_interval_and_grade():
    """A row has both values, the difference, its interval and a grade; numbered notes say why."""
    text = comparisons_table(reports.comparisons())

    assert ["Output (tokens/s)", "468", "520", "+51.7", "+11.0 [8.1, 14.0]", "shown"] in rows(text)
    assert ["P99", "186", "240", "+54.5", "+29.4 [12.0, 49.0]", "shown"] in rows(text)
    assert ["Median", "58.0", "57.4", "-0.600", "-1.0 [-6.2, 4.4]", "not decided[1]"] in rows(text)
    assert "[1] The interval holds 0. 9 runs of each side would show such a difference." in text
    assert ["Mean", *["\N{EN DASH}"] * 4, "not decided[2]"] in rows(text)


@pytest.mark.parametrize("word", ["eadline", "Holm", "Welch", "blocks", "basis"])
def test_words_of_the_method_are_left_to_its_document(word):
    """No text of a comparison needs the words of statistics."""
    assert not any(word in render(SEVERAL) for render in (comparisons_table, comparisons_markdown))


def test_several_sides_have_decisions_and_all_values():
    """Of several sides there are who wins by what and one row for each, then every comparison."""
    text = comparisons_table(SEVERAL)

    assert ["Lowest TTFT", "draft2", "not decided"] in rows(text)
    assert ["draft8", "num-speculative-tokens 2, seed 1"] in rows(text)
    assert text.index("Decisions") < text.index("All configurations") < text.index("draft4 with draft2\n")
    assert unwrapped(SEVERAL).count("The same on all sides: model Qwen3.6-27B, max-num-batched-tokens 8192.") == 1
    assert "The same on both sides" not in text


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

    assert {"baseline", "candidate", "comparable", "reasons", "config", "metrics"} <= set(one)
    assert [] == one["reasons"]
    assert {"flag": "seed", "a": "1"} == one["config"][1]
    assert {"metric": "output_throughput", "runs": [5, 5], "grade": "shown", "low": 8.1, "high": 14.0}.items() <= (
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
@pytest.mark.parametrize("known", [{}, REFUSED, {"config": (), "common_config": {}}])
def test_whatever_is_not_known_is_not_said(render, known):
    """No format shows a value of Python's."""
    assert not re.search(r"\b(None|nan)\b", render(reports.comparisons(**known)))


def test_sides_are_drawn_over_each_other():
    """A page has a drawing of all sides for each latency, with a legend of them."""
    root = pages.read(comparisons_html(reports.comparisons()))
    titles = [figure.find("h3")[0].text for figure in root.find("figure")]
    legends = [[item.text for item in figure.find("ul")[0].find("li")] for figure in root.find("figure")]

    assert "Differences with their intervals" == titles[0]
    assert "Time to first token (TTFT): share of the values at or below" in titles
    assert ["draft2", "draft4"] == legends[1]


def test_intervals_are_drawn_beside_their_labels():
    """Each metric with an interval is a line from its low to its high end, to the right of its name."""
    page = comparisons_html(reports.comparisons())
    lines = re.findall(r'class="interval (s\d)" x1="([\d.]+)%" x2="([\d.]+)%" y1="(\d+)"', page)
    label = re.search(r'x="0%" y="(\d+)" text-anchor="start" dx="4">Output<', page)

    assert ["s2", "s1", "s4", "s4"] == [style for style, *_ in lines]
    assert 24 + 76 * (8.1 + 20) / 80 == pytest.approx(float(lines[0][1]), abs=0.01)
    assert 24 + 76 * (14.0 + 20) / 80 == pytest.approx(float(lines[0][2]), abs=0.01)
    assert abs(int(label[1]) - int(lines[0][3])) <= 5


def test_what_is_beyond_the_plot_is_an_arrow():
    """An interval of +313 % ends in an arrow at 300 %, and no mark is there that would be read as 300."""
    far = reports.row(percent=313.0, low=241.0, high=401.0)
    near = reports.row(percent=250.0, low=200.0, high=401.0)
    drawn = [difference_figure(reports.comparison(metrics=(each,)), "k").svg for each in (far, near)]

    assert [1, 1] == [picture.count("M0-5L9 0L0 5z") for picture in drawn]
    assert [0, 1] == [picture.count(svg.STYLES[2].mark) for picture in drawn]


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

    assert text.index(">Grade<") < text.index("<figure>")


def test_runs_of_a_side_are_one_distribution():
    """Distributions over different parts of one grid become one, in which no value is lost."""
    low = Distribution(bounds=(1.0, 2.0), counts=(0, 3, 0))
    high = Distribution(bounds=(2.0, 3.0), counts=(0, 5, 1))

    assert Distribution(bounds=(1.0, 2.0, 3.0), counts=(0, 3, 5, 1)) == together([low, high])
    assert Distribution(bounds=(), counts=(0.0,)) == together([])
