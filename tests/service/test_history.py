# SPDX-License-Identifier: Apache-2.0
"""The charted values of the last hour."""

from __future__ import annotations

from tests.support.pages import ScrapedServer, page

from vllm_watch.daemon.service.snapshot_document import ChartHistory
from vllm_watch.daemon.state.snapshot import Reading


def test_a_sum_with_an_unknown_part_is_unknown():
    """Requests are those of all engines, or not known; of the KV caches the fullest that is known counts."""
    snapshot = ScrapedServer().scrape(page(running=3, kv=0.42))
    (engine,) = snapshot.engines
    history = ChartHistory()
    for other in (engine, engine._replace(gauges={})):
        history.add(snapshot.at, snapshot._replace(engines=(engine, other)))
    columns = history.columns()

    assert columns["requests_running"] == [6.0, None]
    assert columns["kv_cache_usage_ratio"] == [0.42, 0.42]


def test_of_a_wide_bucket_the_bound_is_charted():
    """No point is at a time that nobody need have waited; of other buckets the estimate is there."""
    snapshot = ScrapedServer().scrape(page(running=3))
    (engine,) = snapshot.engines
    p95 = ("time_to_first_token", 0.95)
    history = ChartHistory()
    for bounds in ({p95: (160.0, 640.0)}, {p95: (512.0, 1024.0)}, {}):
        quantiles = {p95: Reading(616.0, snapshot.at, "metrics")}
        latencies = engine.latencies._replace(quantiles=quantiles, quantile_bounds=bounds)
        history.add(snapshot.at, snapshot._replace(engines=(engine._replace(latencies=latencies),)))

    assert history.columns()["ttft_p95"] == [160.0, 616.0, 616.0]
