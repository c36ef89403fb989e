# SPDX-License-Identifier: Apache-2.0
"""What a server did over some points of its history."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.server_history import Point
from vllm_watch.analysis.loadtest.server_result import server_use


def _points(counters, gauges):
    return [Point(at, "serving", gauges, counters, {}) for at in (0.0, 2.0)]


def test_a_rate_of_zero_is_known():
    """Where tokens are counted and none came, the rate is 0: a rate of the time before is not used."""
    counters = {"prompt_tokens_computed": 500.0, "generation_tokens_total": 70.0}
    gauges = {"prompt_tokens_per_second": 5000.0, "generation_tokens_per_second": 900.0}
    use = server_use(_points(counters, gauges))

    assert (use.prompt_tokens_per_second, use.generation_tokens_per_second) == (0.0, 0.0)


def test_rates_that_nobody_counts_are_those_of_the_log():
    """Without counters the rates are means of what the log's lines say."""
    gauges = {"prompt_tokens_per_second": 5000.0, "generation_tokens_per_second": 900.0}
    use = server_use(_points({}, gauges))

    assert (use.prompt_tokens_per_second, use.generation_tokens_per_second) == (5000.0, 900.0)
