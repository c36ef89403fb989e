# SPDX-License-Identifier: Apache-2.0
"""
What the server's side of a report says agrees with what the benchmark measured, on recorded load tests.

Within 1 % where both count or time requests, 5 % where one of them sees only the sums of a histogram. The end-to-end
latency and TTFT that a client sees have its own share in them, HTTP, the network and the reading of the stream: on the
two cores that the recorded client shared with its server some milliseconds for each request. So those are compared
with that share taken off, which is the same for both: what is after the first token took the same time on both sides.
"""

from __future__ import annotations

import functools

import pytest

from tests.loadtest.load_tests import LOAD_TESTS

from vllm_watch.loadtest.sources import read_report


CLIENTS_SHARE_MS = 40.0
"""No request of the recorded tests can have spent more in the client on average."""

EVERY_TEST = pytest.mark.parametrize("path", LOAD_TESTS, ids=lambda path: path.stem)


@functools.lru_cache(maxsize=32)
def views(path):
    """Return both views of each run in a recording."""
    found = []
    for run in read_report([str(path)]).runs:
        by_view = {view.view: view for view in run.views}
        assert set(by_view) == {"client", "server"}, run.name
        found.append((by_view["client"], by_view["server"]))
    return found


@EVERY_TEST
@pytest.mark.parametrize(
    "name",
    [
        "successful",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "output_throughput",
        "total_token_throughput",
        "duration_s",
    ],
)
def test_counts_and_rates_agree_within_one_per_cent(path, name):
    """Requests, tokens and throughput are the same on both sides."""
    for client, server in views(path):
        assert getattr(server, name) == pytest.approx(getattr(client, name), rel=0.01)


@EVERY_TEST
def test_failures_agree(path):
    """No request failed on either side."""
    for client, server in views(path):
        assert (client.failed, server.failed) == (0, 0)


@EVERY_TEST
@pytest.mark.parametrize("name", ["tpot_ms", "itl_ms"])
def test_times_between_tokens_agree_within_five_per_cent(path, name):
    """The server's histogram has the same mean as the client's requests."""
    for client, server in views(path):
        assert getattr(server, name).mean == pytest.approx(getattr(client, name).mean, rel=0.05)


@EVERY_TEST
def test_latencies_agree_but_for_the_client_s_own_share(path):
    """TTFT and E2EL of the client are above the server's by one and the same amount, within 5 % of E2EL."""
    for client, server in views(path):
        share = client.ttft_ms.mean - server.ttft_ms.mean
        assert 0 <= share <= CLIENTS_SHARE_MS or share <= 0.5 * client.ttft_ms.mean
        assert server.e2el_ms.mean + share == pytest.approx(client.e2el_ms.mean, rel=0.05)


@EVERY_TEST
@pytest.mark.parametrize("name", ["tpot_ms", "itl_ms"])
@pytest.mark.parametrize("quantile", ["p50", "p90"])
def test_the_client_s_percentiles_are_between_the_server_s_bounds(path, name, quantile):
    """A percentile from buckets says between which values it is, and there it is, to 5 %."""
    for client, server in views(path):
        value, bounds = getattr(getattr(client, name), quantile), getattr(server, name).bounds[quantile]
        if value is not None:
            assert 0.95 * bounds.low <= value <= 1.05 * bounds.high
