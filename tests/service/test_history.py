# SPDX-License-Identifier: Apache-2.0
"""The charted values of the last hour."""

from __future__ import annotations

from tests.support.pages import ScrapedServer, page

from vllm_watch.service.history import ChartHistory


def test_a_sum_with_an_unknown_part_is_unknown():
    """Requests are those of all engines, or not known; of the KV caches the fullest that is known counts."""
    snapshot = ScrapedServer().scrape(page(running=3, kv=0.42))
    (engine,) = snapshot.engines
    history = ChartHistory()
    for other in (engine, engine._replace(gauges={})):
        history.add(snapshot._replace(engines=(engine, other)))
    columns = history.columns()

    assert columns["requests_running"] == [6.0, None]
    assert columns["kv_cache_usage_ratio"] == [0.42, 0.42]
