# SPDX-License-Identifier: Apache-2.0
"""Advice in each format: whole, and with nothing in it that a hostile name puts there."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.rendering.pages import read

from vllm_watch.analysis.advice.advice_model import Advice, Advised, Evidence, Expectation, Note, Observed, Silence
from vllm_watch.analysis.rendering.advice import advice_document
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.text import render_text


def advised(name="qwen"):
    """Return advice for a server of a name, and one that is told nothing."""
    evidence = Evidence(
        series="vllm_watch_requests_waiting",
        statistic="mean",
        value=3.5,
        text="is 3.50 on average",
        start=1_700_000_000.0,
        end=1_700_000_600.0,
        seconds=600.0,
    )
    advice = Advice(
        flag="max-num-seqs",
        now="4",
        proposed="8",
        says="Requests wait.",
        expected="requests_waiting falls.",
        risk="Each request gets its tokens more slowly.",
        evidence=(evidence,),
        check=(f"vllm-watch compare now='{name}' changed=changed-1.jsonl.xz",),
        rule="max-num-seqs-up",
        cause="batch_full",
        expects=(Expectation(series="vllm_watch_requests_waiting", direction="falls"),),
        server=name,
        caveats=("This is from 10 min.",),
    )
    return Advised(
        advice=(advice,),
        notes=(Note(text="Long requests fill the cache.", server=name),),
        silent=(Silence(rule="draft-tokens-up", flag="f", reason="it is off", server=name),),
        servers=(
            Observed(name=name, source=(name,), seconds=600.0, model=name, warnings=("There is no /metrics.",)),
            Observed(name="other", source=("other.log",), seconds=600.0),
            Observed(name="short", source=("short.log",), seconds=60.0),
            Observed(name="idle", source=("idle.log",), seconds=0.0),
        ),
    )


@pytest.mark.parametrize("render", [render_text, render_markdown, render_html])
def test_each_format_says_all(render):
    """Change, reason, numbers, risk, commands, notes, warnings, and the servers of which nothing is said."""
    text = " ".join(render(advice_document(advised())).replace("\\", "").split())

    for said in (
        "Advice: 1 flag to change",
        "max-num-seqs: 4 → 8",
        "Requests wait.",
        "vllm_watch_requests_waiting",
        "is 3.50 on average",
        "requests_waiting falls.",
        "gets its tokens more slowly.",
        "changed=changed-1.jsonl.xz",
        "This is from 10 min.",
        "Long requests fill the cache.",
        "There is no /metrics.",
        "Nothing that was observed is a clear reason",
        "2 min are needed.",
        "It had no work",
    ):
        assert said in text
    assert "it is off" not in text
    assert "it is off" in render(advice_document(advised(), is_verbose=True))


def test_rules_that_cannot_judge_are_counted():
    """Where rules are silent for want of something, that is said, with what is missing and how it becomes known."""
    reasons = [("max-num-seqs",), ("max-num-seqs", "the engine's generation"), (), ("the objective",)]
    silent = tuple(
        Silence(rule=f"rule-{number}", flag="f", reason="it is", server="other", unknown=unknown)
        for number, unknown in enumerate(reasons)
    )
    text = " ".join(render_text(advice_document(replace(advised(), silent=silent))).split())

    assert (
        "3 of 4 rules could not judge for want of: max-num-seqs, the engine's generation, the objective (the log from "
        "the server's start has what it was started with; record and the daemon also read the command line of a server "
        "on their machine; --objective says within which latencies requests have to be answered). The others see no "
        "clear reason to change a flag. With --verbose each rule says why."
    ) in text
    assert "Nothing that was observed" not in text


def test_names_stay_whole():
    """A long name of a series or a rule is on one line, so that it can be found and copied."""
    series, rule = "vllm_watch_spec_decode_position_acceptance_ratio", "max-num-seqs-down-for-latency"
    (one,) = advised().advice
    evidence = (Evidence(series=series, statistic="mean", value=0.5, text="is 50 % " * 20),)
    silent = (Silence(rule=rule, flag="f", reason="it is off " * 20, server=one.server),)
    found = replace(advised(), advice=(replace(one, evidence=evidence),), silent=silent)
    text = render_text(advice_document(found, is_verbose=True))

    assert series in text
    assert rule in text
    tables = text[: text.index("Expected:")]
    assert max(map(len, tables.splitlines())) == 80


def test_the_page_is_whole():
    """The page is read strictly, and its commands can be reached by the keyboard."""
    page = read(render_html(advice_document(advised())))

    (commands,) = page.find("pre")
    assert commands.attributes["tabindex"] == "0"
    assert "changed=changed-1.jsonl.xz" in commands.text


@pytest.mark.parametrize(
    ("unknown", "seconds", "title"),
    [
        ((), 600.0, "Advice: nothing to change found"),
        (("max-num-seqs",), 600.0, "Advice: nothing to change found; 1 of 2 rules could not judge"),
        (("max-num-seqs",), 60.0, "Advice: none, for want of work to judge by"),
    ],
)
def test_the_heading_says_no_more_than_is_known(unknown, seconds, title):
    """Without advice it tells how many rules could not judge, or that there was too little work."""
    silent = (
        Silence(rule="draft-tokens-up", flag="f", reason="it is off", server="qwen"),
        Silence(rule="max-num-seqs-up", flag="f", reason="it is", server="qwen", unknown=unknown),
    )
    servers = (Observed(name="qwen", source=("qwen.log",), seconds=seconds),)

    assert advice_document(Advised(advice=(), notes=(), silent=silent, servers=servers)).title == title
