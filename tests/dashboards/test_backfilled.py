# SPDX-License-Identifier: Apache-2.0
"""A load test of last week that was recorded then shows on the dashboards, as its benchmark saw it."""

from __future__ import annotations

import json
import lzma
import math
import sys
import time

from datetime import datetime, timezone
from typing import NamedTuple

import pytest

from tests.dashboards import panels
from tests.dashboards.api import Api
from tests.dashboards.loaded import Span
from tests.dashboards.panels import opened, panels_of, sent_by
from tests.dashboards.shipped import UIDS, dashboard
from tests.support.monitoring import running_prometheus
from tests.support.processes import run_command
from tests.support.recordings import ROOT

from vllm_watch.analysis.replay.recording import Recording


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("prometheus", "promtool")]

UID = "vllm-watch-load-test"
RUN = ROOT / "loadtest" / "recordings" / "draft4-run1.jsonl.xz"
WEEK = 7 * 86400
STEP = 2
"""Seconds between two scrapes of the recording, and of the backfill."""


SHOWN = {
    UID: 27,
    "vllm-watch-server": 33,
    "vllm-watch-spec-decode": 12,
    "vllm-watch-capacity": 9,
    "vllm-watch-fleet": 10,
    "vllm-watch-sources": 16,
    "vllm-watch-kv-transfer": 0,  # It has no KV connector: that no query fails is all.
}
"""How many panels of each dashboard have data at least; others are of rules, objectives, faults, and the daemon."""


class Backfilled(NamedTuple):
    """A Prometheus with last week's test: its address, the test's time with some seconds around it, and its result."""

    url: str
    span: Span
    result: dict


def moved(path, seconds):
    """Write the recording as if it had been made so many seconds later, and return when it started."""
    with lzma.open(RUN) as file:
        first, *lines = file.read().splitlines(keepends=True)
    header = json.loads(first)
    header["started_unix"] += seconds
    path.write_bytes(lzma.compress(json.dumps(header).encode() + b"\n" + b"".join(lines)))
    return header["started_unix"]


def backfilled_into(data, recording):
    """Do what COMMANDS.md says: OpenMetrics of the recording, and blocks of that in the Prometheus' data."""
    text = recording.with_suffix(".om")
    command = [sys.executable, "-m", "vllm_watch", "backfill", recording, "-o", text]
    command += ["--step", f"{STEP}s"]
    run_command(*command, text=False, check=True)
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", text, data]
    run_command(*blocks, text=False, check=True)


@pytest.fixture(scope="module")
def last_week(tmp_path_factory):
    """Give a Prometheus with its usual settings and a test of last week, whose blocks were made twice."""
    folder = tmp_path_factory.mktemp("last-week")
    original = Recording(RUN)
    (benchmark,) = original.benchmarks
    result = json.loads(benchmark.content)
    ended = datetime.strptime(result["date"], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc).timestamp()
    # In whole minutes: the steps that a range is divided into lie the same whenever this is run.
    ago = (time.time() - WEEK - original.started) // 60 * 60
    started = moved(folder / "run.jsonl.xz", ago)
    end = started + ended - original.started
    for _ in range(2):  # Blocks that overlap are one.
        backfilled_into(folder / "data", folder / "run.jsonl.xz")
    with running_prometheus(folder, "{}") as url:
        yield Backfilled(url, Span(end - result["duration"] - 5, end + 5), result)


@pytest.fixture(autouse=True)
def scrape_interval(monkeypatch):
    """The data source's interval is that of the scrapes."""
    monkeypatch.setattr(panels, "SCRAPE_INTERVAL", float(STEP))


def shown(last_week, uid):
    """Return what the panels of a dashboard show of the test, by their titles: every series' values."""
    board, api = dashboard(uid), Api(last_week.url)
    view = opened(board, api, last_week.span, {"server": "qwen"})
    return {panel["title"]: list(values(panel, view, api)) for panel in panels_of(board)}


def values(panel, view, api):
    """Yield all numbers that a panel gets."""
    for sent in sent_by(panel, view):
        if sent.step is None:
            answer = api.instant(sent.expr, sent.end)
        else:
            answer = api.range(sent.expr, sent.start, sent.end, sent.step)
        yield from (value for series in answer for value in series.values.values() if math.isfinite(value))


def test_the_result_block_is_that_of_the_benchmark(last_week):
    """Requests and tokens are the benchmark's, to the last one, and the duration is, to a scrape."""
    figures, result = shown(last_week, UID), last_week.result
    first = {title: values[0] for title, values in figures.items() if values}

    assert first["Requests ok"] == result["completed"] == 600
    assert first["Requests failed"] == result["failed"] == 0
    assert first["Input tokens"] == result["total_input_tokens"]
    assert first["Output tokens"] == result["total_output_tokens"]
    assert first["Total tokens"] == result["total_input_tokens"] + result["total_output_tokens"]
    assert first["Duration"] == pytest.approx(result["duration"], abs=STEP)
    assert first["Requests/s"] == pytest.approx(result["completed"] / first["Duration"])
    assert first["Output tokens/s"] == pytest.approx(result["total_output_tokens"] / first["Duration"])
    assert first["Tokens per draft"] == pytest.approx(result["spec_decode_acceptance_length"])


def test_latencies_are_those_of_the_benchmark(last_week):
    """Means of the server agree with the client's within 5 %, but for the TTFT, in which the client's own time is."""
    figures, result = shown(last_week, UID), last_week.result
    mean = {title: values[0] * 1000 for title, values in figures.items() if values}

    assert mean["Time per token (TPOT)"] == pytest.approx(result["mean_tpot_ms"], rel=0.05)
    assert mean["End-to-end latency (E2EL)"] == pytest.approx(result["mean_e2el_ms"], rel=0.05)
    assert mean["Inter-token latency (ITL)"] == pytest.approx(result["mean_itl_ms"], rel=0.1)
    assert mean["Time to first token (TTFT)"] <= result["mean_ttft_ms"]


@pytest.mark.parametrize("uid", UIDS)
def test_every_dashboard_shows_it(last_week, uid):
    """No query fails over it, and the panels of the server, its engine and its requests have data."""
    with_data = [title for title, values in shown(last_week, uid).items() if values]

    assert len(with_data) >= SHOWN[uid], sorted(with_data)
