# SPDX-License-Identifier: Apache-2.0
"""Each value against the recorded server's own counters and gauges, read by another parser."""

from __future__ import annotations

import functools

from collections import defaultdict

import pytest

from prometheus_client.parser import text_string_to_metric_families
from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import MetricsRead
from vllm_watch.analysis.replay.replay import ReplayedServer
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


pytestmark = pytest.mark.slow


EVERY_RECORDING = pytest.mark.parametrize("name", ["day", "stall", "dp1", "vl"])
GAUGES = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "kv_cache_usage_ratio": "vllm:kv_cache_usage_perc",
}
COUNTERS = {
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
    "preemptions_total": "vllm:num_preemptions_total",
}
RATES = {
    "generation_tokens_per_second": "vllm:generation_tokens_total",
    "prompt_tokens_per_second": "vllm:prompt_tokens_by_source_total|local_compute",
    "spec_decode_accepted_tokens_per_second": "vllm:spec_decode_num_accepted_tokens_total",
    "spec_decode_drafted_tokens_per_second": "vllm:spec_decode_num_draft_tokens_total",
}
DRAFTS, ACCEPTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total"


def own_values(body):
    """Return a page's values by engine and name, the finest labels added up."""
    values = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if "engine" in sample.labels and "le" not in sample.labels:
                extra = {k: v for k, v in sample.labels.items() if k not in {"engine", "model_name"}}
                suffix = "".join(f"|{value}" for value in extra.values())
                values[sample.labels["engine"]][sample.name + suffix] = sample.value
    return values


@functools.cache
def engines(name):
    """
    Return each engine right after each page of a recording that is read, and the server's own values of it.

    With them come the newest own values that are 9 s old or more, and how many seconds, if there are any of that life.
    """
    played, earlier, found = recording(name), [], []
    state = ServerState(ServerSettings(name, has_log=True, metrics_interval=5.0))
    server = ReplayedServer(state, played.started)
    for event in played.events():
        server.apply(event)
        if not isinstance(event, MetricsRead):
            continue
        if not event.body:
            earlier = []
            continue
        values = own_values(event.body)
        old, before = next(((at, old) for at, old in reversed(earlier) if event.at - at >= 9), (event.at, {}))
        earlier.append((event.at, values))
        snapshot = state.snapshot(played.started + event.at)
        if all(engine.state != "down" for engine in snapshot.engines):
            for engine in snapshot.engines:
                own = engine.key.engine
                found.append((engine, values[own], before.get(own), event.at - old))
    return found


@EVERY_RECORDING
def test_gauges_and_counters_are_exactly_the_servers(name):
    """Gauges, counters, prompt tokens by source and finished requests are, after every scrape, what the server says."""
    for engine, own, _, _ in engines(name):
        shown = {**engine.gauges, **engine.counters}
        for series, theirs in {**GAUGES, **COUNTERS}.items():
            assert shown[series].value == own[theirs]
        for source, tokens in engine.totals.prompt_tokens.items():
            assert own[f"vllm:prompt_tokens_by_source_total|{source}"] == tokens.value
        assert len(engine.totals.prompt_tokens) == 3
        finished = {r: own[f"vllm:request_success_total|{r}"] for r in ("stop", "length", "abort")}
        assert finished.items() <= {r: v.value for r, v in engine.requests_finished.items()}.items()

    assert len(engines(name)) >= 10


@EVERY_RECORDING
def test_rates_and_the_acceptance_length_follow_from_the_counters(name):
    """Over 10 s rates are within 5 % of the counters' increase, the mean acceptance length within 0.05."""
    compared = defaultdict(int)
    for engine, own, before, seconds in engines(name):
        if before is None:
            continue
        for gauge, counter in RATES.items():
            if counter in own:
                rate = (own[counter] - before[counter]) / seconds
                assert engine.gauges[gauge].value == pytest.approx(rate, rel=0.05)
                compared[gauge] += rate > 0
        if own[DRAFTS] > before[DRAFTS]:
            accepted = (own[ACCEPTED] - before[ACCEPTED]) / (own[DRAFTS] - before[DRAFTS])
            length = engine.gauges["spec_decode_mean_acceptance_length"].value
            assert length == pytest.approx(1 + accepted, abs=0.05)
            assert sum(each.value for each in engine.position_acceptance) == pytest.approx(length - 1, abs=0.01)
            compared["drafts"] += 1

    wanted = {*RATES, "drafts"} if name != "vl" else {"generation_tokens_per_second", "prompt_tokens_per_second"}
    assert {what for what, times in compared.items() if times >= 3} == wanted
