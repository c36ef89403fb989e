# SPDX-License-Identifier: Apache-2.0
"""Rates from the log: drafted and accepted tokens over one interval, and whether prompt tokens include cached ones."""

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


def drafts(seconds, tokens=500):
    """Return a line on drafts that vLLM divides by so many seconds: half of those drafted were accepted."""
    return (
        "INFO 11-21 02:35:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: "
        f"{tokens / seconds:.2f} tokens/s, Drafted throughput: {2 * tokens / seconds:.2f} tokens/s, "
        f"Accepted: {tokens} tokens, Drafted: {2 * tokens} tokens, Per-position acceptance rate: 0.500, 0.500, "
        "Avg Draft acceptance rate: 50.0%"
    ).encode()


def shown(moments):
    """Return the accepted tokens per second after each line; `moments` are when it is read and what it covers."""
    server, rates = Server(has_metrics=False), []
    server.now = 0.0
    for read, covered in moments:
        server.log(line(running=4, generation=100.0), drafts(covered), after=read - server.now)
        gauges = server.engine().gauges
        rates.append(gauges["spec_decode_accepted_tokens_per_second"].value)
        assert gauges["spec_decode_drafted_tokens_per_second"].value == pytest.approx(2 * rates[-1], rel=1e-3)
    return rates


@pytest.mark.parametrize("late", [0.5, 3.5, 5.0, 9.4, 9.9])
@pytest.mark.parametrize("index", range(6))
def test_a_line_that_is_read_late_changes_no_rate(late, index):
    """One late look, whichever line it is at: the lines say 50 tokens/s, and so do the gauges."""
    moments = [(10.0 * number + (late if number == index else 0.0), 10) for number in range(1, 12)]

    assert [50.0] * len(moments) == shown(moments)


def test_several_late_looks_change_no_rate():
    """A file system that shows what was written seconds later, now and then, makes no engine faster."""
    late = (0.0, 9.0, 0.0, 8.0, 0.0, 9.5, 7.0, 0.0, 9.0, 0.0)

    assert [50.0] * 10 == shown([(10.0 * number + seconds, 10) for number, seconds in enumerate(late)])


def test_after_a_pause_the_rate_is_that_of_one_interval():
    """VLLM divides by the pause, too: what was made in the last interval was made in that."""
    assert [50.0, 50.0, 50.0, 50.0] == shown([(10, 10), (20, 10), (80, 60), (90, 10)])


def test_a_request_now_and_then_is_always_after_a_pause():
    """An engine that works for one interval a minute shows what it made in that interval."""
    server = Server(has_metrics=False)
    for _ in range(4):
        server.log(line(running=1, generation=100.0), drafts(60), after=50)
        rate = server.value("spec_decode_accepted_tokens_per_second")
        server.log(line(), after=10)

    assert (50.0, "log") == rate


@pytest.mark.parametrize("interval", [1, 5, 30, 60])
def test_an_interval_that_the_operator_set_is_no_pause(interval):
    """VLLM_LOG_STATS_INTERVAL may be anything: lines that come as often as always are shown as they say."""
    rates = shown([(interval * number, interval) for number in range(1, 8)])

    assert rates[2:] == [pytest.approx(500 / interval, rel=1e-3)] * 5


def test_a_pause_is_measured_by_the_operators_interval():
    """With a line every 30 s what comes after a pause was made in 30 s, not in the 10 s that are usual."""
    moments = [(30, 30), (60, 30), (90, 30), (120, 30), (300, 180), (330, 30)]

    assert [pytest.approx(500 / 30, rel=1e-3)] * 3 == shown(moments)[3:]


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
