# SPDX-License-Identifier: Apache-2.0
"""No format of any answer takes a name from outside for markup, or for a terminal's command."""

from __future__ import annotations

import json
import re

import pytest

from markdown_it import MarkdownIt
from tests.rendering import pages, reports, test_advice, test_backtest

from vllm_watch.analysis.rendering.advice import advice_document
from vllm_watch.analysis.rendering.backtest_document import backtest_document, backtest_json
from vllm_watch.analysis.rendering.comparisons import comparisons_document
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.analysis.rendering.json_output import advice_json, comparisons_json, report_json
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.report_document import report_html, report_markdown, report_text
from vllm_watch.analysis.rendering.text import render_text


NAME = reports.HOSTILE
REPORT, COMPARED, ADVISED = reports.hostile(), reports.hostile_comparisons(), test_advice.advised(NAME)
ALERT = test_backtest.PAGE._replace(alertname=NAME, labels={"server": NAME})
BACKTEST = [test_backtest.result(alerts=(ALERT,), source=NAME)]
COMPARISON, ADVICE = comparisons_document(COMPARED), advice_document(ADVISED, is_verbose=True)
ALERTS = backtest_document(BACKTEST)
ANSWERS = {
    "report": (report_text(REPORT), report_markdown(REPORT), report_html(REPORT), report_json(REPORT)),
    "comparison": (
        *(render(COMPARISON) for render in (render_text, render_markdown)),
        comparisons_html(COMPARED),
        comparisons_json(COMPARED),
    ),
    "advice": (*(render(ADVICE) for render in (render_text, render_markdown, render_html)), advice_json(ADVISED)),
    "alerts": (*(render(ALERTS) for render in (render_text, render_markdown, render_html)), backtest_json(BACKTEST)),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_names_stay_names(answer):
    """No control character is left, no name becomes a tag, a link, emphasis or a cell, and JSON has it as it is."""
    text, markdown, page, as_json = ANSWERS[answer]
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    root = pages.read(page)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text + markdown + page + as_json)
    assert not re.search("<script|<a |<em>|href=", html)
    for table in re.findall("<table>.*?</table>", html, re.DOTALL):
        assert len({len(re.findall("<t[dh]", row)) for row in re.findall("<tr>.*?</tr>", table, re.DOTALL)}) == 1
    assert not root.find("script")
    assert "<script>alert('x')</script>" in root.find("main")[0].text
    assert json.dumps(NAME)[1:-1] in as_json
    assert json.loads(as_json)
