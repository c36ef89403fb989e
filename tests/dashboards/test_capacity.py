# SPDX-License-Identifier: Apache-2.0
"""The forecast on the dashboard and the alert on it say the same."""

from __future__ import annotations

import shutil

import pytest

from tests.alerts.replay import evaluated
from tests.dashboards.replayed import given

from boards.kit.thresholds import number


pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's prometheus)")

ENGINE = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
PER_MINUTE = 12
FLAT, STEEP, SLOW = 0.3, 0.06, 0.011
"""In use at first, and how much is added in a minute of a steep rise and of one that is too slow to be a trend."""


def filling():
    """Return a KV cache that is steady, fills up fast, then slowly, then fast, is full, and is empty again."""
    minutes = [0.0] * 12 + [STEEP] * 7 + [SLOW] * 20 + [STEEP] * 3 + [0.0] * 3
    usage = [FLAT]
    for per_minute in minutes:
        usage += [min(1.0, usage[-1] + per_minute * (step + 1) / PER_MINUTE) for step in range(PER_MINUTE)]
    return usage + [0.0] * 60


def test_forecast_is_what_the_alert_waits_for():
    """It is less than 15 min exactly while VllmKvCacheExhaustionAhead is pending or fires, and is given before that."""
    usage = filling()
    series = {f"vllm_watch_kv_cache_usage_ratio{{{ENGINE}}}": [f"{value:g}" for value in usage]}
    alert = evaluated(series, len(usage), 'ALERTS{alertname="VllmKvCacheExhaustionAhead"}')
    found = given("vllm-watch-capacity", "Room by engine", "Full in", series, len(usage))
    forecast = {moment: min(values.values(), default=None) for moment, values in found.items()}
    within = number("exhaustion_ahead_seconds")
    waiting = {moment for moment, values in alert.items() if values}
    assert {moment for moment, left in forecast.items() if left is not None and left < within} == waiting
    assert waiting
    assert any(left is not None and left >= within for left in forecast.values())
