# SPDX-License-Identifier: Apache-2.0
"""What is left of a server: what the figures, the forecast and the maxima say, also in the middle of an overload."""

from __future__ import annotations

import math

from itertools import product

import pytest

from tests.alerts.replay import STEP, evaluated
from tests.dashboards.api import Api
from tests.dashboards.loaded import Span
from tests.dashboards.panels import panels_of
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import shown, words

from boards.kit.thresholds import number


UID = "vllm-watch-capacity"
NEEDS_PROMTOOL = pytest.mark.needs_tool("promtool")
NEEDS_PROMETHEUS = pytest.mark.needs_tool("prometheus", "promtool")

PER_MINUTE = 12
STEPS = 5 * PER_MINUTE

FILLING = {
    # Fast, then too slowly to be a trend, and fast again past where it counts as full.
    "0": (0.3, [0.0] * 12 + [0.03] * 14 + [0.011] * 14 + [0.03] * 8),
    # Steadily, and already on the way to being full while it is half empty.
    "1": (0.05, [0.0] * 12 + [0.038] * 25),
}
"""What is in use at first by engine, and what each minute adds."""

LIMITS = ("max_running_requests", "requests_running", "kv_cache_capacity_tokens", "kv_cache_usage_ratio")

SATURATED_SINCE, LATER = 190, 400
"""Seconds of the recording `day`: its overload, and the middle of it."""


def usage(start, minutes, steps):
    """Return how full a KV cache is at each step; at the end it stays as it is."""
    values = [start]
    for added in minutes:
        values += [min(1.0, values[-1] + added * step / PER_MINUTE) for step in range(1, PER_MINUTE + 1)]
    return [f"{value:g}" for value in values + values[-1:] * (steps - len(values))]


def strings(node):
    """Yield all texts in a part of a dashboard."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list | dict):
        for each in node.values() if isinstance(node, dict) else node:
            yield from strings(each)


def engine_of(labels):
    """Return the engine of a series."""
    return dict(labels)["engine"]


def until(prometheus, name, seconds=None):
    """Return the span of a recording as far as a second of it."""
    start, end = prometheus.spans[name]
    return Span(start, end if seconds is None else start + seconds)


def figure(prometheus, title, name, span):
    """Return the one number of a figure, and what it is called."""
    (found,) = shown(prometheus, UID, name, span)[title]
    return found.name, found.value


def samples(prometheus, series, span):
    """Return the values of a recording's series by the second of the span."""
    (found,) = Api(prometheus.url).range(f"sum({series})", span.start, span.end, STEP)
    return {round(at - span.start): value for at, value in found.values.items()}


def last(prometheus, name, server, span):
    """Return what a quantity of a server is at the end of a span."""
    return samples(prometheus, f'vllm_watch_{name}{{server="{server}"}}', span)[round(span.end - span.start)]


