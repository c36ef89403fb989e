# SPDX-License-Identifier: Apache-2.0
"""``report --mark`` and ``compare --mark`` show the runs on all dashboards, and only warn if that fails."""

from __future__ import annotations

import json
import sys

from unittest.mock import ANY

import msgspec
import pytest

from tests.loadtest.load_tests import FOLDER
from tests.support.needs import without
from tests.support.ports import free_port

from vllm_watch.analysis.loadtest.load_test import Latency, Result, Run
from vllm_watch.analysis.loadtest.region import MAX_RUN, annotation, region_of, run_id
from vllm_watch.cli import command_line as cli


pytest.importorskip("grafana_client", reason=without("grafana_client"))
pytestmark = pytest.mark.slow

RUNS = [FOLDER / f"draft{drafts}-run2.jsonl.xz" for drafts in (2, 4)]


@pytest.fixture
def ended(tmp_path, capsys):
    """Run the command line to its end: its status, and what it wrote to both streams."""
    token = tmp_path / "token"
    token.write_text("glsa_editor\n")

    def run(*arguments, url="http://127.0.0.1:9", token=token):
        where = ["--mark", "--grafana-url", url, *(["--grafana-token-file", str(token)] if token else [])]
        with pytest.raises(SystemExit) as left:
            cli.main([*map(str, arguments), *where])
        return (left.value.code or 0, *capsys.readouterr())

    return run


def regions(grafana):
    """Return each region's length in seconds, its text without the link, and the tags that are its own."""
    return [
        ((each["timeEnd"] - each["time"]) / 1000, each["text"].partition("<br>")[0], set(each["tags"]))
        for each in grafana.annotations.values()
    ]


def test_a_report_marks_its_run(ended, grafana, tmp_path):
    """The run is one region of its own time, whose text is the result and the report's file."""
    status, out, err = ended("report", RUNS[0], "-o", tmp_path / "r.html", url=grafana.url)

    ((seconds, text, tags),) = regions(grafana)
    assert (status, out) == (0, "")
    assert 20 < seconds < 60
    assert text.startswith("draft2-run2: 600 requests ok, 0 failed, ")
    assert text.endswith(" ms · r.html")
    assert tags >= {"vllm-watch", "loadtest"}
    assert err.startswith("vllm-watch: marked: run draft2-run2-2026")


def test_the_json_has_what_marks_its_runs(ended, grafana):
    """What a report's JSON says of a run's region is what --mark writes of it: Grafana's API takes it as it is."""
    _, out, _ = ended("report", RUNS[0], "--format", "json", url=grafana.url)
    (run,) = json.loads(out)["runs"]
    ((number, kept),) = grafana.annotations.items()

    assert run["annotation"] == {**{key: kept[key] for key in ("time", "timeEnd", "text")}, "tags": ANY}
    assert set(run["annotation"]["tags"]) == set(kept["tags"])
    assert (run["annotation"]["time"], run["annotation"]["timeEnd"]) == (
        round(run["start"] * 1000),
        round(run["end"] * 1000),
    )
    assert run["observed"]["start"] < run["start"] < run["end"] < run["observed"]["end"]
    assert number


def test_the_same_report_again_marks_nothing_twice(ended, grafana):
    """A run has one region, however often its report is made."""
    for _ in range(2):
        _, _, err = ended("report", RUNS[0], url=grafana.url)

    assert len(grafana.annotations) == 1
    assert err.startswith("vllm-watch: unchanged: run draft2-run2-2026")


def test_a_comparison_marks_all_its_runs(ended, grafana):
    """Each run of each side is a region."""
    status, _, _ = ended("compare", *RUNS, url=grafana.url)

    assert status == 0
    assert [text.partition(":")[0] for _, text, _ in regions(grafana)] == ["draft2-run2", "draft4-run2"]


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_failure_is_a_warning(ended, command):
    """Without a Grafana the report is written as ever, the status is 0, and standard error says what failed."""
    url = f"http://127.0.0.1:{free_port()}"
    status, out, err = ended(command, *(RUNS if command == "compare" else RUNS[:1]), url=url)

    assert status == 0
    assert "draft2-run2" in out
    said = f"warning: not marked in Grafana: {url}: nothing listens at this address: is Grafana running"
    assert err == f"vllm-watch: {said}, and is this its port?\n"


def test_a_token_that_may_not_is_a_warning(ended, grafana, tmp_path):
    """What the token lacks is said, and the report is fine."""
    (tmp_path / "viewer").write_text("glsa_viewer")
    status, _, err = ended("report", RUNS[0], url=grafana.url, token=tmp_path / "viewer")

    assert status == 0
    assert "warning: not marked in Grafana: the token may not create an annotation (403)" in err


def test_a_token_that_cannot_be_read_is_a_warning(ended, tmp_path):
    """A file that is not there is named with its option."""
    status, _, err = ended("report", RUNS[0], token=tmp_path / "none")

    assert status == 0
    assert f"not marked in Grafana: --grafana-token-file: {tmp_path / 'none'}: cannot be read" in err


def test_without_the_extra_it_is_a_warning(ended, monkeypatch):
    """Without grafana-client the report is made, and the warning says what to install."""
    monkeypatch.setitem(sys.modules, "vllm_watch.cli.grafana.client", None)
    status, _, err = ended("report", RUNS[0])

    assert status == 0
    assert "pip install '.[grafana]'" in err


@pytest.mark.parametrize("command", ["report", "compare"])
def test_no_token_is_wrong_usage(ended, monkeypatch, command):
    """Without a token nothing is read: the command line is wrong."""
    monkeypatch.delenv("GRAFANA_TOKEN_FILE", raising=False)
    status, out, err = ended(command, *RUNS, token=None)

    assert (status, out, err) == (2, "", "vllm-watch: --mark requires --grafana-token-file FILE\n")


def test_what_is_not_known_is_left_out_of_the_line():
    """A region's text has only what was measured; without a time there is no region."""
    result = Result(view="client", successful=5, ttft_ms=Latency(mean=12.345))
    run = Run(source=("a.json",), name="a", start=1_795_183_200.0, end=1_795_183_260.0, result=result)

    assert region_of(run).text == "a: 5 requests ok, TTFT mean 12.35 ms"
    assert "server:qwen" in annotation(region_of(msgspec.structs.replace(run, server="qwen"))).tags
    assert region_of(run, "a.md").text.endswith(" · a.md")
    assert region_of(run).run == "a-20261120T140000Z"
    assert region_of(Run(source=("a.json",), name="a", start=1.0, result=result)) is None
    assert region_of(Run(source=("a.json",), name="a", start=1.0, end=2.0)).text == "a: no result"
    empty = Run(source=("a.log",), name="a", start=1.0, end=2.0, result=Result(view="server"))
    assert region_of(empty).text == "a: no result"


def test_names_beyond_ascii_have_ids_of_their_own():
    """Two names that differ only in what an id may not have are two runs, and each has the same id every time."""
    names = ("基线", "改动", "基线 2", "long " * 40, "long " * 40 + "!")
    ids = [run_id(1_795_183_200.0, name) for name in names]

    assert len(set(ids)) == len(ids)
    assert ids == [run_id(1_795_183_200.0, name) for name in names]
    assert ids[1] == "vllm-582a8e42-20261120T140000Z"
    assert ids[2].startswith("2-")
    assert all(each.isascii() and len(each) <= MAX_RUN and each.endswith("-20261120T140000Z") for each in ids)
