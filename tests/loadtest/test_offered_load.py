# SPDX-License-Identifier: Apache-2.0
"""Whether a server kept up with its load, by one rule for `report` and `compare`."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.load_tests import LOAD, OPEN, run

from vllm_watch.analysis.loadtest.load_test import Phase, Report
from vllm_watch.analysis.loadtest.offered_load import is_saturated, served_share
from vllm_watch.analysis.rendering.report_document import report_text


PHASES = (Phase(phase="saturated", start=0, end=30), Phase(phase="steady", start=30, end=90))


@pytest.mark.parametrize(
    ("load", "phases", "changes", "expected", "said"),
    [
        (replace(OPEN, request_rate=20.0), (), {}, False, "The server kept up with the rate: it served 100 % of it."),
        (replace(OPEN, request_rate=25.0), (), {}, True, "The server was saturated: it served 80.6 % of the rate."),
        (replace(OPEN, request_rate=21.0), (), {}, None, "Whether the server was saturated is not known."),
        (LOAD, (), {}, None, "Whether the server was saturated is not known."),
        (replace(LOAD, max_concurrency=None), (), {}, None, "Whether the server was saturated is not known."),
        (LOAD, PHASES, {}, False, "The server was saturated for 30 s"),
        (LOAD, PHASES[:1], {}, True, "The server was saturated for 30 s"),
        (replace(OPEN, request_rate=25.0), (), {"failed": 500}, False, "The server kept up with the rate"),
    ],
)
def test_one_rule_for_both_commands(load, phases, changes, expected, said):
    """By the phases if they are known, else by how much of a rate was served, failed requests with it."""
    found = replace(run(load=load, **changes), phases=phases, start=0.0, end=90.0)

    assert is_saturated(found, found.result) is expected
    assert said in " ".join(report_text(Report(runs=(found,))).split())


def test_the_last_answer_is_no_slowness():
    """A hundred requests at 10/s whose answers take 5 s last 15 s, and all of the rate was served."""
    load = replace(OPEN, request_rate=10.0)
    tokens = {"successful": 100, "total_output_tokens": 50_100, "duration_s": 15.0, "request_throughput": 100 / 15}
    found = run(load=load, **tokens, tpot_ms=replace(run().result.tpot_ms, mean=10.0))

    assert served_share(found, found.result) == pytest.approx(1.0)
