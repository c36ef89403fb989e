# SPDX-License-Identifier: Apache-2.0
"""The forecast on the dashboard and the alert on it say the same."""

from __future__ import annotations

import pytest

from tests.alerts.replay import STEP, evaluated
from tests.dashboards.replayed import given

from boards.kit.thresholds import number


pytestmark = pytest.mark.needs_tool("promtool")

PER_MINUTE = 12

FILLING = {
    # Fast, then too slowly to be a trend, and fast again past where it counts as full.
    "0": (0.3, [0.0] * 12 + [0.03] * 14 + [0.011] * 14 + [0.03] * 8),
    # Steadily, and already on the way to being full while it is half empty.
    "1": (0.05, [0.0] * 12 + [0.038] * 25),
}
"""What is in use at first by engine, and what each minute adds."""


def usage(start, minutes, steps):
    """Return how full a KV cache is at each step; at the end it stays as it is."""
    values = [start]
    for added in minutes:
        values += [min(1.0, values[-1] + added * step / PER_MINUTE) for step in range(1, PER_MINUTE + 1)]
    return [f"{value:g}" for value in values + values[-1:] * (steps - len(values))]


def engine_of(labels):
    """Return the engine of a series."""
    return dict(labels)["engine"]


def test_forecast_is_what_the_alert_waits_for():
    """It is less than 15 min exactly while VllmKvCacheExhaustionAhead is pending or fires, and is given before that."""
    steps = 60 * PER_MINUTE
    labels = 'instance="a:1",job="vllm-watch",server="s",model_name="m"'
    series = {
        f'vllm_watch_kv_cache_usage_ratio{{{labels},engine="{engine}"}}': usage(start, minutes, steps)
        for engine, (start, minutes) in FILLING.items()
    }
    alert = evaluated(series, steps, 'ALERTS{alertname="VllmKvCacheExhaustionAhead"}')
    forecast = [
        (moment, engine_of(labels), left)
        for moment, found in given("vllm-watch-capacity", "Room by engine", "Full in", series, steps).items()
        for labels, left in found.items()
    ]
    within = number("exhaustion_ahead_seconds")
    waiting = {(moment, engine_of(labels)) for moment, found in alert.items() for labels in found}
    assert {(moment, engine) for moment, engine, left in forecast if left < within} == waiting
    assert {engine for _, engine in waiting} == set(FILLING)
    assert any(left >= within for *_, left in forecast)


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
    shown = given("vllm-watch-capacity", "Version and shape", "State", series, steps)
    versions = {moment: [dict(labels)["version"] for labels in found] for moment, found in shown.items()}
    assert versions == {moment: ["0.19.1" if moment < restart * STEP else "0.20.2"] for moment in shown}
