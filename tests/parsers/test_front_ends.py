# SPDX-License-Identifier: Apache-2.0
"""VLLM's series under the names of Ray and KServe: read as vLLM's, each once, and only those of a worker that runs."""

from __future__ import annotations

import gzip
import re

from functools import cache
from pathlib import Path

import pytest

from tests.parsers.releases import page as released_page
from tests.support.pages import LABELS, ScrapedServer, page, started

from vllm_watch.daemon.state.scrape_source import ALTERNATION_SECONDS
from vllm_watch_parsers.scrape import EngineKey, MetricsReading, Unreadable, read_metrics


PAGES = Path(__file__).parent / "other_pages"
ENGINE = EngineKey("m", "0")
PAGES_OF_ONE = ("ray_worker", "ray_worker_idle", "ray_ended_worker", "ray_opencensus_colon", "ray_wrong_labels")


@cache
def recorded(name):
    """Return a page of a Ray agent."""
    return gzip.decompress((PAGES / f"{name}.prom.gz").read_bytes()).decode()


def without(body, pattern):
    """Return a page without the samples that a pattern matches."""
    return "".join(line for line in body.splitlines(keepends=True) if line[0] == "#" or not re.search(pattern, line))


def of_worker(name, worker):
    """Return a page with the series of one of its workers."""
    return without(recorded(name), f'ReplicaId="(?!{worker})')


def reading(body):
    """Return what a page reports."""
    found = read_metrics(body.encode())
    assert isinstance(found, MetricsReading), found
    return found


def test_a_worker_is_read_as_vllms():
    """The gauges, counters and histograms that Ray shows of a worker are those it was given, and no others."""
    found = reading(recorded("ray_worker"))

    assert (found.kind, found.reason, list(found.engines)) == ("ray_vllm", "ok", [ENGINE])
    engine = found.engines[ENGINE]
    assert dict(engine.gauges) == {
        "requests_running": 2,
        "requests_waiting": 1,
        "requests_deferred": 0,
        "kv_cache_usage_ratio": 0.25,
        "awake": 1,
    }
    assert dict(engine.counters) == {
        "prompt_tokens": 100,
        "prompt_tokens_cached": 20,
        "prompt_tokens_cached_device": 20,
        "generation_tokens": 50,
        "prefix_cache_queries": 100,
        "prefix_cache_hits": 20,
        "prompt_tokens_computed": 80,
        "prompt_tokens_cached_locally": 20,
    }
    assert dict(engine.requests_finished) == {"stop": 1}
    assert engine.histograms["time_to_first_token_seconds"].observations == 2
    assert found.out_of_range == {}


def test_what_the_agent_says_of_itself_is_not_vllms():
    """The start time on a page of Ray is the agent's, and no restart of vLLM shows in it."""
    assert "process_start_time_seconds 1.79" in recorded("ray_worker")
    assert reading(recorded("ray_worker")).process_start_seconds is None


def test_a_counter_that_is_there_twice_counts_once():
    """Of a counter's two series Ray's ``_total`` counts; where only the other one is there, that does."""
    both = reading(recorded("ray_opencensus_colon"))
    lone = reading(without(recorded("ray_opencensus_colon"), r"^ray_vllm:(?!iteration_tokens)\w+_total\{"))

    assert (both.engines[ENGINE].counters["generation_tokens"], both.engines[ENGINE].requests_finished["stop"]) == (
        80,
        4,
    )
    assert lone == both


def test_a_sum_that_ray_estimates_is_marked():
    """Through OpenTelemetry Ray has a sum made of the buckets' middles: 0.55 for 0.523; without it the sum is true."""
    estimated = reading(recorded("ray_worker")).engines[ENGINE].histograms["time_to_first_token_seconds"]
    true = reading(recorded("ray_opencensus_colon")).engines[ENGINE].histograms["time_to_first_token_seconds"]

    assert (estimated.sum, estimated.is_estimate) == (pytest.approx(0.55), True)
    assert (true.sum / true.observations, true.is_estimate) == (pytest.approx(0.2615), False)


def test_an_engine_that_computes_nothing_has_no_gauges():
    """Ray drops the gauges of an engine without steps: nobody knows whether it runs, and what it has counted stays."""
    engine = reading(recorded("ray_worker_idle")).engines[ENGINE]

    assert dict(engine.gauges) == {}
    assert engine.counters["generation_tokens"] == 50


