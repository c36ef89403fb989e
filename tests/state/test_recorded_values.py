# SPDX-License-Identifier: Apache-2.0
"""Each value against the recorded server's own counters and gauges, read by another parser."""

from __future__ import annotations

import functools

from collections import defaultdict

import pytest

from prometheus_client.parser import text_string_to_metric_families
from tests.support.recordings import recording, snapshots

from vllm_watch.analysis.replay.recording import LogWritten, MetricsRead
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch_parsers.events import EngineStats, SpecDecoding


pytestmark = pytest.mark.slow


EVERY_RECORDING = pytest.mark.parametrize("name", ["day", "stall", "dp1", "vl"])
STEP = 0.5


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
def pages(name):
    """Return a recording's pages: second and values by engine, one list for each life of the server."""
    lives = [[]]
    for event in recording(name).events():
        if isinstance(event, MetricsRead):
            if event.body:
                lives[-1].append((event.at, own_values(event.body)))
            elif lives[-1]:
                lives.append([])
    return [life for life in lives if life]


def by_page(name):
    """Yield for each page the snapshot taken right after it, the page, and the pages before it in that life."""
    taken = list(snapshots(name, step=STEP))
    for life in pages(name):
        for index, (at, values) in enumerate(life):
            second, snapshot = next((second, snap) for second, snap in taken if second > at)
            if second - at <= STEP and all(engine.state != "down" for engine in snapshot.engines):
                yield snapshot, at, values, life[:index]


def base(earlier, at):
    """Return the newest page that is 9 s or more old."""
    return next(((moment, values) for moment, values in reversed(earlier) if at - moment >= 9), None)


@EVERY_RECORDING
def test_gauges_are_exactly_the_servers(name):
    """Running, waiting, KV cache usage and prompt tokens by source are, after every scrape, what the server says."""
    compared = 0
    for snapshot, _, values, _ in by_page(name):
        for engine in snapshot.engines:
            own = values[engine.key.engine]
            assert own["vllm:num_requests_running"] == engine.gauges["requests_running"].value
            assert own["vllm:num_requests_waiting"] == engine.gauges["requests_waiting"].value
            assert own["vllm:kv_cache_usage_perc"] == engine.gauges["kv_cache_usage_ratio"].value
            for source, tokens in engine.totals.prompt_tokens.items():
                assert own[f"vllm:prompt_tokens_by_source_total|{source}"] == tokens.value
            assert len(engine.totals.prompt_tokens) == 3
            compared += 1

    assert compared >= 10


@EVERY_RECORDING
@pytest.mark.parametrize(
    ("gauge", "counter"),
    [
        ("generation_tokens_per_second", "vllm:generation_tokens_total"),
        ("prompt_tokens_per_second", "vllm:prompt_tokens_by_source_total|local_compute"),
        ("spec_decode_accepted_tokens_per_second", "vllm:spec_decode_num_accepted_tokens_total"),
        ("spec_decode_drafted_tokens_per_second", "vllm:spec_decode_num_draft_tokens_total"),
    ],
)
def test_rates_are_within_5_percent_of_the_counters(name, gauge, counter):
    """Rates are the increase of the server's own counters over the last 10 s."""
    compared = 0
    for snapshot, at, values, earlier in by_page(name):
        old = base(earlier, at)
        for engine in snapshot.engines if old else ():
            own = values[engine.key.engine]
            if counter in own:
                rate = (own[counter] - old[1][engine.key.engine][counter]) / (at - old[0])
                assert engine.gauges[gauge].value == pytest.approx(rate, rel=0.05)
                compared += rate > 0

    assert compared >= 3 or (name == "vl" and gauge.startswith("spec_decode"))


