# SPDX-License-Identifier: Apache-2.0
"""A report as text, Markdown and JSON says what is known, in one order, and nothing else."""

from __future__ import annotations

import json
import math
import re

from itertools import pairwise

import msgspec
import pytest

from tests.rendering import reports

from vllm_watch.analysis.loadtest.load_test import Bounds, Latency, Load, Report, Result
from vllm_watch.analysis.rendering.document import Document
from vllm_watch.analysis.rendering.json_output import report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text
from vllm_watch.analysis.rendering.text import render_text


FORMATS = [report_text, report_markdown, report_json]
PARTIAL = dict(reports.emptied())


def rows(text):
    """Return the cells of each line of a text, which lie two spaces apart."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def headings(text):
    """Return the headings of a report of one run as text."""
    lines = text.splitlines()
    return [line for line, below in pairwise(lines) if line and re.fullmatch("-+", below)]


def test_the_sections_are_in_order():
    """The most important numbers come first, then whether they count, all numbers, what happened, and what ran."""
    assert headings(report_text(reports.report())) == [
        "In short",
        "Validity",
        "Result",
        "Goodput",
        "How much it can carry",
        "The server during the load",
        "Phases",
        "Events",
        "What ran",
    ]


def test_a_terminal_of_80_columns_is_wide_enough():
    """No line of a report is wider than 80 columns, also with names that are."""
    texts = [report_text(each) for each in (reports.report(), reports.sweep(), reports.hostile(), reports.bare())]

    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


def test_a_text_is_as_wide_as_asked():
    """In more columns sentences have longer lines and names are whole; the numbers and words are the same."""
    report = reports.hostile()
    narrow, wide = report_text(report), report_text(report, 120)

    assert 100 < max(map(len, wide.splitlines())) <= 120
    assert len(wide.splitlines()) < len(narrow.splitlines())
    assert max(map(len, report_text(reports.report(), 60).splitlines())) <= 80


def test_the_views_are_beside_each_other():
    """Client, server and steady window are columns; a percentile from buckets shows its bounds, few values say so."""
    shown = rows(report_text(reports.report()))

    assert ["Median", "58.0", "50 to 75", "50 to 75"] in shown
    assert ["P99", "186", ">1,000", ">1,000"] in shown
    assert ["P95", "6.16", "too few values", "too few values"] in shown
    assert ["P99", "10.4", ">812", ">812"] in shown
    assert ["Failed requests", "0", "\N{EN DASH}", "\N{EN DASH}"] in shown


@pytest.mark.parametrize(("result", "view"), [(reports.client_result(), "client"), (reports.server_result(), "server")])
def test_the_first_row_has_the_most_important_numbers(result, view):
    """Output, TTFT, TPOT and goodput of a run are in one row at the top, with who measured them."""
    text = report_text(reports.report(result=result)).split("Validity")[0]
    shown = {
        "client": ["8 at once", "468", "58.0", "186", "3.56", "98.5"],
        "server": ["8 at once", "50 to 75", ">1,000", "3.20"],
    }

    assert shown[view] in rows(text)
    assert f"As the {view} measured it, over the whole load." in text


def test_nothing_is_at_the_top_if_nothing_is_known():
    """A run without a result has no first row."""
    assert "In short" not in report_text(reports.report(result=None))


def test_too_few_values_in_the_first_bucket_say_nothing():
    """A percentile that is only known to be above 0 has too few values."""
    few = Latency(count=80, bounds={"p99": Bounds(low=0.0)}, too_few=("p99",))
    text = report_text(reports.report(result=Result(view="server", ttft_ms=few), views=(), steady=None))

    assert ["P99", "too few values"] in rows(text)
    assert ">0" not in text


def test_a_median_is_not_lost_between_its_two_names():
    """A result that has a median but no P50 shows it."""
    result = Result(view="client", ttft_ms=Latency(median=58.0))

    assert ["Median", "58.0"] in rows(report_text(reports.report(result=result, views=(), steady=None)))


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({}, "ok       All 2,400 requests succeeded."),
        (
            {"result": Result(view="client", successful=990, failed=10)},
            "warning  10 of 1,000 requests failed (1.00 %): tokens, rates and latencies are",
        ),
        (
            {"result": Result(view="server", successful=7)},
            "unknown  7 requests succeeded. How many failed is not known.",
        ),
        ({"result": Result(view="client", successful=0, failed=0)}, "warning  No request was counted."),
        ({"phases": ()}, "unknown  Whether the server was saturated is not known."),
        ({}, "warning  The server was saturated for 2 min 36 s, 26.0 % of the load."),
        (
            {"start": reports.START + 60, "end": reports.START + 540},
            "warning  The server was saturated for 2 min, 25.0 % of the load.",
        ),
        ({"end": None}, "warning  The server was saturated for 2 min 36 s."),
        ({"result": Result(view="client", successful=0, failed=200)}, "warning  All 200 requests failed."),
        ({"result": Result(view="client", successful=0, failed=1)}, "warning  The only request failed."),
        ({}, "warning  The server was down for 24 s."),
        ({"phases": reports.phases()[:4]}, "ok       The server was not saturated."),
    ],
)
def test_validity_is_said_in_words(known, sentence):
    """Errors, saturation and outages are sentences, each marked good, bad or unknown."""
    assert sentence in report_text(reports.report(**known))


@pytest.mark.parametrize("render", [report_text, report_markdown])
def test_why_the_maximum_is_not_known_is_beside_it(render):
    """The reason is said once, where the maximum would be; a result alone says which source tells it."""
    reason = "The maximum is not known: it was not reached; an estimate needs more."
    noted = reports.whole_run(capacity=None, notes=(reason,))
    alone = reports.whole_run(capacity=None, notes=(), phases=())
    text = " ".join(render(Report(runs=(noted,))).split())

    assert text.count(reason) == 1
    assert text.index("How much it can carry") < text.index(reason)
    assert "Add the server's log or a recording." in " ".join(render(Report(runs=(alone,))).split())
    offline = msgspec.structs.replace(alone, load=Load(endpoint="throughput"))
    assert "Add the server's log" not in render(Report(runs=(offline,)))


@pytest.mark.parametrize("render", [report_text, report_markdown, report_html])
def test_why_the_maximum_of_several_runs_is_not_known_is_said_once(render):
    """What is said of all loads of one server comes once, before them; what is said of some is with each of these."""
    shared, own = "The maximum is not known: it was not reached.", "The maximum is not known: only one level."
    runs = {note: reports.whole_run("a", capacity=None, notes=(note,)) for note in (shared, own)}
    alike, mixed = (" ".join(render(Report(runs=(runs[shared], runs[each]))).split()) for each in (shared, own))

    assert alike.count(shared) == 1
    assert alike.count("The maximum: see above, where it is told for several runs together.") == 2
    assert (mixed.count(shared), mixed.count(own)) == (1, 1)


def test_several_runs_begin_with_a_table_of_them():
    """Of several runs the first section has a row for each, with its load; failures only where there are any."""
    text = report_text(reports.sweep())

    assert ["concurrency 8", "8 at once", "424", "56.0", "179", "20.8", "98.5"] in rows(text)
    assert text.index("All 8 runs") < text.index("Run: concurrency 1")
    assert "Failed  " not in text.split("Run: concurrency 1")[0]


def test_the_longest_phases_are_shown():
    """Of hundreds of phases a terminal shows the longest, and says how many are left out."""
    many = tuple(phase for at in range(50) for phase in reports.phases(start=reports.START + at * 600))
    text = report_text(reports.report(phases=many))

    assert "276 shorter phases are left out." in text
    assert len(re.findall(r"^\d+ steady .*18\.3$", text, re.MULTILINE)) == 24


@pytest.mark.parametrize("render", FORMATS)
@pytest.mark.parametrize("missing", PARTIAL)
def test_a_run_may_lack_anything(render, missing):
    """Whichever part of a run is unknown, each format shows the rest and no value of Python's."""
    text = render(PARTIAL[missing])

    assert "draft2-run1" in text
    assert not re.search(r"\b(None|nan|inf)\b", text.replace('"inf"', ""))


