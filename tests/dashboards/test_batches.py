# SPDX-License-Identifier: Apache-2.0
"""What larger batches bring and cost, where prompt tokens come from, and how much of the context is used."""

from __future__ import annotations

import math

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.alerts.replay import STEP
from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, Span
from tests.dashboards.panels import legend_of, opened, panels_of, sent_by
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import shown

from vllm_watch.daemon.state.step_times import _class_of as step_class


UID = "vllm-watch-capacity"
BY_BATCH = "Throughput and latency by batch size"
LABELS = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
STEPS = 12 * 60 // STEP

LATER = 400
"""Seconds of the recording `day`: the middle of its overload."""

HISTOGRAMS = {"ITL mean": "inter_token_latency_seconds", "TTFT mean": "time_to_first_token_seconds"}

NEEDS_PROMTOOL = pytest.mark.needs_tool("promtool")
NEEDS_PROMETHEUS = pytest.mark.needs_tool("prometheus", "promtool")


def batch_class(running):
    """Return the class of a number of running requests, as `decode_step_seconds` has it."""
    return step_class(running, 0.5, None, 0.0).batch


def samples(prometheus, name, span):
    """Return the values of a series of the recording `day` by the second of the span, as far as tables look at it."""
    (found,) = Api(prometheus.url).range(f'sum(vllm_watch_{name}{{server="day"}})', span.start, span.end, STEP)
    # The steps of a subquery end before the range does.
    return {round(at - span.start): value for at, value in found.values.items() if at < span.end - 1}


def counted(per_step):
    """Return a counter that grows by so much at each step."""
    return [f"{per_step * step:g}" for step in range(STEPS)]


@pytest.fixture
def overload(prometheus):
    """Give the span of `day` as far as the middle of its overload."""
    start = prometheus.spans["day"].start
    return Span(start, start + LATER)


@NEEDS_PROMETHEUS
@pytest.mark.parametrize("column", HISTOGRAMS)
def test_latency_is_that_of_the_tokens_of_each_batch_size(prometheus, overload, column):
    """It is what was observed while so many requests ran, divided by how often, from each scrape to the next."""
    running = samples(prometheus, "requests_running", overload)
    parts = [samples(prometheus, f"{HISTOGRAMS[column]}_{part}", overload) for part in ("sum", "count")]
    observed = defaultdict(lambda: [0.0, 0.0])
    for before, at in pairwise(sorted(parts[0])):
        if running.get(at):
            grown = [part[at] - part[before] for part in parts]
            kept = observed[batch_class(round(running[at]))]
            kept[:] = [kept[0] + grown[0], kept[1] + grown[1]]
    wanted = {name: seconds / count for name, (seconds, count) in observed.items() if count}
    rows = shown(prometheus, UID, "day", overload)[BY_BATCH]

    assert {row.labels["_running"]: row.value for row in rows if row.name == column} == pytest.approx(wanted)
    assert len(wanted) == 4


@NEEDS_PROMETHEUS
def test_throughput_is_of_the_same_batch_sizes(prometheus, overload):
    """A row has the mean of the tokens per second of the moments with so many requests, and the rows go up."""
    running, generated = (
        samples(prometheus, name, overload) for name in ("requests_running", "generation_tokens_per_second")
    )
    seen = defaultdict(list)
    for at, tokens in generated.items():
        if running.get(at):
            seen[batch_class(round(running[at]))].append(tokens)
    rows = shown(prometheus, UID, "day", overload)[BY_BATCH]
    by_name = {row.labels["_running"]: row.value for row in rows if row.name == "Generated tok/s"}

    assert by_name == pytest.approx({name: sum(values) / len(values) for name, values in seen.items()})
    assert [row.labels["_running"] for row in rows if row.name == "At least"] == ["1", "2-4", "5-8", "9-16"]


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("running", "name"),
    [("1", "1"), ("2", "2-4"), ("4", "2-4"), ("5", "5-8"), ("1024", "513-1024"), ("1025", "1025+"), ("4000", "1025+")],
)
def test_a_batch_has_the_class_of_its_size(running, name):
    """Each class ends with a power of two, and its name says which sizes it has."""
    series = {
        f"vllm_watch_requests_running{{{LABELS}}}": [running] * STEPS,
        f"vllm_watch_generation_tokens_per_second{{{LABELS}}}": ["100"] * STEPS,
    }
    (found,) = list(given(UID, BY_BATCH, "Generated tok/s", series, STEPS).values())[-1].items()

    assert (dict(found[0])["_running"], found[1]) == (name, 100)


