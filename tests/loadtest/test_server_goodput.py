# SPDX-License-Identifier: Apache-2.0
"""Goodput as the server saw it: the share of all requests that were sent, also of those that failed."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import recorded

from vllm_watch.analysis.loadtest.load_test import parse_objective
from vllm_watch.analysis.loadtest.runs import server_runs


def test_failed_requests_are_not_within_the_objective():
    """Of 271 requests 6 were rejected: with limits that every answer meets, 265 of 271 are within them."""
    (run,) = server_runs(recorded("rejections"), (), parse_objective("ttft=10s,tpot=5s"))
    goodput = run.result.goodput

    assert (run.result.successful, run.result.failed) == (265, 6)
    assert goodput.ratio == pytest.approx(265 / 271)
    assert goodput.request_goodput == pytest.approx(run.result.request_throughput)


def test_without_failures_the_bounds_are_those_of_the_buckets():
    """A limit inside a bucket leaves open which of its requests are within it."""
    (run,) = server_runs(recorded("busy"), (), parse_objective("ttft=15ms"))
    goodput = run.result.goodput

    assert goodput.ratio is None
    assert 0 <= goodput.bounds.low < goodput.bounds.high <= 1


def test_of_aborted_requests_answers_do_not_count():
    """Three requests were aborted after their first token: half of the six is the most that can be within limits."""
    run = server_runs(recorded("pause"), (), parse_objective("ttft=1h"))[1]

    assert (run.result.successful, run.result.failed) == (3, 3)
    assert run.result.goodput.bounds.high == 0.5
