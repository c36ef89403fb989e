# SPDX-License-Identifier: Apache-2.0
"""What a server counted outlives it, until its next start; what it was like just then does not."""

from __future__ import annotations

import pytest

from tests.state.test_hostile_pages import shown
from tests.support.server_stories import READY, STARTING, Server, line, page

from vllm_watch.daemon.catalog.series import SERIES


LABELS = 'engine="0",model_name="m"'
TIMES = (
    f'vllm:time_to_first_token_seconds_bucket{{{LABELS},le="0.5"}} 3\n'
    f'vllm:time_to_first_token_seconds_bucket{{{LABELS},le="+Inf"}} 5\n'
    f"vllm:time_to_first_token_seconds_sum{{{LABELS}}} 9\n"
    f'vllm:request_success_total{{{LABELS},finished_reason="stop"}} 5\n'
    'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 7\n'
    'http_requests_total{method="POST",handler="/v1/completions",status="2xx"} 11\n'
)
COUNTED = {
    "prompt_tokens_total",
    "generation_tokens_total",
    "requests_finished_total",
    "admission_rejections_total",
    "http_requests_total",
    "time_to_first_token_seconds_bucket",
    "iteration_tokens_count",
    "slo_requests_total",
    "slo_good_requests_total",
}


def killed(**settings):
    """Return a server that was killed after two pages."""
    server = Server(slo={"slo_time_to_first_token_seconds": 0.5}, **settings)
    server.scrape(page(running=3, generated=500, extra=TIMES.replace("3\n", "0\n").replace("5\n", "0\n")))
    return server.scrape(page(running=3, generated=900, extra=TIMES), after=10)


def counters(values):
    """Return the counters and histograms among a page's series, with their values."""
    return {
        series: value
        for series, value in values.items()
        if series[0] not in SERIES or SERIES[series[0]].type != "gauge"
    }


def names(values):
    """Return the names of a page's series."""
    return {series[0] for series in values}


@pytest.mark.parametrize("reason", ["refused", "timeout", "not_metrics"])
@pytest.mark.parametrize("has_log", [False, True])
def test_counters_stay_when_their_server_is_gone(reason, has_log):
    """Whatever the last page had counted is shown an hour later: Prometheus comes after the crash, not before it."""
    server = killed(has_log=has_log)
    before = counters(shown(server))
    after = counters(shown(server.scrape(reason=reason, after=5), after=3600))

    assert names(before) >= COUNTED - ({"http_requests_total"} if has_log else set())
    assert before == after


def test_gauges_and_quantiles_go():
    """Of a server that is gone nothing is told as present but its state, and what it was started with."""
    server = killed(has_log=False)
    before = names(shown(server))
    after = names(shown(server.scrape(after=5)))
    present = {"generation_tokens_per_second", "requests_running", "kv_cache_usage_ratio", "latency_quantile_seconds"}

    assert present <= before
    assert not after & present
    assert "engine_state" in after


def test_they_stay_until_the_next_life_has_a_page():
    """Counters of the last life stand while the server starts, and those of the next take their place at once."""
    server = killed().scrape(after=5).log(STARTING, after=3)
    starting = server.engine().counters or server.state.snapshot(server.now).former[0].counters
    begun = server.log(READY, after=20).scrape(page(generated=4, start=9.0), after=1).engine()

    assert (900, 4) == (starting["generation_tokens_total"].value, begun.counters["generation_tokens_total"].value)
    assert not server.state.snapshot(server.now).former


def test_a_next_life_without_a_page_does_not_keep_the_last_ones():
    """A server that is ready again and shows no page has no counters: those of its last life are not its own."""
    server = killed().scrape(after=5).log(STARTING, after=3).log(READY, after=20).scrape(after=1)
    snapshot = server.state.snapshot(server.now)

    assert ({}, ()) == (snapshot.engines[0].counters, snapshot.former)


def test_engines_that_another_source_does_not_name_keep_their_counters():
    """Two engines of a page, and a log that names a third: each counter is still under the engine that counted."""
    both = page(engine="0", generated=5) + page(engine="1", generated=6)
    server = Server().log(line(engine="003")).scrape(both).scrape(reason="timeout", after=5)
    values = shown(server, after=60)

    def by_engine(name):
        return {dict(series[1:])["engine"]: value for series, value in values.items() if series[0] == name}

    assert {"0": 5, "1": 6} == by_engine("generation_tokens_total")
    assert {"3"} == set(by_engine("engine_state"))