@NEEDS_PROMETHEUS
def test_the_batch_has_one_size_at_a_time(prometheus, overload):
    """The shares of the time of all sizes are together 1 where the engine runs requests, and none where it is idle."""
    found = drawn(prometheus, "Batch size over time", overload)
    shares = Counter()
    for values in found.values():
        shares.update(values)

    assert set(found) == {"1", "2-4", "5-8", "9-16"}
    assert shares[max(shares)] == pytest.approx(1)
    assert max(shares.values()) <= 1 + 1e-9
    assert not any(overload.start <= at < overload.start + 50 for at in shares)


@NEEDS_PROMETHEUS
def test_whatever_ran_has_a_size(prometheus, overload):
    """Also a few seconds with requests in a short time range are in a class: a gap is a time without any."""
    cells = {at for values in drawn(prometheus, "Batch size over time", overload).values() for at in values}
    running = samples(prometheus, "requests_running", overload)
    busy = [overload.start + second for second, value in running.items() if value]
    assert [] == [at for at in busy if at <= max(cells) and not any(at <= cell <= at + 30 for cell in cells)]
    assert len(busy) > 10


def drawn(prometheus, title, span, more=""):
    """Return what a panel draws of `day`, by name and time; `more` is a query that is asked at the same times."""
    board, api = dashboard(UID), Api(prometheus.url)
    (panel,) = (panel for panel in panels_of(board) if panel["title"] == title)
    asked = list(sent_by(panel, opened(board, api, span, {"server": "day", "daemon": DAEMON_ADDRESS})))
    asked += [asked[0]._replace(expr=more, legend="more")] if more else []
    return {
        legend_of(sent.legend, series.labels): series.values
        for sent in asked
        for series in api.range(sent.expr, sent.start, sent.end, sent.step)
    }


@NEEDS_PROMETHEUS
def test_all_prompt_tokens_have_a_source(prometheus, overload):
    """Computed tokens and those of the prefix cache are together the growth of all, and most of a burst was cached."""
    found = drawn(
        prometheus, "Prompt tokens by source", overload, 'sum(rate(vllm_watch_prompt_tokens_total{server="day"}[20s]))'
    )
    computed, cached, every = found["computed"], found["prefix cache"], found["more"]
    # Of a counter that has just begun Prometheus makes less, for it was not below zero.
    settled = [at for at in computed if at > overload.start + 140]

    assert set(found) == {"computed", "prefix cache", "more"}
    assert [computed[at] + cached[at] for at in settled] == pytest.approx([every[at] for at in settled])
    assert len(settled) > 50
    assert max(cached[at] / every[at] for at in settled if every[at]) > 0.5


@NEEDS_PROMTOOL
def test_a_transfer_is_shown_where_there_is_one():
    """Tokens that another server computed have their own curve."""
    series = {
        f'vllm_watch_prompt_tokens_by_source_total{{{LABELS},source="{source}"}}': counted(per_step)
        for source, per_step in (("local_compute", 10), ("local_cache_hit", 0), ("external_kv_transfer", 25))
    }
    names = ("computed", "prefix cache", "transferred")
    found = {
        name: list(list(given(UID, "Prompt tokens by source", name, series, STEPS).values())[-1].values())
        for name in names
    }

    assert found == {"computed": [pytest.approx(2)], "prefix cache": [], "transferred": [pytest.approx(5)]}