def test_the_series_of_an_ended_worker_do_not_count():
    """Beside a worker that computes, the counters of one without gauges are neither shown nor added."""
    assert 'ReplicaId="rep-b"' in recorded("ray_ended_worker")
    found = reading(recorded("ray_ended_worker"))

    assert list(found.engines) == [ENGINE]
    assert dict(found.process)["ReplicaId"] == "rep-a"
    assert found.engines[ENGINE].counters["generation_tokens"] > 70


@pytest.mark.parametrize("name", ["ray_two_workers", "ray_opencensus_two_workers"])
def test_two_workers_that_compute_are_two_servers(name):
    """A page with the gauges of two workers is several servers', whatever engines they have."""
    assert read_metrics(recorded(name).encode()) == Unreadable("several_servers")


def test_of_several_workers_that_compute_nothing_none_is_read():
    """Where two workers have counters and neither has gauges, either may have ended: no engine, and no failure."""
    found = reading(without(recorded("ray_two_workers"), "num_requests_|kv_cache_usage|sleep_state|cache_config"))

    assert (found.reason, dict(found.engines)) == ("ray_idle", {})


def test_a_worker_with_several_engines():
    """The engines of one worker are engines of one server."""
    found = reading(of_worker("ray_two_workers", "rep-b"))

    assert [(key.engine, engine.counters["generation_tokens"]) for key, engine in found.engines.items()] == [
        ("0", 70),
        ("1", 7),
    ]


def test_wrong_labels_are_left_out():
    """Up to 0.20 all reasons are booked as the last one: without them the numbers of a lone engine are right."""
    body = of_worker("ray_wrong_labels", "rep-a")
    assert 'finished_reason="repetition"' in body
    engine = reading(body).engines[ENGINE]

    assert dict(engine.requests_finished) == {}
    assert {"awake", "requests_deferred"}.isdisjoint(engine.gauges)
    assert "prompt_tokens_transferred" not in engine.counters
    assert (engine.gauges["requests_running"], engine.counters["generation_tokens"]) == (2, 50)


def test_engines_under_one_label_are_not_read():
    """Up to 0.20 the engines of a server are all booked as the last one: the page is refused."""
    assert read_metrics(of_worker("ray_wrong_labels", "rep-b").encode()) == Unreadable("ray_engines_mixed")


def test_vllms_own_series_come_first():
    """On a page with vLLM's own series those of Ray are not read."""
    found = reading(page(running=5) + of_worker("ray_two_workers", "rep-a"))

    assert (found.kind, found.engines[ENGINE].gauges["requests_running"]) == ("vllm", 5)


@pytest.mark.parametrize("release", ["0.12.0", "0.33.0"])
def test_kserves_names(release):
    """Under ``kserve_`` and with the labels of its collectors every value is vLLM's."""
    body = released_page(release, "metrics_1.txt").decode()
    labelled = re.sub(r"(?m)^(\w[\w:]*)\{", r'\1{llm_isvc_name="x",pod="x-0",namespace="n",', body)
    renamed = re.sub(r"(?m)^(# \w+ |)(?=\w)", r"\1kserve_", labelled)
    found, own = reading(renamed), reading(body)

    assert (found.kind, found.process) == ("kserve_vllm", (("pod", "x-0"),))
    assert found._replace(kind="vllm", process=()) == own


def test_kserves_queue_proxy():
    """KServe's queue proxy adds labels to vLLM's series and its own series in front: the values are the same."""
    body = released_page("0.33.0", "metrics_1.txt").decode()
    labels = 'service_name="x",configuration_name="x",revision_name="x-00001"'
    labelled = re.sub(r"^((?:vllm:|http_)\w+)\{(.*)\}", rf"\1{{\2,{labels}}}", body, flags=re.MULTILINE)
    own = 'queue_requests_per_second{destination_pod="x"} 1\nrequest_preprocess_seconds_count{model_name="m"} 5\n'

    assert reading(own + labelled) == reading(body)


@pytest.mark.parametrize("label", ["instance", "pod", "exported_instance"])
def test_a_page_of_several_servers_is_refused(label):
    """A page on which a collector shows several servers has no value that is one server's."""
    two = "".join(page(running=number).replace(LABELS, f'{LABELS},{label}="{number}"') for number in (1, 2))

    assert read_metrics(two.encode()) == Unreadable("several_servers")


