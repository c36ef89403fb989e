# SPDX-License-Identifier: Apache-2.0
"""Rates from the log: drafted and accepted tokens of one interval, and whether prompt tokens include cached ones."""

from __future__ import annotations

import pytest

from tests.state.test_configuration import arguments, version
from tests.support.pages import LABELS, ScrapedServer, page
from tests.support.server_stories import Server, line

from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.reading.log_reader import LogReader, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


RATES = ("accepted_tokens_per_second", "drafted_tokens_per_second")


def drafts(seconds, tokens=500):
    """Return a line on drafts that vLLM divides by so many seconds: half of those drafted were accepted."""
    return (
        "INFO 11-21 02:35:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: "
        f"{tokens / seconds:.2f} tokens/s, Drafted throughput: {2 * tokens / seconds:.2f} tokens/s, "
        f"Accepted: {tokens} tokens, Drafted: {2 * tokens} tokens, Per-position acceptance rate: 0.500, 0.500, "
        "Avg Draft acceptance rate: 50.0%"
    ).encode()


def test_rates_are_those_of_a_line_that_follows_one_of_the_interval_before():
    """VLLM divides the first line after a start or a pause by all of that: its rates are left out, its ratios not."""
    server, rates = Server(has_metrics=False), []
    for after, covered in ((10, 60), (10.5, 10), (9.5, 10), (60, 70), (10, 10)):
        if covered == 70:
            server.log(line(), after=10)  # Idle.
        server.log(line(running=4, generation=100.0), drafts(covered), after=after)
        gauges = server.engine().gauges
        rates.append([gauges[f"spec_decode_{name}"].value for name in RATES if f"spec_decode_{name}" in gauges])
        assert (2.0, 0.5) == tuple(
            gauges[f"spec_decode_{name}"].value for name in ("mean_acceptance_length", "acceptance_ratio")
        )

    assert [[], [50.0, 100.0], [50.0, 100.0], [], [50.0, 100.0]] == rates


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


@pytest.mark.parametrize(
    ("schedule", "others", "least"),
    [
        ([[1, 64, 3], [65, 128, 1]], {}, 1),
        ([[1, 64, 3], [65, 128, 0]], {}, 0),
        ([[1, 64, 3], [65, 128, 1]], {"data_parallel_size": 2}, None),
        ([[1, 128, 3]], {}, None),
    ],
)
def test_drafts_of_different_lengths_are_not_compared_by_position(schedule, others, least):
    """Where fewer tokens are drafted in a large batch, a position's share of all drafts is no acceptance."""
    config = {"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": schedule}
    server = Server(has_metrics=False).log(version(), arguments(speculative_config=config, **others))
    server.log(line(running=4, generation=100.0), drafts(10))
    engine = server.engine()

    assert (3, least) == tuple(engine.facts.get(f"num_speculative_tokens{end}") for end in ("", "_least"))
    assert [0.5, 0.5] == [each.value for each in engine.position_acceptance] or least is not None
    assert not engine.position_acceptance or least is None
    assert 2.0 == engine.gauges["spec_decode_mean_acceptance_length"].value