@NEEDS_PROMTOOL
def test_without_sources_all_prompt_tokens_are_of_an_unknown_one():
    """Before 0.16 nobody says which tokens were cached: all are shown, and none is called computed."""
    series = {f"vllm_watch_prompt_tokens_total{{{LABELS}}}": counted(40)}
    unknown, computed = (
        list(given(UID, "Prompt tokens by source", name, series, STEPS).values())[-1]
        for name in ("source unknown", "computed")
    )

    assert (list(unknown.values()), list(computed.values())) == ([pytest.approx(8)], [])


def requests(lengths, limit):
    """Return the series of requests, of which each prompt and answer comes once in each step."""
    bounds = [digit * 10**power for power in range(6) for digit in (1, 2, 5) if digit * 10**power <= limit]
    series = {f"vllm_watch_max_model_len_tokens{{{LABELS}}}": [str(limit)] * STEPS}
    for place, part in enumerate(("prompt", "generation")):
        name, tokens = f"vllm_watch_request_{part}_tokens", [each[place] for each in lengths]
        for bound in [*bounds, math.inf]:
            le = "+Inf" if math.isinf(bound) else f"{bound:.1f}"
            series[f'{name}_bucket{{{LABELS},le="{le}"}}'] = counted(sum(each <= bound for each in tokens))
        series[f"{name}_sum{{{LABELS}}}"] = counted(sum(tokens))
        series[f"{name}_count{{{LABELS}}}"] = counted(len(tokens))
    return series


def context(lengths, limit):
    """Return what the table of the context shows of requests, by column."""
    series = requests(lengths, limit)
    columns = ("Longest request", "Mean used", "Near from", "Share at least", "Share at most")
    found = {name: list(given(UID, "Context used", name, series, STEPS).values())[-1] for name in columns}
    return {name: next(iter(values.values())) for name, values in found.items()}


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("limit", "near"), [(1000, 1000), (2048, 2000), (4999, 2000), (8192, 5000), (40960, 20000), (131072, 100000)]
)
def test_near_the_longest_request_is_what_is_above_the_last_bound(limit, near):
    """It is the largest 1, 2 or 5 times a power of ten that the limit has, as vLLM's buckets have it."""
    assert context([(10, 10)], limit)["Near from"] == pytest.approx(near)


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "lengths",
    [
        [(100, 50), (1500, 700), (2500, 10), (300, 3000)],
        [(1900, 1900), (900, 900), (10, 10), (10, 10)],
        [(3000, 1000)] * 2,
        [(1, 1)] * 3,
    ],
)
def test_the_share_near_the_longest_request_is_between_its_bounds(lengths):
    """Whichever prompt and answer belong together, the true share is not below one column and not above the other."""
    found = context(lengths, 4096)
    true = sum(prompt + answer > found["Near from"] for prompt, answer in lengths) / len(lengths)

    assert found["Share at least"] - 1e-9 <= true <= found["Share at most"] + 1e-9
    longer = (sum(tokens > 2000 for tokens in part) for part in zip(*lengths, strict=True))
    assert found["Share at least"] == pytest.approx(max(longer) / len(lengths))
    assert found["Mean used"] == pytest.approx(sum(map(sum, lengths)) / len(lengths) / 4096)


@NEEDS_PROMETHEUS
def test_a_recorded_server_uses_what_its_requests_were_long(prometheus, overload):
    """The mean is that of the histograms' sums and counts, and no request of the recording is near 2,048 tokens."""
    (row,) = [shown(prometheus, UID, "day", overload)["Context used"]]
    found = {each.name: each.value for each in row}
    means = 0.0
    for part in ("prompt", "generation"):
        total, observed = (samples(prometheus, f"request_{part}_tokens_{of}", overload) for of in ("sum", "count"))
        means += (total[max(total)] - total[min(total)]) / (observed[max(observed)] - observed[min(observed)])

    assert found["Mean used"] == pytest.approx(means / 2048, rel=0.01)
    assert (found["Near from"], found["Share at least"], found["Share at most"]) == (2000, 0, 0)
