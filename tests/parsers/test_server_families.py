# SPDX-License-Identifier: Apache-2.0
"""What /metrics has about a whole server: its process, its connections, and what somebody does to it."""

from __future__ import annotations

import pytest

from tests.support.pages import FURTHER, histogram, page

from vllm_watch_parsers.metric_names import ServerSeries
from vllm_watch_parsers.scrape import Unreadable, read_metrics


WEBSOCKETS = "vllm:websocket_connections_active 3\nvllm:websocket_connections_total 5\n"


def read(*lines):
    """Return the reading of a page with these lines."""
    return read_metrics((page() + "".join(lines)).encode())


def test_series_of_equal_labels_are_added_up():
    """Models and kinds of requests are no labels of ours: the calls of the parser are added up by mode and outcome."""
    call = (
        'vllm:tool_call_parser_invocations_total{{mode="{}",model_name="m",outcome="tool_call",request_type="{}"}} {}\n'
    )
    values = read(
        call.format("streaming", "responses", 4), call.format("streaming", "other", 1), call.format("x", "other", 2)
    ).server_values

    assert values == {
        ServerSeries("tool_parser_calls_total", ("streaming", "tool_call")): 5.0,
        ServerSeries("tool_parser_calls_total", ("other", "tool_call")): 2.0,
    }


def test_the_page_of_released_code_is_read():
    """What vLLM 0.32.0's own classes print gives these values, and an engine with the rest."""
    reading = read_metrics(FURTHER.read_bytes())
    (engine,) = reading.engines.values()

    assert reading.server_values == {
        ServerSeries("weight_update_operations_in_flight", ("init",)): 0.0,
        ServerSeries("weight_update_operations_in_flight", ("update",)): 1.0,
        ServerSeries("websocket_connections_active"): 3.0,
        ServerSeries("websocket_connections_total"): 5.0,
    }
    sums = {series: (found.observations, found.sum) for series, found in reading.server_histograms.items()}
    assert sums[ServerSeries("websocket_connection_duration_seconds")] == (2, 42.0)
    assert sums[ServerSeries("weight_update_operation_duration_seconds", ("init",))][0] == 1
    counted = ("corrupted_requests", "requests_watermarked", "requests_watermark_skipped", "requests_not_watermarked")
    assert [engine.counters[name] for name in counted] == [2, 6, 2, 4]
    diffusion = ("denoising_steps", "canvas_positions", "committed_tokens")
    assert [engine.counters[name] for name in diffusion] == [20, 640, 80]


def test_a_server_without_statistics_is_still_one():
    """The API server's own families are there with --disable-log-stats, too: they are no statistics."""
    assert read_metrics((WEBSOCKETS + "python_info 1\n").encode()) == Unreadable("stats_disabled")


def test_they_are_no_engine():
    """A family without labels does not make an engine without a name."""
    duration = "vllm:websocket_connection_duration_seconds"
    reading = read(WEBSOCKETS, f'{duration}_bucket{{le="+Inf"}} 2\n{duration}_sum 3.0\n{duration}_count 2\n')

    assert [key.model_name for key in reading.engines] == ["m"]


@pytest.mark.parametrize("value", ["-1", "NaN", "1e19"])
def test_a_value_out_of_range_is_counted(value):
    """It is nobody's number of connections."""
    reading = read(f"vllm:websocket_connections_active {value}\n")

    assert (reading.server_values, reading.out_of_range) == ({}, {"websocket_connections_active": 1})


def test_a_malformed_histogram_is_counted():
    """Counts that fall are no histogram."""
    lines = histogram("sleep_mode_operation_duration_seconds", {"1": 3, "+Inf": 2}, 3.0, 'operation="sleep"')
    reading = read(lines)

    assert (reading.server_histograms, reading.out_of_range) == ({}, {"sleep_operation_duration_seconds": 1})


def test_work_may_be_more_than_any_count():
    """A device of 1e15 operations a second has done 1e22 after some months: that is in range, a negative one is not."""
    flops = 'vllm:estimated_flops_per_gpu_total{engine="0",model_name="m"} '
    (engine,) = read(flops + "3e22\n").engines.values()

    assert engine.counters["estimated_flops"] == 3e22
    assert read(flops + "-1\n").out_of_range == {"estimated_flops": 1}
