# SPDX-License-Identifier: Apache-2.0
"""What the single requests of a client show: TTFT by prompt length, the slowest, failures, the load over time."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_watch.analysis.loadtest.client_requests import load_over_time, request_details, steady_window
from vllm_watch.analysis.loadtest.client_runs import read_client_runs
from vllm_watch.analysis.loadtest.load_test import Report
from vllm_watch.analysis.rendering.report_document import report_html, report_text
from vllm_watch.cli.commands.output_formats import write_answer
from vllm_watch_parsers.request_list import Request, result_of


FOLDER = Path(__file__).parents[1] / "parsers" / "benchmark_results"


def listed(count: int = 200, every: float = 1.0):
    """Return the result of requests whose TTFT grows by 100 ms for each 1,000 tokens of the prompt."""
    rows = [
        Request(
            start=1.8e9 + every * at, prompt_tokens=100 * (at % 20), output_tokens=11, ttft=0.01 * (at % 20), tpot=0.5
        )
        for at in range(count)
    ]
    return result_of(rows, "a list of requests")


def test_ttft_grows_by_what_it_grows_for_each_thousand_tokens():
    """The slope is that of the requests."""
    details = request_details(listed())

    assert details is not None
    assert details.slope is not None
    assert details.slope.ms_per_1000_tokens == pytest.approx(100)


def test_requests_at_work_and_tokens_follow_from_starts_and_lengths():
    """One request a second of some five seconds has five at work, and the tokens of all are there."""
    result = listed()
    over_time = load_over_time(result.requests, 1.8e9)
    step = over_time.times[1] - over_time.times[0]

    middle = over_time.values["requests_running"][40:80]
    assert sum(each or 0 for each in middle) / 40 == pytest.approx(5.1, abs=0.3)
    assert step * sum(each or 0 for each in over_time.values["generation_tokens_per_second"]) == pytest.approx(2200)


def test_a_constant_load_has_a_steady_window_without_its_drain():
    """The window ends with the last start."""
    result = listed()
    steady = steady_window(result.requests, load_over_time(result.requests, 1.8e9))

    assert steady is not None
    assert steady.end <= 1.8e9 + 199 + 2


@pytest.mark.parametrize("name", ["requests.csv", "guidellm-0.8.1.json", "serve-0.33.0-detailed.json"])
def test_a_report_tells_of_single_requests(name):
    """The text has failures by reason and the slowest, the page the plot; neither has an address or a prompt."""
    report = Report(runs=read_client_runs((FOLDER / name).read_text(encoding="utf-8"), name))
    text, page = report_text(report), report_html(report)

    assert "timeout" in text
    assert "The slowest" in text
    assert "TTFT by the length of the prompt" in page
    assert "192.0.2.7" not in text + page
    assert "secret prompt" not in text + page


def test_a_dash_as_output_is_standard_output(capsys):
    """``-o -`` writes no file of that name."""
    write_answer("the answer\n", "text", "-")

    assert capsys.readouterr().out == "the answer\n"
