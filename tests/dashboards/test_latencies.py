# SPDX-License-Identifier: Apache-2.0
"""Latencies on the dashboards: the mean beside the quantiles, nothing made up within a bucket, nothing that is over."""

from __future__ import annotations

import functools

import pytest

from tests.alerts.replay import STEP
from tests.dashboards.replayed import Query, given, given_together


pytestmark = pytest.mark.needs_tool("promtool")

MINUTE = 60 // STEP
STEPS = 10 * MINUTE
ENDS = 5 * MINUTE
"""When the server stops to answer."""
FLEET, SERVER = "vllm-watch-fleet", "vllm-watch-server"
TABLE = "Servers, the worst first"
TARGET = 'instance="a:1",job="vllm-watch",server="s"'
ENGINE = f'{TARGET},model_name="m",engine="0"'


def counted(per_step, until=STEPS):
    """Return a counter that grows until it does not any more."""
    return [f"{per_step * min(step, until):g}" for step in range(STEPS)]


def histogram(name, buckets, seconds, until=STEPS):
    """Return a histogram of ten observations a step, by bound as many of them as are not above it; `seconds` in sum."""
    series = {f'vllm_watch_{name}_bucket{{{ENGINE},le="{le}"}}': counted(count, until) for le, count in buckets.items()}
    series[f"vllm_watch_{name}_count{{{ENGINE}}}"] = counted(10, until)
    series[f"vllm_watch_{name}_sum{{{ENGINE}}}"] = counted(seconds, until)
    return series


def first_bound(stage, seconds):
    """Return what tells of a stage's first bucket."""
    return {f'vllm_watch_latency_first_bound_seconds{{{ENGINE},stage="{stage}"}}': [f"{seconds}"] * STEPS}


def state(after):
    """Return the state of a server that serves, and then is in another state."""
    return {
        f'vllm_watch_engine_state{{{ENGINE},state="{name}"}}': [
            str(int(name == ("serving" if step < ENDS else after))) for step in range(STEPS)
        ]
        for name in {"serving", "idle", after}
    }


def values(shown, second):
    """Return all that is shown at a moment."""
    return sorted(shown[second].values())


SHORT_WAITS = {
    **histogram("queue_time_seconds", {"0.3": 10, "0.5": 10, "+Inf": 10}, 0.001),
    **first_bound("queue", 0.3),
    **state("serving"),
}
LONG_WAITS = {
    **histogram("queue_time_seconds", {"0.3": 2, "0.5": 4, "+Inf": 10, "1.0": 10}, 5),
    **first_bound("queue", 0.3),
    **state("serving"),
}


def test_a_quantile_within_the_first_bucket_is_below_its_bound():
    """Where all waits are short no quantile is drawn but what it is below, and the mean, which is exact."""
    end = (STEPS - MINUTE) * STEP
    queries = [Query(SERVER, "Time in the queue", name) for name in ("p95", "quantiles below", "mean")]
    shown = given_together(queries, SHORT_WAITS, STEPS)
    p95, bound, mean = (values(shown[query], end) for query in queries)

    assert (p95, bound) == ([], [0.3])
    assert mean == pytest.approx([0.0001])


def test_a_quantile_above_the_first_bucket_is_drawn():
    """Where waits are long the quantile is there, as fine as the buckets are, and nothing is below anything."""
    end = (STEPS - MINUTE) * STEP
    queries = [Query(SERVER, "Time in the queue", name) for name in ("p95", "quantiles below", "mean")]
    shown = given_together(queries, LONG_WAITS, STEPS)
    p95, bound, mean = (values(shown[query], end) for query in queries)

    assert 0.5 < p95[0] < 1
    assert bound == []
    assert mean == pytest.approx([0.5])


def test_a_figure_says_what_a_quantile_is_below():
    """One figure is either the quantile or the bound, with a sign that says which."""
    short, long = (
        {
            **histogram("time_per_output_token_seconds", {"0.01": count, "0.1": 10, "+Inf": 10}, 0.015),
            **first_bound("time_per_output_token", 0.01),
            **state("serving"),
        }
        for count in (10, 1)
    )
    end = (STEPS - MINUTE) * STEP
    of_short, of_long = (given(SERVER, "TPOT", "p95 {{_is}}", series, STEPS)[end] for series in (short, long))
    mean = given(SERVER, "TPOT", "mean", short, STEPS)[end]

    assert of_short == {(("_is", "<"),): 0.01}
    assert [dict(labels).get("_is") for labels in of_long] == [None]
    assert list(mean.values()) == pytest.approx([0.0015])


FAST_ANSWERS = {
    **histogram("time_to_first_token_seconds", {"0.001": 0, "0.25": 9, "0.5": 10, "+Inf": 10}, 1, ENDS),
    **first_bound("time_to_first_token", 0.001),
    f"vllm_watch_slo_time_to_first_token_seconds{{{TARGET}}}": ["0.5"] * STEPS,
    f'vllm_watch_slo_requests_total{{{ENGINE},objective="time_to_first_token"}}': counted(10, ENDS),
    f'vllm_watch_slo_good_requests_total{{{ENGINE},objective="time_to_first_token"}}': counted(9, ENDS),
}


OF_THE_PAST = [
    Query(FLEET, TABLE, "TTFT p95"),
    Query(FLEET, TABLE, "TTFT mean"),
    Query(FLEET, TABLE, "of SLO"),
    Query(FLEET, TABLE, "Burn"),
    Query(SERVER, "TTFT", "p95 {{_is}}"),
    Query(SERVER, "Within SLO", "good, too few"),
    Query(SERVER, "Burn 1 h", "burn"),
]


@functools.cache
def of_one_that_is_then(after):
    """Return what the queries give of a server that serves, and then is in another state."""
    return given_together(OF_THE_PAST, {**FAST_ANSWERS, **state(after)}, STEPS)


@pytest.mark.parametrize("query", OF_THE_PAST, ids=lambda query: f"{query.title}-{query.name}")
@pytest.mark.parametrize("after", ["stalled", "down", "unknown", "starting"])
def test_what_a_server_was_is_not_shown_of_one_that_does_not_answer(query, after):
    """A server that stalled or went down keeps no latency, no objective and no burn, in whatever colour."""
    shown = of_one_that_is_then(after)[query]

    assert all(values(shown, moment) for moment in range(2 * 60, ENDS * STEP, 15))
    assert not any(values(shown, moment) for moment in range(ENDS * STEP + 15, STEPS * STEP, 15))


def test_a_server_that_is_idle_keeps_its_objective():
    """Nothing was asked for some minutes: what was kept in the time range is as true as before."""
    shown = given(SERVER, "Within SLO", "good, too few", {**FAST_ANSWERS, **state("idle")}, STEPS)

    assert values(shown, (STEPS - MINUTE) * STEP) == pytest.approx([0.9])