@NEEDS_PROMTOOL
def test_forecast_is_that_of_the_trend():
    """It is less than 15 min exactly while the trend of 10 min leads above 1 within them, and is given before that."""
    steps = 60 * PER_MINUTE
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m"'
    series = {
        f'vllm_watch_kv_cache_usage_ratio{{{labels},engine="{engine}"}}': usage(start, minutes, steps)
        for engine, (start, minutes) in FILLING.items()
    }
    usage_of = "vllm_watch_kv_cache_usage_ratio"
    ahead = evaluated(
        series,
        steps,
        f"predict_linear({usage_of}[10m], {number('exhaustion_ahead_seconds'):g}) > 1"
        f" and avg_over_time({usage_of}[1m]) > {number('exhaustion_from_ratio'):g}"
        f" and avg_over_time({usage_of}[1m]) <= {number('kv_full_ratio'):g}"
        f" and avg_over_time({usage_of}[5m])"
        f" > {number('exhaustion_growth'):g} * avg_over_time({usage_of}[5m] offset 5m)",
    )
    mean = evaluated(series, steps, "engine:vllm_watch_kv_cache_usage_ratio:avg1m")
    forecast = {
        (moment, engine_of(labels)): left
        for moment, found in given(UID, "Room by engine", "Full in (est.)", series, steps).items()
        for labels, left in found.items()
    }
    within = number("exhaustion_ahead_seconds")
    waiting = {(moment, engine_of(labels)) for moment, found in ahead.items() for labels in found}
    full = {
        (moment, engine_of(labels))
        for moment, found in mean.items()
        for labels, value in found.items()
        if value > number("kv_full_ratio") and moment in {at for at, _ in forecast}
    }
    assert {key for key, left in forecast.items() if 0 < left < within} == waiting
    assert {engine for _, engine in waiting} == set(FILLING)
    assert any(left >= within for left in forecast.values())
    said = {key for key, left in forecast.items() if left == 0}
    in_use = {engine: usage(start, minutes, steps) for engine, (start, minutes) in FILLING.items()}
    assert full <= said
    assert all(float(in_use[engine][moment // STEP]) >= number("kv_full_ratio") for moment, engine in said - full)
    assert words(UID, "Room by engine", "Full in (est.)") == words(UID, "KV cache full in (est.)") == {"0": "full"}


@NEEDS_PROMTOOL
def test_a_cache_that_drains_is_not_full():
    """As soon as it is well below full it is called so no more, while its mean of the last minute still is above."""
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
    full, steps = 3 * PER_MINUTE, 5 * PER_MINUTE
    series = {f"vllm_watch_kv_cache_usage_ratio{{{labels}}}": ["0.99"] * full + ["0.4"] * (steps - full)}
    found = given(UID, "Room by engine", "Full in (est.)", series, steps)
    last_full = max(moment for moment, values in found.items() if list(values.values()) == [0])

    assert last_full < full * STEP <= last_full + 15


@NEEDS_PROMTOOL
def test_a_cache_that_is_suddenly_full_is_full():
    """Before its mean of a minute is above the bound, too, a cache that is full now is called full."""
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
    empty, steps = 3 * PER_MINUTE, 5 * PER_MINUTE
    series = {f"vllm_watch_kv_cache_usage_ratio{{{labels}}}": ["0.1"] * empty + ["1"] * (steps - empty)}
    found = given(UID, "Room by engine", "Full in (est.)", series, steps)

    assert {moment for moment, values in found.items() if values} == {at for at in found if at >= empty * STEP}
    assert {value for values in found.values() for value in values.values()} == {0}


@NEEDS_PROMTOOL
def test_a_maximum_is_of_the_model_that_is_served():
    """A maximum that was recorded of another model of the server, days ago, is no part of that of the present one."""
    server = 'instance="a:1",job="vllm-watch",server="s"'
    change, steps = 10 * PER_MINUTE, 25 * PER_MINUTE
    series = {}
    for model, is_first, tokens in (("old", True, "1000"), ("new", False, "2000")):
        labels = f'{server},model_name="{model}",engine="0"'

        def while_served(value, is_first=is_first):
            before, after = ([value], ["_"]) if is_first else (["_"], [value])
            return before * change + after * (steps - change)

        series[f'vllm_watch_engine_state{{{labels},state="saturated"}}'] = while_served("1")
        series[f"vllm_watch_generation_tokens_per_second{{{labels}}}"] = while_served(tokens)
        series[f"vllm_watch_prompt_tokens_per_second{{{labels}}}"] = while_served("0")
    found = given(UID, "Capacity, tok/s", "lowest", series, steps)

    assert list(found[(change - 1) * STEP // 15 * 15].values()) == [1000]
    assert list(list(found.values())[-1].values()) == [2000]


@NEEDS_PROMTOOL
@pytest.mark.parametrize(("used", "limit", "places"), [("0.3", "batch limit", 14), ("1", "KV cache (est.)", 0)])
def test_a_full_cache_leaves_no_place_before_a_request_has_finished(used, limit, places):
    """While the length of requests is not known a cache that is full leaves no place, and any other the batch's."""
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
    values = {"kv_cache_usage_ratio": used, "requests_running": "10", "max_running_requests": "24"}
    series = {f"vllm_watch_{name}{{{labels}}}": [value] * PER_MINUTE for name, value in values.items()}
    series[f'vllm_watch_engine_state{{{labels},state="serving"}}'] = ["1"] * PER_MINUTE
    found = {
        name: list(list(given(UID, "Free places", f"fewest, {name}", series, PER_MINUTE).values())[-1].values())
        for name in ("batch limit", "KV cache (est.)")
    }

    assert found == {"batch limit": [], "KV cache (est.)": []} | {limit: [places]}


@NEEDS_PROMTOOL
def test_places_are_of_the_engines_that_answer():
    """Of two engines of which one is stalled only the other has free places."""
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m"'
    series = {}
    for engine, state, running in (("0", "stalled", "4"), ("1", "serving", "7")):
        of_engine = f'{labels},engine="{engine}"'
        series[f'vllm_watch_engine_state{{{of_engine},state="{state}"}}'] = ["1"] * PER_MINUTE
        series[f"vllm_watch_max_running_requests{{{of_engine}}}"] = ["24"] * PER_MINUTE
        series[f"vllm_watch_requests_running{{{of_engine}}}"] = [running] * PER_MINUTE
    by_server, by_engine = (
        list(given(UID, title, name, series, PER_MINUTE).values())[-1]
        for title, name in (("Free places", "fewest, batch limit"), ("Room by engine", "Free places"))
    )

    assert list(by_server.values()) == [17]
    assert {engine_of(labels): places for labels, places in by_engine.items()} == {"1": 17}


@NEEDS_PROMETHEUS
def test_a_stalled_server_has_no_place_and_no_demand(prometheus):
    """A server that answers nobody takes no request, however many places its batch has; it is not said to have some."""
    found = shown(prometheus, UID, "stall", until(prometheus, "stall", 170))
    assert found["Free places"] == found["Demand now"] == []


@pytest.mark.parametrize("uid", [UID, "vllm-watch-spec-decode"])
def test_a_row_leads_to_the_server_of_its_daemon(uid):
    """Where two daemons have a server of one name, the link in a row of an engine opens that of the row's daemon."""
    links = [url for url in strings(list(panels_of(dashboard(uid)))) if url.startswith("/d/vllm-watch-server?${__url")]
    of_cells = [url for url in links if "__value" in url]
    assert of_cells
    assert all(url.endswith("&var-daemon=${__data.fields.instance}") for url in of_cells)


@NEEDS_PROMTOOL
def test_after_a_restart_the_last_version_is_shown():
    """Backfilled series have no mark of their end: the old version is there for a while, and the new one is shown."""
    steps, restart = 10 * PER_MINUTE, 5 * PER_MINUTE
    labels = 'instance="a:1",job="vllm-watch",server="s"'
    before, after = ["1"] * restart + ["_"] * (steps - restart), ["_"] * restart + ["1"] * (steps - restart)
    series = {
        f'vllm_watch_engine_state{{{labels},model_name="m",engine="0",state="serving"}}': ["1"] * steps,
        f'vllm_watch_server_info{{{labels},model_name="m",version="0.19.1",engine_generation="v1"}}': before,
        f'vllm_watch_server_info{{{labels},model_name="m",version="0.20.2",engine_generation="v1"}}': after,
    }
    shown_states = given(UID, "Version and shape", "State", series, steps)
    versions = {moment: [dict(labels)["version"] for labels in found] for moment, found in shown_states.items()}
    assert versions == {moment: ["0.19.1" if moment < restart * STEP else "0.20.2"] for moment in shown_states}


@NEEDS_PROMETHEUS
def test_a_full_cache_leaves_no_place_and_says_so(prometheus):
    """In the middle of the overload the cache is full, and no request fits, however many places the batch has."""
    span = until(prometheus, "day", LATER)
    running, limit = (last(prometheus, name, "day", span) for name in ("requests_running", "max_running_requests"))

    assert figure(prometheus, "KV cache full in (est.)", "day", span) == ("first to be full", 0)
    assert figure(prometheus, "Free places", "day", span) == ("fewest, KV cache (est.)", 0)
    assert limit - running > 5


@NEEDS_PROMETHEUS
def test_with_room_in_the_cache_the_batch_limits(prometheus):
    """Before the overload the free places are those of the batch, and the cache is neither full nor filling up."""
    span = until(prometheus, "day", 150)
    running, limit = (last(prometheus, name, "day", span) for name in ("requests_running", "max_running_requests"))

    assert figure(prometheus, "Free places", "day", span) == ("fewest, batch limit", limit - running)
    assert shown(prometheus, UID, "day", span)["KV cache full in (est.)"] == []


@NEEDS_PROMETHEUS
def test_a_small_batch_is_full_while_the_cache_is_empty(prometheus):
    """Where the batch takes four requests, the limit that is named is the batch's."""
    found = [figure(prometheus, "Free places", "queue", until(prometheus, "queue", at)) for at in range(150, 200, 10)]

    assert {name for name, _ in found} == {"fewest, batch limit"}
    assert 0 in {value for _, value in found} <= {0, 1}


@NEEDS_PROMETHEUS
def test_free_places_are_the_fewer_of_both_limits(prometheus):
    """At each moment the figure is not above what the batch takes, nor above what fits in the cache."""
    for second in range(90, LATER, 30):
        span = until(prometheus, "day", second)
        limit, running, capacity, used = (last(prometheus, quantity, "day", span) for quantity in LIMITS)
        _, value = figure(prometheus, "Free places", "day", span)
        assert value <= limit - running
        # No request of the recording has fewer than a hundred tokens.
        assert value == math.floor(value) <= capacity * (1 - used) / 100


def best_saturated_minute(prometheus, name, span):
    """Return the most tokens per second, on average over a minute in which an engine was saturated all along."""
    tokens = [
        samples(prometheus, f'vllm_watch_{kind}_tokens_per_second{{server="{name}"}}', span)
        for kind in ("prompt", "generation")
    ]
    saturated = samples(prometheus, f'vllm_watch_engine_state{{server="{name}",state="saturated"}}', span)
    best = 0.0
    for end in sorted(saturated):
        minute = [end - 60 + step * STEP for step in range(1, 60 // STEP + 1)]
        if end % 15 == 0 and all(saturated.get(at) for at in minute):
            best = max(best, sum(sum(kind[at] for at in minute) / len(minute) for kind in tokens))
    return best


@NEEDS_PROMETHEUS
def test_while_saturated_the_capacity_is_measured(prometheus):
    """In the overload the capacity is what is measured there, with its bounds, and the demand is 100 %."""
    span = until(prometheus, "day", LATER)
    tables = {title: {row.name: row for row in rows} for title, rows in shown(prometheus, UID, "day", span).items()}
    rows = tables["Capacity by engine"]
    estimate, lower, upper, prompts = (
        rows[name].value for name in ("Generated tok/s", "At least", "At most", "Prompt tok/s")
    )

    assert rows["At least"].labels["basis"] == "saturated"
    assert (lower, upper) == pytest.approx((0.95 * estimate, 1.05 * estimate))
    assert figure(prometheus, "Capacity, tok/s", "day", span) == ("lowest", pytest.approx(estimate + prompts, rel=0.05))
    assert figure(prometheus, "Demand now", "day", span) == ("busiest", 1)
    assert words(UID, "Capacity by engine", "Basis")["saturated"] == "measured, saturated"


@NEEDS_PROMETHEUS
def test_after_a_restart_the_best_minute_is_a_provisional_maximum(prometheus):
    """What was measured before the restart is no capacity of the new process: the best minute is left, named so."""
    span = until(prometheus, "day")
    name, most = figure(prometheus, "Capacity, tok/s", "day", span)
    demand, _ = figure(prometheus, "Demand now", "day", span)
    (row,) = (row for row in shown(prometheus, UID, "day", span)["Capacity by engine"])

    assert (name, demand) == ("lowest, provisional", "busiest, provisional")
    assert most == pytest.approx(best_saturated_minute(prometheus, "day", span), rel=0.02)
    assert (row.name, row.labels["basis"]) == ("Why not", "too_few_loads")


@NEEDS_PROMETHEUS
def test_before_a_saturated_minute_no_maximum_is_made_up(prometheus):
    """Half a minute into the overload, and before it, neither a maximum nor a demand is shown."""
    for second in (150, SATURATED_SINCE + 30):
        found = shown(prometheus, UID, "day", until(prometheus, "day", second))
        assert found["Capacity, tok/s"] == found["Demand now"] == []


@NEEDS_PROMETHEUS
def test_replicas_are_what_the_lower_bound_carries(prometheus):
    """A demand needs as many servers as three quarters of the lower bound go into it, rounded up."""
    span = until(prometheus, "sustained")
    found = shown(prometheus, UID, "sustained", span)
    table = {row.name: row.value for row in found["Replicas needed"]}
    by_engine = {row.name: row.value for row in found["Capacity by engine"]}
    (whole,) = (row.value for row in found["Capacity, tok/s"])
    lower = whole * by_engine["At least"] / by_engine["Generated tok/s"]
    done = samples(prometheus, 'engine:vllm_watch_tokens_per_second:avg5m{server="sustained"}', span)

    assert table["Servers"] == 1
    assert table["Demand"] == math.ceil(1000 / (0.75 * lower)) > 1
    assert table["Week's peak"] == math.ceil(max(done.values()) / (0.75 * lower)) > 1


def two_servers(known):
    """Return the series of two servers with two engines each, of which so many show their capacity."""
    series = {}
    for place, (server, engine) in enumerate(product("st", "01")):
        labels = f'instance="a:1",job="vllm-watch",server="{server}",model_name="m",engine="{engine}"'
        series[f"vllm_watch_requests_running{{{labels}}}"] = ["4"] * STEPS
        for name, value in (("", "100"), ("lower_", "80"), ("prompt_", "25")):
            if place < known:
                estimate = f'vllm_watch_capacity_estimate_{name}tokens_per_second{{{labels},basis="curve"}}'
                series[estimate] = [value] * STEPS
        for kind, value in (("prompt", "50"), ("generation", "100")):
            series[f"vllm_watch_{kind}_tokens_per_second{{{labels}}}"] = [value] * STEPS
    return series


@NEEDS_PROMTOOL
@pytest.mark.parametrize(("known", "for_week"), [(4, [4]), (3, [])])
def test_replicas_are_servers_and_not_engines(known, for_week):
    """Of servers with two engines half as many are needed; a peak of which a part is not known is no peak."""
    found = {
        name: list(list(given(UID, "Replicas needed", name, two_servers(known), STEPS).values())[-1].values())
        for name in ("Servers", "Week's peak", "Demand")
    }

    # Three quarters of 80 % of 125 are 75 for each engine, and each has 150 to do.
    assert found == {"Servers": [2], "Week's peak": for_week, "Demand": [math.ceil(1000 / 75 / 2)]}


@NEEDS_PROMETHEUS
def test_generation_is_told_with_the_time_that_it_is_of(prometheus):
    """Each range of running requests says for how long it was seen, and all together are no longer than the range."""
    span = until(prometheus, "day", LATER)
    rows = shown(prometheus, UID, "day", span)["Throughput and latency by batch size"]
    seconds = {row.labels["_running"]: row.value for row in rows if row.name == "For"}
    generated = {row.labels["_running"] for row in rows if row.name == "Generated tok/s"}

    assert set(seconds) == generated > {"1", "9-16"}
    assert 60 < sum(seconds.values()) <= LATER
    assert seconds["9-16"] > 60 > seconds["1"]