@pytest.mark.parametrize("render", FORMATS)
@pytest.mark.parametrize("sources", [reports.bare(), Report(runs=())])
def test_nothing_known_is_said(render, sources):
    """A run of which nothing is known, and a report without runs, are shown as that."""
    text = render(sources)

    assert "None" not in text
    assert text.endswith("\n")


def test_markdown_is_short():
    """In Markdown the flags and the phases are folded."""
    text = report_markdown(reports.report())

    assert (
        text.index("**Time to first token (TTFT), ms**")
        < text.index("<details><summary>What ran")
        < text.index("| steady ")
    )
    assert text.count("<details>") == text.count("</details>") == 2


def test_json_has_the_names_of_the_benchmark():
    """The JSON has the documented keys with full precision, no timeline, and nothing that is not known."""
    run = json.loads(report_json(reports.report()))["runs"][0]

    assert {"source", "model", "version", "config", "load", "result", "phases", "steady", "capacity"} <= set(run)
    assert "timeline" not in run
    assert {"request_rate": "inf", "max_concurrency": 8, "num_prompts": 2400}.items() <= run["load"].items()
    assert 185.6 == pytest.approx(run["result"]["ttft_ms"]["p99"])
    assert 0 == run["result"]["failed"]
    assert "failed" not in run["views"][1]
    assert {"phase": "down", "start": reports.START + 576, "end": reports.START + 600} == run["phases"][-1]
    assert {"tokens_per_second", "low", "high", "basis"} <= set(run["capacity"])


@pytest.mark.parametrize(("start", "end"), [(None, 5.0), (5.0, None), (5.0, 5.0), (5.0, math.inf), (5.0, 1e300)])
def test_json_marks_only_what_has_a_time(start, end):
    """A run that has no time in any calendar has no region for Grafana."""
    (run,) = json.loads(report_json(reports.report(start=start, end=end)))["runs"]

    assert "annotation" not in run


def test_json_of_nothing_is_an_empty_list():
    """A report without runs is a list without entries, and a run keeps its source."""
    assert {"runs": []} == json.loads(report_json(Report(runs=())))
    assert {"runs": [{"source": ["a.log"], "name": "a"}]} == json.loads(report_json(reports.bare()))


def test_json_has_no_number_that_json_lacks():
    """A value that is no finite number is absent, and what is not UTF-8 in a name is escaped."""
    result = Result(view="client", output_throughput=math.nan, request_throughput=math.inf)
    text = report_json(reports.report(result=result, name="a\udc80"))

    assert {"view": "client"} == json.loads(text)["runs"][0]["result"]
    assert text.encode("ascii")


@pytest.mark.parametrize("width", range(20, 60))
def test_a_number_and_its_unit_are_on_one_line(width):
    """However wide a text is, no line ends between a number and its unit, nor within a duration."""
    text = "The log is from 2026-11-21 to 2026-11-22: 6 min 53 s, 97.2 % of 1 d 4 h and 350 ms of it"
    lines = render_text(Document("t", text, ()), width).splitlines()[1:-1]

    assert " ".join(lines) == text
    assert all(any(whole in line for line in lines) for whole in ("6 min 53 s", "97.2 %", "1 d 4 h", "350 ms"))
