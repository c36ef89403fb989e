# SPDX-License-Identifier: Apache-2.0
"""Whether prompt tokens per second are without cached ones: by the release, and by what its page has."""

from __future__ import annotations

import pytest

from tests.support.pages import LABELS, ScrapedServer, page

from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts


BY_SOURCE = 'vllm:prompt_tokens_by_source_total{%s,source="local_compute"} %d\n'
CACHED = "vllm:prompt_tokens_cached_total{%s} %d\n"


@pytest.mark.parametrize(("extra", "excludes"), [(BY_SOURCE, True), (CACHED, True), ("", False)])
def test_a_page_tells_computed_tokens_from_cached_ones_or_does_not(extra, excludes):
    """Before 0.16 a page counts all prompt tokens alike, and what is shown of it says so."""
    server = ScrapedServer()
    for number in range(4):
        more = extra and extra % (LABELS, number)
        snapshot = server.scrape(page(running=4, prompt=10_000 * number, extra=more))

    assert "prompt_tokens_per_second" in snapshot.engines[0].gauges
    assert server_view(snapshot)["engines"][0]["prompt_excludes_cached"] is excludes


@pytest.mark.parametrize(
    ("version", "excludes"), [("0.10.2", False), ("0.15.1", False), ("0.16.0", True), ("0.33.0rc1", True), (None, None)]
)
def test_a_log_means_what_its_release_means(version, excludes):
    """The log's line leaves cached tokens out since 0.16; without a version nobody knows."""
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    first = f"INFO 11-21 02:35:10 [api_server.py:1] vLLM API server version {version}" if version else ""
    line = (
        "INFO 11-21 02:35:11 [loggers.py:118] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation "
        "throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
    )
    state.apply_log(LogReader().read([first.encode(), line.encode()], ArrivalTimes(1000.0)))

    assert state.snapshot(1000.0).engines[0].prompt_excludes_cached is excludes


def test_without_a_rate_nothing_is_said_of_it():
    """An engine of which no rate is known has no word on what the rate would count."""
    assert ScrapedServer().scrape(page(running=1)).engines[0].prompt_excludes_cached is None
