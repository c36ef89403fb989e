# SPDX-License-Identifier: Apache-2.0
"""Pages of /metrics that no release prints, or only in odd set-ups: what is believed, added up, or left out."""

from __future__ import annotations

import math

import pytest

from vllm_watch_parsers.scrape import (
    MAX_LABEL_VALUES,
    EngineKey,
    EngineReading,
    Histogram,
    HttpRequests,
    MetricsReading,
    Unreadable,
    read_metrics,
)


KEY = EngineKey("m", "0")
RUNNING = 'vllm:num_requests_running{engine="0",model_name="m"} 1'


def read(*lines: str) -> MetricsReading:
    """Return the reading of a page with these lines, and one gauge."""
    reading = read_metrics("".join(f"{line}\n" for line in (RUNNING, *lines)).encode())
    assert isinstance(reading, MetricsReading)
    return reading


def engine(*lines: str) -> EngineReading:
    """Return the reading of the page's one engine."""
    reading = read(*lines)
    assert list(reading.engines) == [KEY]
    return reading.engines[KEY]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not_metrics"),
        ("# TYPE a gauge\n", "not_metrics"),
        ("<html>\n", "not_metrics"),
        (RUNNING, "incomplete"),
        ("python_info 1\n", "stats_disabled"),
        ('http_requests_total{method="GET"} 1\n', "stats_disabled"),
        ("vllm:something_else 1\n", "stats_disabled"),
        (f"{RUNNING}\n" * 50_001, "too_many_samples"),
    ],
)
def test_a_page_without_statistics_says_why(body, reason):
    """No page, half a page, an absurd page, and a server without statistics are told apart."""
    assert read_metrics(body.encode()) == Unreadable(reason)


def test_missing_is_not_zero():
    """A page with one gauge is a reading with one gauge, and nothing else."""
    assert engine() == EngineReading({"requests_running": 1.0}, {}, {}, {}, ())


def test_engines_are_told_apart_and_sorted():
    """Each pair of model and engine has a reading; numbers are in the order of numbers."""
    reading = read(*(f'vllm:prompt_tokens_total{{engine="{label}",model_name="m"}} 5' for label in ("10", "2", "1")))

    assert [key.engine for key in reading.engines] == ["0", "1", "2", "10"]


def test_a_page_without_the_label_is_engine_0():
    """V0 and releases before 0.8.3 have no label `engine`."""
    assert list(read_metrics(b'vllm:num_requests_running{model_name="m"} 1\n').engines) == [KEY]


def test_of_two_names_the_newest_counts():
    """Releases that print a quantity under the old and the new name print the same twice; it is not added up."""
    reading = engine(
        'vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 10',
        'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 160',
        'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
    )

    assert reading.counters == {"prefix_cache_hits": 160.0}
    assert reading.gauges["kv_cache_usage_ratio"] == 0.25


def test_several_processes_behind_one_page():
    """Of gauges with a `pid` each the fullest counts, counters add up."""
    reading = engine(
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="7"} 0.25',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="8"} 0.75',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="9"} 0.5',
        'vllm:prompt_tokens_total{engine="0",model_name="m",pid="7"} 3',
        'vllm:prompt_tokens_total{engine="0",model_name="m",pid="8"} 4',
    )

    assert reading.gauges["kv_cache_usage_ratio"] == 0.75
    assert reading.counters["prompt_tokens"] == 7.0


def test_a_series_that_stands_twice_counts_once():
    """Of two samples of one series the later one holds."""
    line = 'vllm:prompt_tokens_total{engine="0",model_name="m"}'

    assert engine(f"{line} 3", f"{line} 4").counters == {"prompt_tokens": 4.0}


def test_prompt_tokens_by_source_and_deferred_requests_are_read_from_their_labels():
    """Prompt tokens count for each source that is known, and of the waiting requests by reason the deferred ones."""
    reading = engine(
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 5',
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 6',
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="external_kv_transfer"} 3',
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="elsewhere"} 2',
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7',
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 8',
    )

    assert reading.counters == {
        "prompt_tokens_computed": 5.0,
        "prompt_tokens_cached_locally": 6.0,
        "prompt_tokens_transferred": 3.0,
    }
    assert reading.gauges["requests_deferred"] == 8.0