@pytest.mark.parametrize("name", ["day", "stall", "dp1"])
def test_acceptance_length_is_within_5_hundredths(name):
    """The mean acceptance length is one more than accepted tokens by drafts, where there were drafts."""
    compared = 0
    for snapshot, at, values, earlier in by_page(name):
        old = base(earlier, at)
        for engine in snapshot.engines if old else ():
            own, before = values[engine.key.engine], old[1][engine.key.engine]
            drafts = own["vllm:spec_decode_num_drafts_total"] - before["vllm:spec_decode_num_drafts_total"]
            accepted = (
                own["vllm:spec_decode_num_accepted_tokens_total"] - before["vllm:spec_decode_num_accepted_tokens_total"]
            )
            if drafts:
                length = engine.gauges["spec_decode_mean_acceptance_length"].value
                assert length == pytest.approx(1 + accepted / drafts, abs=0.05)
                compared += 1

    assert compared >= 3


@pytest.mark.parametrize("name", ["day", "stall", "dp1"])
def test_positions_add_up_to_the_acceptance_length(name):
    """The acceptance by position adds up to the mean acceptance length without the bonus token."""
    compared = 0
    for _, snapshot in snapshots(name, step=5):
        for engine in snapshot.engines:
            length = engine.gauges.get("spec_decode_mean_acceptance_length")
            if length is not None and engine.position_acceptance:
                total = sum(reading.value for reading in engine.position_acceptance)
                assert length.value - 1 == pytest.approx(total, abs=0.01)
                compared += 1

    assert compared >= 3


@EVERY_RECORDING
def test_counters_are_the_servers(name):
    """Counters are passed on as the server has them."""
    for snapshot, _, values, _ in by_page(name):
        for engine in snapshot.engines:
            own = values[engine.key.engine]
            assert own["vllm:prompt_tokens_total"] == engine.counters["prompt_tokens_total"].value
            assert own["vllm:generation_tokens_total"] == engine.counters["generation_tokens_total"].value
            assert own["vllm:num_preemptions_total"] == engine.counters["preemptions_total"].value
            finished = {r: own[f"vllm:request_success_total|{r}"] for r in ("stop", "length", "abort")}
            assert finished.items() <= {r: v.value for r, v in engine.requests_finished.items()}.items()


@pytest.mark.parametrize(("name", "least"), [("day", 0.9), ("stall", 0.95), ("dp1", 0.95), ("vl", 0.9)])
def test_the_logs_rates_add_up_to_the_counters(name, least):
    """Tokens generated by the log's lines are, over a whole recording, within 5 % of the server's own counters."""
    last = {}
    for event, at in log_events(name, EngineStats):
        before, tokens = last.get(event.engine, (at - 10, 0.0))
        # After a pause a line covers its own interval only: vLLM goes on measuring while it prints nothing.
        interval = at - before if at - before < 15 else 10
        last[event.engine] = (at, tokens + event.generation_tokens_per_second * interval)
    own = sum(life[-1][1][engine]["vllm:generation_tokens_total"] for life in pages(name) for engine in life[-1][1])
    counted = sum(tokens for _, tokens in last.values())

    assert own * least <= counted <= own * 1.05


@pytest.mark.parametrize("name", ["stall", "dp1"])
def test_log_and_scrape_agree_on_the_acceptance_length(name):
    """A line on speculative decoding says what the scrapes of the same ten seconds say, within 0.05."""
    both = {round(second): snapshot for second, snapshot in snapshots(name)}
    compared = 0
    for event, at in log_events(name, SpecDecoding):
        snapshot = both.get(round(at) + 3)
        engine = next((e for e in snapshot.engines if e.key.engine == event.engine), None) if snapshot else None
        if engine and event.mean_acceptance_length and "spec_decode_mean_acceptance_length" in engine.gauges:
            said = engine.gauges["spec_decode_mean_acceptance_length"].value
            assert said == pytest.approx(event.mean_acceptance_length, abs=0.05)
            compared += 1

    assert compared >= 3


def log_events(name, kind):
    """Return a recording's events of one kind and the seconds at which they came."""
    reader, found, rest = LogReader(), [], b""
    for event in recording(name).events():
        if isinstance(event, LogWritten):
            *lines, rest = (rest + event.data).split(b"\n")
            batch = reader.read(lines, ArrivalTimes(event.at))
            found += [(timed.event, timed.at) for timed in batch.events if isinstance(timed.event, kind)]
    return found
