# SPDX-License-Identifier: Apache-2.0
"""Advice on recordings of real servers: the line that each of them deserves, and no other."""

from __future__ import annotations

import functools

from pathlib import Path

import pytest

from tests.loadtest.histories import recorded
from tests.loadtest.load_tests import sources_of
from tests.support.recordings import NAMES

from vllm_watch.analysis.advice.advisor import advise
from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Report, parse_objective
from vllm_watch.analysis.loadtest.report_sources import read_sources


pytestmark = pytest.mark.slow

NOTHING = Report(runs=())
DRAFTS = "speculative-config.num_speculative_tokens"
OF_RULES = Path(__file__).parent / "recordings"
BATCH, BUDGET = "max-num-seqs", "max-num-batched-tokens"
RULES = {
    "seqs-down": (None, [(BATCH, "16", "13")]),
    "seqs-latency": ("ttft=600s,tpot=60ms", [(BATCH, "768", "381")]),
    "budget-up": ("ttft=50ms,tpot=500ms", [(BUDGET, "256", "512")]),
    "budget-down": ("ttft=1s,tpot=40ms", [(BUDGET, "2048", "1024")]),
}
"""The recordings that were made for one rule each: the objective, and what is advised."""

EXPECTED = {
    "acceptance": [(DRAFTS, "4", "off")],
    "busy": [(DRAFTS, "4", "off")],
    "day": [("num-gpu-blocks-override", "96", "off")],
    "fullstall": [("num-gpu-blocks-override", "96", "off")],
    "queue": [(DRAFTS, "4", "off")],
    "sustained": [(DRAFTS, "4", "off")],
    "throttled": [(DRAFTS, "2", "off")],
}
"""What is advised of a recording; nothing of the others."""


def of_one(path):
    """Return the history of the server in a recording."""
    (history,) = read_sources([str(path)]).histories
    return history


@functools.lru_cache
def of_load_tests(*names):
    """Return what is advised of five runs of each of some load tests."""
    found = [sources_of(f"{name}-run{number}") for name in names for number in range(1, 6)]
    clients = [run for each in found for run in each.clients]
    histories = [history for each in found for history in each.histories]
    return advise(histories, join(clients, histories))


def changes(advised):
    """Return the changes that are advised."""
    return [(each.flag, each.now, each.proposed) for each in advised.advice]


@pytest.mark.parametrize("name", ["day", *NAMES])
def test_recordings(name):
    """A full KV cache and rejected drafts have their line; healthy and broken servers have none."""
    history = recorded(name)

    assert changes(advise([history], join((), [history]))) == EXPECTED.get(name, [])


@pytest.mark.parametrize("name", sorted(RULES))
def test_recordings_of_a_rule(name):
    """A server that shows what a rule is about has its line and no other; with an objective that is met it has none."""
    objective, expected = RULES[name]
    history = of_one(OF_RULES / f"{name}.jsonl.xz")
    met = parse_objective("ttft=600s,tpot=60s")

    assert changes(advise([history], NOTHING, objective and parse_objective(objective))) == expected
    assert objective is None or changes(advise([history], NOTHING, met)) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gpu-memory-utilization": "0.9"}, [("gpu-memory-utilization", "0.9", "0.92")]),
        ({"gpu-memory-utilization": "0.95"}, [("kv-cache-dtype", "auto", "fp8")]),
        ({"gpu-memory-utilization": "0.95", "kv-cache-dtype": "fp8"}, [(DRAFTS, "4", "off")]),
    ],
)
def test_a_full_cache_on_a_gpu(flags, expected):
    """The day with its full KV cache, as if on a GPU whose memory sets its size: first that, then drafts."""
    history = recorded("day")
    known = {flag: value for flag, value in history.config.items() if flag != "num-gpu-blocks-override"}
    history = history._replace(config={**known, **flags}, hardware={"device": "cuda"})

    assert changes(advise([history], join((), [history]))) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("draft2",), [(DRAFTS, "2", "4")]),
        (("draft4",), []),
        (("draft2", "draft4"), [(DRAFTS, "2", "4")]),
        (("quiet-draft2", "quiet-draft4"), [(DRAFTS, "2", "4")]),
    ],
)
def test_load_tests(names, expected):
    """Two draft tokens that are always accepted may be four; else nothing."""
    assert changes(of_load_tests(*names)) == expected


def test_a_start_with_other_flags_counts_alone():
    """The throttled server was started again with 2 draft tokens instead of 4: only its time since then counts."""
    history = recorded("throttled")
    (server,) = advise([history], join((), [history])).servers

    assert history.points[0].at < history.config_since < server.start
    assert server.seconds < 0.25 * (history.points[-1].at - history.points[0].at)


def test_what_was_measured_is_told():
    """Where load tests show it, four draft tokens are advised as measured, with the command that shows it."""
    (advice,) = of_load_tests("quiet-draft2", "quiet-draft4").advice
    first = advice.evidence[0]

    assert advice.rule == "measured"
    assert (first.series, first.statistic) == ("output_throughput", "difference")
    assert 10 < first.value < 40
    assert "better, +22.9 [4.04, 45.1] %, 5 runs against 5" in first.text
    assert len(advice.evidence) == 4
    assert advice.check[0].startswith("vllm-watch compare now=")
    assert all(f"quiet-draft{tokens}-run5.jsonl.xz" in advice.check[0] for tokens in (2, 4))


def test_a_short_time_is_told():
    """The two draft tokens were observed for less than ten minutes, and the advice says so."""
    (advice,) = of_load_tests("draft2", "draft4").advice

    assert advice.rule == "draft-tokens-up"
    assert advice.caveats[0].endswith("10 min or more say more.")


def test_load_tests_that_decide_nothing_are_told():
    """Who has tried four draft tokens without a clear result reads that, and the command that shows it."""
    (advice,) = of_load_tests("draft2", "draft4").advice

    assert "not decided, +31.8 [-9.89, 92.8] %, 5 runs against 5" in advice.caveats[-1]
    assert all(f"draft{tokens}-run5.jsonl.xz" in advice.check[-1] for tokens in (2, 4))


def test_one_run_is_too_short():
    """Fifty seconds of a load test are no reason to change a flag, and that is said."""
    found = sources_of("draft2-run1")
    advised = advise(found.histories, join(found.clients, found.histories))
    (silent,) = (each for each in advised.silent if each.rule == "draft-tokens-up")

    assert advised.advice == ()
    assert silent.reason.startswith("drafts are made for ")
    assert silent.reason.endswith(" in all, and 2 min are needed")
