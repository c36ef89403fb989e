# SPDX-License-Identifier: Apache-2.0
"""What people and programs read of a backtest."""

from __future__ import annotations

import json
import time

import pytest

from vllm_watch.analysis.backtest.fired import Alert, NotJudged, SourceResult
from vllm_watch.analysis.rendering.backtest_document import backtest_document, backtest_json
from vllm_watch.analysis.rendering.text import render_text
from vllm_watch.daemon.config.moments import TimeRange


START = 1_795_183_200.0  # 2026-11-20T14:00:00Z
SERVER = {"server": "qwen", "engine": "0", "model_name": "m", "job": "vllm-watch", "tier": "core"}


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    """Let this machine's time zone be an hour ahead of UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def alert(name, severity, start, end, **more):
    """Return an alert that begins and ends so many seconds after the start."""
    return Alert(name, severity, SERVER, START + start, None if end is None else START + end, **more)


PAGE = alert("VllmEngineStalled", "critical", 600, 690, pending_since=START + 570)
WARNING = alert("VllmQueueStanding", "warning", 0, None, began_before=True)
OWN = Alert("Mine", "", {"instance": "a:1"}, START + 60, START + 120)
QUIET = (
    NotJudged("VllmProbeFailing", "critical", "no probe was made"),
    NotJudged("Slow", "", "it waits 1h"),
)
PENDING = (alert("A", "", 0, 15), alert("A", "", 30, 60))


def words(text):
    """Return a text with its lines joined."""
    return " ".join(text.split())


def result(**changes):
    """Return a source's result."""
    found = SourceResult("a|b.log", START, START + 3600, 5.0, 15, (), (), (WARNING, OWN, PAGE), PENDING, QUIET)
    return found._replace(**changes)


def shown(results, width=80, **how):
    """Return results as they are on a terminal in Berlin."""
    return render_text(backtest_document(results, **how), width)


def test_what_fired_is_listed_by_severity():
    """The worst come first, with times in this machine's zone, how long they lasted, and of which engine."""
    text = shown([result()])

    assert "2026-11-20 15:00:00 to 2026-11-20 16:00:00 UTC+01:00 (1 h), a value every 5 s\n" in text
    heads = ("critical: qwen, engine 0", "warning: qwen, engine 0", "no severity: a:1")
    assert sorted(heads, key=text.index) == list(heads)
    assert "  VllmEngineStalled         15:10:00  15:11:30  1 min 30 s\n" in text
    assert "  VllmQueueStanding  before 15:00:00   the end           –\n" in text  # noqa: RUF001
    assert "  Mine                      15:01:00  15:02:00       1 min\n" in text
    assert "note     Pending, but did not fire: A (2 times, up to 30 s).\n" in text
    lasting = (alert("A", "", 0, None), alert("A", "", 30, None))
    assert "fire: A (2 times).\n" in shown([result(pending=lasting)])
    assert words(text).endswith("unknown Not judged: 2 alerts, for other reasons. With --verbose each is named.")


def test_what_was_not_judged_is_counted():
    """One line has the numbers by reason; with --verbose, and where a flag alone is missing, alerts are named."""
    gpus = tuple(NotJudged(f"Gpu{number}", "info", "no GPUs were read") for number in range(16))
    flag = NotJudged("Full", "critical", "max-num-seqs is not known", unknown=("max-num-seqs",))
    found = [result(not_judged=(*QUIET, *gpus, flag))]
    text, verbose = (
        shown(found),
        shown(found, is_verbose=True),
    )

    assert "unknown  Not judged, because max-num-seqs is not known: Full.\n" in text
    assert "unknown  Not judged: 16 alerts, because no GPUs were read; 2 more, for" in text
    assert "Gpu7" not in text
    assert "Not judged, because no GPUs were read: Gpu0, Gpu1, " in verbose
    assert "unknown  Not judged, because it waits 1h: Slow.\n" in verbose
    rows = json.loads(backtest_json(found))["not_judged"]
    assert [each["alertname"] for each in rows if each.get("unknown") == ["max-num-seqs"]] == ["Full"]
    assert len(rows) == 19


def test_what_makes_it_unsure_is_said():
    """Gaps and warnings are said; times of several days have their date."""
    later = START + 90_000
    found = result(
        alerts=(),
        end=later,
        gaps=(TimeRange(START + 60, START + 600),),
        warnings=("the recording breaks off",),
    )
    text = " ".join(shown([found]).split())

    assert "ok No alert fired." in text
    assert "warning Nothing was scraped from 11-20 15:01:00 to 11-20 15:10:00." in text
    assert "warning the recording breaks off." in text


def test_json():
    """Each alert has what the design says, what is not known is absent, and each says of which source."""
    found = json.loads(backtest_json([result()]))

    assert [each["alertname"] for each in found["alerts"]] == ["VllmQueueStanding", "Mine", "VllmEngineStalled"]
    assert found["alerts"][2] == {
        "alertname": "VllmEngineStalled",
        "severity": "critical",
        "labels": SERVER,
        "start": START + 600,
        "end": START + 690,
        "pending_since": START + 570,
        "began_before": False,
        "source": "a|b.log",
    }
    assert "end" not in found["alerts"][0]
    assert found["not_judged"][0]["reason"] == "no probe was made"
    assert found["sources"] == [
        {
            "source": "a|b.log",
            "start": START,
            "end": START + 3600,
            "step": 5.0,
            "evaluation_interval": 15,
            "warnings": [],
            "gaps": [],
        }
    ]
