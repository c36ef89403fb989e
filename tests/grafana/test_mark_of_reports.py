# SPDX-License-Identifier: Apache-2.0
"""``grafana mark SOURCE`` shows the runs of load tests on all dashboards."""

from __future__ import annotations

import msgspec
import pytest

from tests.loadtest.load_tests import FOLDER
from tests.support.needs import without

from vllm_watch.analysis.loadtest.load_test import Latency, Result, Run
from vllm_watch.analysis.loadtest.region import MAX_RUN, annotation, region_of, run_id


pytest.importorskip("grafana_client", reason=without("grafana_client"))
pytestmark = pytest.mark.slow

RUNS = [FOLDER / f"draft{drafts}-run2.jsonl.xz" for drafts in (2, 4)]


def regions(grafana):
    """Return each region's length in seconds, its text without the link, and the tags that are its own."""
    return [
        ((each["timeEnd"] - each["time"]) / 1000, each["text"].partition("<br>")[0], set(each["tags"]))
        for each in grafana.annotations.values()
    ]


def test_each_run_of_the_sources_is_marked(command, grafana):
    """A run is one region of its own time, whose text is its result; a second mark of it changes nothing."""
    ended = command("mark", grafana.url, *RUNS, "--tag", "tuning")
    (seconds, text, tags), (_, other, _) = sorted(regions(grafana), key=lambda region: region[1])
    again = command("mark", grafana.url, RUNS[0])

    assert (ended.status, ended.err) == (0, "")
    assert 20 < seconds < 60
    assert text.startswith("draft2-run2: 600 requests ok, 0 failed, ")
    assert other.startswith("draft4-run2: ")
    assert tags >= {"vllm-watch", "loadtest", "tuning"}
    assert len(again.lines("replaced")) == 1  # The tag is gone.
    assert len(grafana.annotations) == 2


def test_a_tag_is_a_line(command, grafana):
    """What Grafana cannot keep as a tag is wrong usage, and nothing is sent."""
    for tag in (" ", "a\nb"):
        ended = command("mark", grafana.url, RUNS[0], "--tag", tag)
        assert ended.status == 2
        assert ended.err.startswith("vllm-watch: --tag: expected 1 to 90 characters")
    assert not grafana.requests


def test_what_is_not_known_is_left_out_of_the_line():
    """A region's text has only what was measured; without a time there is no region."""
    result = Result(view="client", successful=5, ttft_ms=Latency(mean=12.345))
    run = Run(source=("a.json",), name="a", start=1_795_183_200.0, end=1_795_183_260.0, result=result)

    assert region_of(run).text == "a: 5 requests ok, TTFT mean 12.35 ms"
    assert "server:qwen" in annotation(region_of(msgspec.structs.replace(run, server="qwen"))).tags
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
