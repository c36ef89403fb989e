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

from vllm_watch.analysis.loadtest.load_test import Bounds, Latency, Report, Result, ServerUse
from vllm_watch.analysis.rendering.json_output import report_json
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text


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
    """The answer comes first, then the run over time and the result, then the rest."""
    assert headings(report_text(reports.report())) == [
        "In short",
        "The run over time",
        "Result",
        "How much it can carry",
        "The server during the load",
        "What ran",
    ]


def test_a_terminal_of_80_columns_is_wide_enough():
    """No line of a report is wider than 80 columns, also with names that are."""
    texts = [report_text(each) for each in (reports.report(), reports.sweep(), reports.hostile(), reports.bare())]

    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


def test_the_views_are_beside_each_other():
    """Client, server and steady window are columns, the client's in its own digits; a bucket shows its bounds."""
    shown = rows(report_text(reports.report()))

    assert ["Median", "58.00", "50 to 75", "50 to 75"] in shown
    assert ["P99", "185.60", ">1,000", ">1,000"] in shown
    assert ["P99", "10.37", ">812 \N{DAGGER}", ">812 \N{DAGGER}"] in shown
    assert ["Failed requests", "0", "\N{EN DASH}", "\N{EN DASH}"] in shown


DAY = {
    "result": Result(view="server", successful=867, failed=19, duration_s=413.0, output_throughput=712.4),
    "phases": (),
    "use": ServerUse(max_kv_cache_usage_ratio=1.0, max_waiting=334, preemptions=437),
}
LIMITED = "it can carry about 812 output tokens/s, limited by the KV cache; 437 preemptions."
WHOLE = (
    "2,400 requests in 8 min 32 s, output 468 tokens/s, TTFT P50 58.0 ms and P99 186 ms, TPOT 3.56 ms, 98.5 % within"
)
ANSWERS = (
    ({}, f"{WHOLE} the objective; it was down for 24 s; it can carry about 812 output tokens/s."),
    (DAY, f"867 requests in 6 min 53 s, output 712 tokens/s; 19 of 886 failed; {LIMITED}"),
    (
        {
            "result": Result(view="client", successful=1),
            "capacity": None,
            "phases": (),
            "start": None,
            "use": ServerUse(),
        },
        "1 request.",
    ),
)


@pytest.mark.parametrize(("known", "sentence"), ANSWERS)
def test_the_first_sentence_is_the_answer(known, sentence):
    """How the load went, how much the server can carry and what limits it; what is not known is not said."""
    text = " ".join(report_text(reports.report(**known)).split())

    assert f"In short -------- {sentence} " in text


def test_few_values_are_marked():
    """A percentile that few values stand behind is shown with a dagger, and how many there are is said once."""
    few = Latency(p50=18.0, p99=20.5, count=80, too_few=("p99",))
    text = report_text(reports.report(result=Result(view="client", ttft_ms=few), views=(), steady=None))

    assert ["P99", "20.50 \N{DAGGER}"] in rows(text)
    assert text.count("\N{DAGGER} Of 80 requests: may be lower than the true one.") == 1


def test_a_bucket_has_a_best_figure_in_seconds():
    """Where a server's latencies are seconds they are shown as such, with the best figure before the bounds."""
    slow = Latency(mean=52_900.0, p50=18_700.0, bounds={"p50": Bounds(low=10_000.0, high=20_000.0)})
    text = report_text(reports.report(result=Result(view="server", ttft_ms=slow), views=(), steady=None))

    assert "Time to first token (TTFT), s" in text
    assert ["Median", "~18.7 (10 to 20)"] in rows(text)
    assert "TTFT P50 ~18.7 s" in text


def test_what_was_left_out_is_said():
    """Loads that have no run are named in each format."""
    text = "3 loads found, 2 left out."
    report = msgspec.structs.replace(reports.report(), left_out=text)

    assert all(text in render(report) for render in (report_text, report_markdown, report_html, report_json))


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
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


def test_several_runs_begin_with_a_table_of_them():
    """Of several runs the first section has a row for each, with its load; failures only where there are any."""
    text = report_text(reports.sweep())

    assert ["4 concurrency 8", "05:13:23", "8 at once", "424", "56.0 ms", "179 ms", "20.8", "98.5"] in rows(text)
    assert text.index("All 8 runs") < text.index("Run 1: ")
    assert "Failed  " not in text


def test_the_longest_phases_are_shown():
    """Of hundreds of phases a terminal shows the longest, and says how many are left out."""
    many = tuple(phase for at in range(50) for phase in reports.phases(start=reports.START + at * 600))
    text = report_text(reports.report(phases=many))

    assert "276 shorter phases are left out." in text
    assert len(re.findall(r"^\d+ steady .*18\.3 .*2\.71$", text, re.MULTILINE)) == 24


@pytest.mark.parametrize("render", FORMATS)
@pytest.mark.parametrize("missing", PARTIAL)
def test_a_run_may_lack_anything(render, missing):
    """Whichever part of a run is unknown, each format shows the rest and no value of Python's."""
    text = render(PARTIAL[missing])

    assert "draft2-run1" in text
    assert not re.search(r"\b(None|nan|inf)\b", text.replace('"inf"', ""))


def test_what_is_not_the_result_is_folded():
    """In Markdown and HTML what comes after the result is folded."""
    text, page = report_markdown(reports.report()), report_html(reports.report())

    assert text.index("**Time to first token (TTFT), ms**") < text.index("<details><summary>How much it can carry")
    assert text.count("<details>") == text.count("</details>") == 3
    assert page.index("End-to-end latency") < page.index('<details class="run"')


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


def test_json_has_no_number_that_json_lacks():
    """A value that is no finite number is absent, and what is not UTF-8 in a name is escaped."""
    result = Result(view="client", output_throughput=math.nan, request_throughput=math.inf)
    text = report_json(reports.report(result=result, name="a\udc80"))

    assert {"view": "client"} == json.loads(text)["runs"][0]["result"]
    assert text.encode("ascii")