class TestOverTime:
    """One agent's page, scrape by scrape."""

    @staticmethod
    def body(worker, generated, running=1):
        """Return a page with one worker that computes."""
        labels = f'{LABELS},ReplicaId="",WorkerId="{worker}",otel_scope_name="x"'
        return (
            page(running=running, generated=generated, extra=started(1e9))
            .replace(LABELS, labels)
            .replace("vllm:", "ray_vllm_")
        )

    def test_another_worker_is_a_restart(self):
        """A new worker is a start of the server, also if it has counted more than the last one."""
        server = ScrapedServer()
        for number in range(10):
            before = server.scrape(self.body("a", 100 + number))
        for number in range(10):
            after = server.scrape(self.body("b", 5000 + number))

        assert (before.starts, after.starts) == (0, 1)
        assert before.sources[0].engine_kind == after.sources[0].engine_kind == "ray_vllm"

    def test_workers_in_turn_are_several_servers(self):
        """A worker that comes back after another one is a second server: none of the two is shown."""
        server = ScrapedServer()
        for worker in "aaabbbaaa":
            snapshot = server.scrape(self.body(worker, 100))

        assert (snapshot.sources[0].is_up, snapshot.sources[0].reason) == (False, "several_servers")
        assert dict(snapshot.engines[0].counters) == {}
        assert server.scrape(self.body("a", 200), after=ALTERNATION_SECONDS).sources[0].reason == "ok"

    def test_a_rate_is_over_several_reports(self):
        """Ray repeats a value for 10 s: 100 tokens in each report are 10 a second at every scrape, not 0 or 20."""
        server, rates = ScrapedServer(), set()
        for number in range(20):
            gauges = server.scrape(self.body("a", 100 * (number // 2))).engines[0].gauges
            rates.add(gauges["generation_tokens_per_second"].value if number > 12 else 10.0)

        assert all(8 < rate < 12 for rate in rates), rates

    def test_an_engine_of_which_nothing_is_known_is_neither_idle_nor_stalled(self):
        """Once its gauges are gone, the engine's state is unknown, and the page says nothing of requests."""
        server = ScrapedServer()
        for number in range(6):
            snapshot = server.scrape(self.body("a", 100 + number, running=3))
        assert snapshot.engines[0].state == "serving"
        for _ in range(20):
            snapshot = server.scrape(without(self.body("a", 106), "num_requests|kv_cache"))

        assert snapshot.engines[0].state == "unknown"
        assert "requests_running" not in snapshot.engines[0].gauges
        assert snapshot.engines[0].counters["generation_tokens_total"].value == 106

    def test_an_unused_engine_misses_nothing(self):
        """Ray has no counter before its first event: none counts as missing until tokens were generated."""
        server = ScrapedServer()
        snapshot = server.scrape(without(self.body("a", 0), "_total"))

        assert not any(snapshot.missing_metrics.values())

    def test_a_node_without_work_is_no_failure(self):
        """A page of several workers of which none computes is read; no start is counted when one computes again."""
        server, idle = ScrapedServer(), recorded("ray_two_workers")
        idle = without(idle, "num_requests_|kv_cache_usage|sleep_state|cache_config")
        for body in (of_worker("ray_two_workers", "rep-a"), idle, idle):
            snapshot = server.scrape(body)
        assert (snapshot.sources[0].is_up, snapshot.sources[0].reason) == (True, "ray_idle")
        assert not any(snapshot.missing_metrics.values())

        after = server.scrape(of_worker("ray_two_workers", "rep-a"))
        assert (after.starts, after.engines[0].gauges["requests_running"].value) == (0, 2)

    def test_no_mean_of_an_estimated_sum(self):
        """Quantiles follow from buckets, and a mean from a sum that Ray has only estimated does not."""
        server = ScrapedServer()
        first, second = recorded("ray_worker"), recorded("ray_worker").replace("} 2.0\n", "} 9.0\n")
        for number in range(12):
            engine = server.scrape(first if number < 4 else second).engines[0]

        assert engine.latencies.quantiles
        assert engine.latencies.means == {}


@pytest.mark.parametrize("name", PAGES_OF_ONE)
def test_no_page_of_ray_is_anybody_elses(name):
    """Each recorded page of one worker is read, as Ray's."""
    body = of_worker(name, "rep-a") if name == "ray_wrong_labels" else recorded(name)

    assert reading(body).kind == "ray_vllm"
