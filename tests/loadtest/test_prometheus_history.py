# SPDX-License-Identifier: Apache-2.0
"""The history of a server from a Prometheus' answers: engines together, gaps as gaps, counters that start again."""

from __future__ import annotations

from math import inf

import pytest

from vllm_watch.analysis.loadtest.prometheus_history import Answers, PrometheusHistory
from vllm_watch.analysis.loadtest.server_history import EnergyReading
from vllm_watch.daemon.catalog.series import PREFIX
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch_parsers.scrape import Histogram


ORIGIN = {"job": "vllm-watch", "instance": "gpu1:9468"}
OTHER = {"job": "vllm-watch", "instance": "gpu2:9468"}
ENGINE = {"server": "a", "model_name": "m", "engine": "0"}
STEP = 10.0
START = 1000.0


def series(name, values, labels=ENGINE, origin=ORIGIN, start=START):
    """Return a series with a value at each step; there is none where it is `None`."""
    found = [(start + STEP * index, float(value)) for index, value in enumerate(values) if value is not None]
    return PromSeries({"__name__": PREFIX + name, **labels, **origin}, tuple(found))


def scraped(values, origin=ORIGIN):
    """Return when each step's sample was scraped: one second before the step, where the value is true."""
    found = [(START + STEP * index, START + STEP * index - 1) for index, value in enumerate(values) if value]
    return PromSeries(origin, tuple(found))


def read(count, name="metrics", origin=ORIGIN):
    """Return a reading of a source, two seconds before each step."""
    at = [START + STEP * index - 2 for index in range(count)]
    return series("source_last_reading_timestamp_seconds", at, {"server": "a", "source": name}, origin)


def state(*names):
    """Return the engine's state at each step."""
    return tuple(
        series("engine_state", [1 if each == known else 0 for each in names], {**ENGINE, "state": known})
        for known in {*names, "idle"}
    )


def history(*parts):
    """Return the history of these answers."""
    found = PrometheusHistory(STEP)
    for part in parts:
        found.add(part)
    return found.build("http://p", "a")


def counted(*counters, count=3, gauges=()):
    """Return answers with these counters, a reading and a state at every step."""
    return Answers((scraped([1] * count),), (read(count), *state(*["serving"] * count), *gauges, *counters))


def test_a_point_has_the_time_at_which_its_values_were_read():
    """The daemon exports when it read /metrics: that is when the counters were so."""
    found = history(counted(series("generation_tokens_total", [0, 50, 150])))

    assert [point.at for point in found.points] == [998, 1008, 1018]
    assert [point.counters["generation_tokens_total"] for point in found.points] == [0, 50, 150]
    assert [point.state for point in found.points] == ["serving"] * 3
    assert all(point.is_fresh for point in found.points)


def test_engines_are_together():
    """Requests and tokens are sums, ratios are means, and the state is the worst."""
    second = {**ENGINE, "engine": "1"}
    gauges = (
        series("requests_running", [3], ENGINE),
        series("requests_running", [5], second),
        series("kv_cache_usage_ratio", [0.2], ENGINE),
        series("kv_cache_usage_ratio", [0.6], second),
        series("engine_state", [1], {**second, "state": "stalled"}),
        series("spec_decode_position_acceptance_ratio", [0.5], {**ENGINE, "position": "1"}),
        series("spec_decode_position_acceptance_ratio", [0.7], {**second, "position": "1"}),
    )
    counters = (
        series("requests_finished_total", [4], {**ENGINE, "reason": "stop"}),
        series("requests_finished_total", [5], {**second, "reason": "stop"}),
        series(
            "http_requests_total", [6], {"server": "a", "method": "POST", "handler": "/v1/completions", "code": "200"}
        ),
        series("http_requests_total", [7], {"server": "a", "method": "POST", "handler": "other", "code": "200"}),
    )

    (point,) = history(counted(*counters, count=1, gauges=gauges)).points

    assert point.gauges == {"requests_running": 8, "kv_cache_usage_ratio": pytest.approx(0.4)}
    assert point.counters == {"requests_finished_total.stop": 9, "http_requests_total.2xx": 6}
    assert point.state == "stalled"
    assert point.position_acceptance == (None, pytest.approx(0.6))


def test_a_counter_that_starts_again_is_continued():
    """A daemon that was restarted counts from 0; one that is missing keeps its value, across parts of the time."""
    first = counted(series("generation_tokens_total", [100, 10, None]))
    later = Answers(
        (PromSeries(ORIGIN, ((1030, 1029),)),),
        (
            series("source_last_reading_timestamp_seconds", [1028], {"server": "a", "source": "metrics"}, start=1030),
            series("generation_tokens_total", [4], start=1030),
        ),
    )

    tokens = [point.counters["generation_tokens_total"] for point in history(first, later).points]

    assert tokens == [100, 110, 110, 114]