@pytest.mark.parametrize(
    ("line", "quantity"),
    [
        ("vllm:num_requests_waiting{L} -1", "requests_waiting"),
        ("vllm:num_requests_waiting{L} NaN", "requests_waiting"),
        ("vllm:num_requests_waiting{L} 10000001", "requests_waiting"),
        ("vllm:kv_cache_usage_perc{L} 1.01", "kv_cache_usage_ratio"),
        ("vllm:kv_cache_usage_perc{L} +Inf", "kv_cache_usage_ratio"),
        ("vllm:prompt_tokens_total{L} -1", "prompt_tokens"),
        ("vllm:prompt_tokens_total{L} NaN", "prompt_tokens"),
        ("vllm:prompt_tokens_total{L} +Inf", "prompt_tokens"),
        ("vllm:prompt_tokens_total{L} 1e308", "prompt_tokens"),
        ('vllm:request_success_total{L,finished_reason="stop"} -1', "requests_finished"),
        ('vllm:spec_decode_num_accepted_tokens_per_pos_total{L,position="0"} NaN', "position_accepted"),
        ('vllm:admission_rejections_total{model_name="m",reason="x"} -1', "admission_rejections"),
        ('http_requests_total{method="GET",handler="/",status="2xx"} NaN', "http_requests"),
        ("process_start_time_seconds NaN", "process_start_seconds"),
    ],
)
def test_impossible_values_are_refused_and_counted(line, quantity):
    """I3: a value out of range is left out and counted under its quantity's name, never under a text of the page."""
    reading = read(line.replace("{L", '{engine="0",model_name="m"'))

    assert reading.engines[KEY] == engine()
    assert (reading.admission_rejections, reading.http_requests, reading.process_start_seconds) == ({}, {}, None)
    assert reading.out_of_range == {quantity: 1}


def test_a_disabled_prefix_cache_is_absent():
    """V0 shows -1 where prefix caching is off: that is no value, and nothing wrong."""
    reading = read('vllm:gpu_prefix_cache_hit_rate{engine="0",model_name="m"} -1')

    assert reading.engines[KEY].gauges == {"requests_running": 1.0}
    assert reading.out_of_range == {}


BUCKET = 'vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m",le="%s"} %s'
SUM = 'vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} %s'


def test_a_histogram_is_its_bounds_counts_and_sum():
    """Buckets come in any order; the count is that of the infinite one."""
    histogram = engine(BUCKET % ("+Inf", 7), BUCKET % ("0.5", 4), BUCKET % ("0.1", 1), SUM % 2.5).histograms[
        "time_to_first_token_seconds"
    ]

    assert histogram == Histogram((0.1, 0.5, math.inf), (1.0, 4.0, 7.0), 2.5)
    assert histogram.observations == 7.0


@pytest.mark.parametrize(
    "lines",
    [
        [BUCKET % ("0.1", 1), SUM % 1],
        [BUCKET % ("0.1", 2), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("0.1", -1), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("0.1", "NaN"), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("+Inf", "NaN"), SUM % 1],
        [BUCKET % ("+Inf", -1), SUM % 1],
        [BUCKET % ("+Inf", "+Inf"), SUM % 1],
        [BUCKET % ("0.1", 1), BUCKET % ("+Inf", "+Inf"), SUM % 1],
        [BUCKET % ("some", 1), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("NaN", 1), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("+Inf", 1)],
        [BUCKET % ("+Inf", 1), SUM % "NaN"],
        [BUCKET % ("+Inf", 1), SUM % "+Inf"],
        [BUCKET % ("+Inf", 1), SUM % -1],
        [BUCKET % ("+Inf", 0.5), SUM % 1],
        [BUCKET % ("-1", 0), BUCKET % ("+Inf", 1), SUM % 1],
        [BUCKET % ("-Inf", 0), BUCKET % ("+Inf", 1), SUM % 1],
    ],
)
def test_what_is_no_histogram_is_refused(lines):
    """Without an infinite bucket, with falling or impossible counts, anything below zero, or no sum it is none."""
    reading = read(*lines)

    assert reading.engines[KEY].histograms == {}
    assert reading.out_of_range == {"time_to_first_token_seconds": 1}


