# SPDX-License-Identifier: Apache-2.0
"""Whatever is known and unknown of two sides, they are compared without an error, and their rows are sound."""

from __future__ import annotations

import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Step
from hypothesis import strategies as st
from tests.rendering.pages import comparisons_markdown, comparisons_table
from tests.support.samples import sample

from vllm_watch.analysis.comparison.compare_sides import compare_sides
from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.load_test import (
    Bounds,
    Goodput,
    Latency,
    Load,
    Objective,
    Phase,
    Result,
    Run,
    ServerUse,
    Steady,
)
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.json_output import comparisons_json
from vllm_watch.daemon.catalog.metric_titles import LATENCIES


def maybe(values):
    """Return values that may be unknown."""
    return st.none() | values


NUMBERS = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 7.0, 99.9, 1e8]) | st.floats(1e-6, 1e9)
COUNTS = st.sampled_from([0, 1, 28, 300, 10**9])
BOUNDS = st.builds(
    lambda low, width: Bounds(low=low, high=None if width is None else (low or 0.0) + width),
    maybe(NUMBERS),
    maybe(NUMBERS),
)
LATENCY = st.builds(
    Latency,
    **dict.fromkeys(("mean", "median", "p50", "p90", "p95", "p99"), maybe(NUMBERS)),
    count=maybe(COUNTS),
    bounds=st.dictionaries(st.sampled_from(["p50", "p99"]), BOUNDS),
    too_few=st.sampled_from([(), ("p99",)]),
)
GOODPUT = st.builds(
    Goodput,
    objective=st.sampled_from(
        [Objective(name=name, limits={"ttft_ms": limit}) for name, limit in (("x", 1.0), ("y", 2.0))]
    ),
    request_goodput=maybe(NUMBERS),
)
RESULT = st.builds(
    Result,
    view=st.sampled_from(["client", "server"]),
    **dict.fromkeys(("successful", "failed", "total_input_tokens", "total_output_tokens"), maybe(COUNTS)),
    **dict.fromkeys(
        ("duration_s", "request_throughput", "output_throughput", "total_token_throughput"), maybe(NUMBERS)
    ),
    **dict.fromkeys(LATENCIES, maybe(LATENCY)),
    goodput=maybe(GOODPUT),
)
LOAD = st.builds(
    Load,
    endpoint=maybe(st.sampled_from(["online", "pooling"])),
    request_rate=maybe(st.just("inf") | NUMBERS),
    max_concurrency=maybe(st.integers(1, 64)),
    num_prompts=maybe(COUNTS),
    mean_input_tokens=maybe(NUMBERS),
    temperature=maybe(st.sampled_from([0.0, 1.0])),
)
USE = st.builds(
    ServerUse,
    **dict.fromkeys(
        ("running", "waiting", "prefix_cache_hit_ratio", "max_kv_cache_usage_ratio"), maybe(st.floats(0, 1))
    ),
    drafted_tokens=maybe(COUNTS),
    wasted_draft_tokens=maybe(COUNTS),
)
STEADY = st.builds(
    Steady,
    start=st.just(0.0),
    end=NUMBERS,
    method=st.just("any"),
    problem=maybe(st.just("no steady state: any")),
    use=USE,
)
RUN = st.builds(
    Run,
    source=st.just(("any",)),
    name=st.sampled_from(["one", "other"]),
    start=maybe(NUMBERS),
    model=maybe(st.sampled_from(["m", "/path/to/m"])),
    config=st.dictionaries(
        st.sampled_from(["x", "speculative-config", "enable-prefix-caching"]), st.sampled_from("12")
    ),
    hardware=st.dictionaries(st.sampled_from(["model_memory_gib", "kv_cache_memory_gib"]), st.sampled_from(["1", "?"])),
    load=LOAD,
    result=maybe(RESULT),
    views=st.lists(RESULT, max_size=2).map(tuple),
    phases=st.just(()) | st.builds(lambda end: (Phase(phase="saturated", start=0.0, end=end),), NUMBERS),
    steady=maybe(STEADY),
    use=USE,
)
SIDES = st.lists(st.lists(RUN, min_size=1, max_size=6).map(tuple), min_size=2, max_size=3)


@pytest.mark.slow
@given(SIDES)
# A failing example is of hundreds of values, and to make it smaller takes minutes.
@settings(max_examples=sample(40, 150), phases=[Step.explicit, Step.generate], suppress_health_check=list(HealthCheck))
def test_rows_agree_with_themselves(sides):
    """A grade has its interval, the estimate is inside, and every format shows the comparison."""
    found = compare_sides([Side(name=name, runs=runs) for name, runs in zip("abc", sides, strict=False)])

    for pair in found.pairs:
        assert pair.comparable == (not pair.reasons)
        assert pair.sentence.endswith(".")
        assert len([row for row in pair.metrics if row.is_headline]) <= 1
        for row in pair.metrics:
            assert_sound(row)
    for render in (comparisons_table, comparisons_markdown, comparisons_json, comparisons_html):
        assert "Traceback" not in render(found)


def assert_sound(row):
    """Check one row: its difference is there if its values are, and its grade is that of its interval."""
    low = float("-inf") if row.low is None else row.low
    high = float("inf") if row.high is None else row.high
    leaves_out_zero = low > 0 or high < 0
    assert (row.difference is None) == (row.a is None or row.b is None)
    if row.percent is not None and row.confidence is not None:
        rounding = 1e-9 * max(abs(row.percent), 1.0)
        assert low <= row.percent + rounding
        assert row.percent - rounding <= high
    assert row.grade != "shown" or leaves_out_zero or row.a == 0
    assert row.grade != "not_decided" or not leaves_out_zero
    assert row.grade == "shown" or row.reason