def test_histograms_are_buckets_and_sums_of_all_engines():
    """Buckets are put in order and added up over engines; one that starts again is as it is."""

    def buckets(engine, counts):
        labels = {**ENGINE, "engine": engine}
        found = [series("queue_time_seconds_bucket", counts[bound], {**labels, "le": bound}) for bound in counts]
        return (*found, series("queue_time_seconds_sum", [1.5, 0.5], labels))

    many = buckets("0", {"+Inf": [4, 2], "0.5": [3, 1]}) + buckets("1", {"0.5": [1, 1], "+Inf": [1, 2]})
    answers = Answers((scraped([1] * 2),), (read(2), *many))

    first, second = history(answers).points

    assert first.histograms == {"queue_time_seconds": Histogram((0.5, inf), (4, 5), 3.0)}
    assert second.histograms == {"queue_time_seconds": Histogram((0.5, inf), (1 + 1, 2 + 2), 0.5 + 0.5)}


def test_starts_failures_and_facts_are_known():
    """Version, model, sizes, starts and failures come from their series; an early failure is known, and no event."""
    info = {"server": "a", "model_name": "m", "version": "0.33.0", "engine_generation": "V1"}
    answers = counted(
        series("server_starts_total", [1, 2, 2], {"server": "a"}),
        series("log_events_total", [0, 0, 1], {"server": "a", "event": "out_of_memory"}),
        series("log_events_total", [1, 1, 1], {"server": "a", "event": "gpu_memory_too_small"}),
        series("log_events_total", [0, 0, 0], {"server": "a", "event": "engine_dead"}),
        gauges=(series("server_info", [1, 1, 1], info), series("tensor_parallel_size", [2, 2, 2])),
    )

    found = history(answers)

    assert (found.version, found.model, found.facts) == ("0.33.0", "m", {"tensor_parallel_size": 2})
    assert found.config == {"tensor-parallel-size": "2"}
    assert [point.process for point in found.points] == [1, 2, 2]
    assert [(event.at, event.text) for event in found.events] == [(1008, "the server starts"), (1018, "out of memory")]
    assert found.failures == {"out_of_memory", "gpu_memory_too_small"}
    assert found.has_metrics is False


def test_gpus_are_those_of_the_server_whoever_reads_them():
    """Energy has no server and may come from elsewhere; a shared or divided GPU is named, one without a value, too."""
    used = [{"server": "a", "gpu": gpu, "how": "pid", "shared": str(gpu == "G1").lower()} for gpu in ("G1", "G2", "G3")]

    def by_gpu(values):
        return tuple(PromSeries({"gpu": gpu}, ((START, value),)) for gpu, value in values.items())

    answers = counted(count=1, gauges=(*(series("server_gpu_info", [1], labels) for labels in used), price(2.4)))
    answers = answers._replace(
        energy=by_gpu({"G1": 5.0, "G2": 7.0}), energy_read=by_gpu({"G1": 998.0, "G2": 999.0}), divided=by_gpu({"G2": 1})
    )
    answers = answers._replace(memory=(PromSeries({}, ((START, 0.93),)),))
    found = history(answers)

    assert found.points[0].energy == EnergyReading(999.0, {"G1": 5.0, "G2": 7.0, "G3": None}, frozenset({"G1", "G2"}))
    assert found.points[0].gauges == {"gpu_memory_used_ratio": 0.93}
    assert found.cost_per_hour == 2.4
    assert history(counted(count=1)).points[0].energy is None
    assert history(counted(count=1)).cost_per_hour is None


def price(value):
    """Return what the server costs in an hour."""
    return series("server_cost_per_hour", [value], {"server": "a"})


def test_prompt_tokens_that_were_computed_are_told_apart():
    """Of the tokens by source only those count as computed that were in no cache; their sum is that of prompts."""
    sources = {"local_compute": 30, "local_cache_hit": 70}
    counters = [
        series("prompt_tokens_by_source_total", [count], {**ENGINE, "source": source})
        for source, count in sources.items()
    ]

    assert history(counted(*counters, count=1)).points[0].counters == {"prompt_tokens_computed": 30}


def test_of_several_daemons_one_counts():
    """If two daemons report one server at a time, the one with more samples counts."""
    answers = Answers(
        (scraped([1, 1, 1]), scraped([0, 1, 1, 1], OTHER)),
        (
            read(3),
            read(4, origin=OTHER),
            series("generation_tokens_total", [10, 20, 30]),
            series("generation_tokens_total", [1, 2, 3, 4], origin=OTHER),
        ),
    )
    found = history(answers)

    assert [point.counters["generation_tokens_total"] for point in found.points] == [10, 20, 30, 34]


def test_a_log_alone_has_points():
    """Without /metrics a point is at the log's last line of statistics."""
    answers = Answers((scraped([1, 1]),), (read(2, "log"), series("requests_running", [1, 2])))

    assert [(point.at, point.is_fresh) for point in history(answers).points] == [(998, True), (1008, True)]