def test_a_histogram_without_buckets_is_absent():
    """A sum and a count alone are no histogram; there is nothing to refuse."""
    assert read(SUM % 1).out_of_range == {}


def test_positions_count_as_far_as_there_is_no_gap():
    """Accepted tokens by draft position come in the order of positions and end before the first gap."""
    line = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="%s"} %s'

    assert engine(line % (1, 5), line % (0, 9), line % (3, 1)).position_accepted == (9.0, 5.0)
    assert engine(line % (1, 5), line % ("x", 9)).position_accepted == ()


def test_v0_s_counters_of_speculative_decoding_are_left_out():
    """Where the page has V0's counter of emitted tokens, none of its kind can be believed."""
    names = ("accepted", "draft", "emitted")
    lines = [f'vllm:spec_decode_num_{name}_tokens_total{{engine="0",model_name="m"}} 5' for name in names]

    assert engine(*lines).counters == {}
    assert engine(*lines[:2]).counters == {"accepted_tokens": 5.0, "drafted_tokens": 5.0}


def test_words_of_the_page_are_kept_up_to_a_number():
    """A page with ever new reasons does not make the reading grow without end."""
    finished = 'vllm:request_success_total{engine="0",model_name="m",finished_reason="r%d"} 1'
    rejected = 'vllm:admission_rejections_total{model_name="m",reason="r%d"} 1'
    reading = read(*(line % number for line in (finished, rejected) for number in range(500)))

    assert len(reading.engines[KEY].requests_finished) == MAX_LABEL_VALUES
    assert len(reading.admission_rejections) == MAX_LABEL_VALUES


def test_rejections_and_http_requests_have_no_engine():
    """The API server's own counters are by model and reason, and by method, handler and status."""
    reading = read(
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 3',
        'http_requests_total{handler="/v1/models",method="GET",status="2xx"} 4',
        "process_start_time_seconds 1.7e+09",
    )

    assert reading.admission_rejections == {("m", "max_num_queued_reqs"): 3.0}
    assert reading.http_requests == {HttpRequests("GET", "/v1/models", "2xx"): 4.0}
    assert reading.process_start_seconds == 1.7e9


@pytest.mark.parametrize(
    ("labels", "tokens", "concurrency"),
    [
        ('block_size="16",num_gpu_blocks="1000"', None, None),
        ('block_size="16",num_gpu_blocks="1000",kv_cache_size_tokens="15000"', 15_000, None),
        ('kv_cache_size_tokens="15000",kv_cache_max_concurrency="3.5"', 15_000, 3.5),
        ('block_size="16",num_gpu_blocks="None"', None, None),
        ('block_size="16",num_gpu_blocks="0"', None, None),
        ('block_size="16",num_gpu_blocks="999999999999999999"', None, None),
        ('block_size="16",num_gpu_blocks="²"', None, None),
        ('kv_cache_max_concurrency="inf"', None, None),
        ('kv_cache_max_concurrency="-1"', None, None),
        ('kv_cache_max_concurrency="nan"', None, None),
    ],
)
def test_capacity_is_read_from_the_cache_configuration(labels, tokens, concurrency):
    """A lone engine's capacity stands in the labels of one series; values that cannot be are left out."""
    reading = read(f'vllm:cache_config_info{{{labels},engine="0"}} 1')

    assert reading.kv_cache_tokens.get("0") == tokens
    assert reading.max_concurrency.get("0") == concurrency


def test_capacity_of_v0_is_its_blocks_by_their_size():
    """V0 has one pool of blocks; V1's are shared by groups of layers, so that their number tells nothing."""
    config = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1'

    assert read(config, 'vllm:num_requests_swapped{model_name="m"} 0').kv_cache_tokens == {"0": 16_000}
    assert read(config).kv_cache_tokens == {}


def test_capacity_under_data_parallelism_is_not_believed():
    """With several engines every series has the sum of all of them."""
    reading = read(
        'vllm:num_requests_running{engine="1",model_name="m"} 1',
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1',
        'vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="1000"} 1',
    )

    assert reading.kv_cache_tokens == {}
