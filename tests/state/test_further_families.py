# SPDX-License-Identifier: Apache-2.0
"""Achieved work, adapters, operations and V0's own values, from both sources: shown while they are true."""

from __future__ import annotations

import math

import pytest

from tests.support.pages import LABELS, ScrapedServer, page, started

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts, TimedEvent
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.sleep_reports import MAX_OPERATION_SECONDS
from vllm_watch_parsers.events import AchievedWork, AdapterChange, DiffusionDecoding, EngineStats, SpecDecoding
from vllm_watch_parsers.metric_names import LORA_ACTIVE, LORA_MOST


STATS = EngineStats("0", 10.0, 20.0, 2, 0, kv_cache_usage_ratio=0.5)
WORK = AchievedWork("0", 5e12, 7e9)
LORA = 'vllm:lora_requests_info{{max_lora="2",running_lora_adapters="{}",waiting_lora_adapters="{}"}} {}\n'
UPDATE = 'vllm:rl_weight_update_operations_in_flight{{operation="update"}} {}\n'


def logged(*timed, peak_flops=None, now=None, is_history=False):
    """Return what is known after events at times."""
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None, peak_flops=peak_flops))
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    events = tuple(TimedEvent(at, event) for at, event in timed)
    end = events[-1].at
    state.apply_log(LogBatch(events, {}, len(events) + 1, 0, end, 0, is_history=is_history))
    return state.snapshot(end if now is None else now)


def work_page(flops, read, written):
    """Return a page with vLLM's estimates of its work."""
    values = {"flops": flops, "read_bytes": read, "write_bytes": written}
    return page(running=1) + "".join(
        f"vllm:estimated_{name}_per_gpu_total{{{LABELS}}} {value}\n" for name, value in values.items()
    )


def achieved(snapshot):
    """Return the achieved work that is shown of the first engine."""
    return {name: reading.value for name, reading in snapshot.engines[0].gauges.items() if name.startswith("achieved_")}


def test_rates_of_estimated_work_are_shown():
    """The counters' rates over the last seconds; bytes read and written also together."""
    server = ScrapedServer()
    server.scrape(work_page(1e12, 1e9, 5e8))

    assert achieved(server.scrape(work_page(2e12, 3e9, 6e8), after=10.0)) == {
        "achieved_flops_per_second": 1e11,
        "achieved_read_bytes_per_second": 2e8,
        "achieved_write_bytes_per_second": 1e7,
        "achieved_memory_bytes_per_second": 2.1e8,
    }


def test_counters_that_stay_zero_are_no_work():
    """Without --enable-mfu-metrics vLLM exports them all the same: 0 for ever is absent, not 0."""
    server = ScrapedServer()
    server.scrape(work_page(0, 0, 0))

    assert achieved(server.scrape(work_page(0, 0, 0), after=10.0)) == {}


def test_a_line_of_the_interval_is_shown():
    """A line that follows one of the interval before is about its own ten seconds."""
    snapshot = logged((10, STATS), (10, WORK), (20, STATS), (20, WORK._replace(flops_per_second=6e12)))

    assert achieved(snapshot) == {"achieved_flops_per_second": 6e12, "achieved_memory_bytes_per_second": 7e9}


@pytest.mark.parametrize(
    "timed",
    [
        [(10, STATS), (10, WORK)],
        [(10, STATS), (10, WORK), (20, STATS), (100, STATS), (100, WORK)],
        [(10, STATS), (10, WORK), (20, STATS), (20, WORK), (30, STATS)],
    ],
)
def test_a_diluted_or_an_old_line_is_not(timed):
    """The first line after the start or after a pause is divided by all of that time; one without a line has none."""
    assert achieved(logged(*timed)) == {}


def test_utilization_needs_a_configured_peak():
    """The share of the peak is shown only where the peak is known."""
    timed = [(10, STATS), (10, WORK), (20, STATS), (20, WORK)]

    assert logged(*timed, peak_flops=2e13).engines[0].gauges["flops_utilization_ratio"].value == 0.25
    assert "flops_utilization_ratio" not in logged(*timed).engines[0].gauges
    assert "flops_utilization_ratio" not in logged((10, STATS), peak_flops=2e13).engines[0].gauges


def test_a_diffusion_models_log_is_summed():
    """Its counts are those of each interval, and its line names no engine."""
    line = DiffusionDecoding("0", 8.0, 4.0, 80, 20, 640)
    engine = logged((10, STATS), (10, line), (20, STATS), (20, line)).engines[0]

    assert engine.gauges["diffusion_committed_tokens_per_second"].value == 8.0
    assert engine.gauges["diffusion_tokens_per_step"].value == 4.0
    counted = {name: reading.value for name, reading in engine.counters.items() if name.startswith("diffusion_")}
    assert counted == {
        "diffusion_committed_tokens_total": 160,
        "diffusion_denoising_steps_total": 40,
        "diffusion_canvas_positions_total": 1280,
    }


def test_adapters_are_counted_from_now_on():
    """Loads and removals count once one was seen; those of history do not."""
    changes = [(10, AdapterChange("loaded")), (11, AdapterChange("loaded")), (12, AdapterChange("removed"))]

    assert logged(*changes).log.adapter_changes == {"loaded": 2, "removed": 1}
    assert logged(*changes, is_history=True).log.adapter_changes == {}
    assert logged((10, STATS)).log.adapter_changes == {}


def test_v0s_values_are_shown():
    """What only V0 has is read from its lines under the names of its pages."""
    v0 = STATS._replace(engine=None, requests_swapped=3, cpu_kv_cache_usage_ratio=0.25)
    ratios = EngineStats(prefix_cache_hit_ratio=0.5, cpu_prefix_cache_hit_ratio=0.125)
    spec = SpecDecoding(
        acceptance_ratio=0.5,
        system_efficiency=0.75,
        accepted_tokens_cumulative=5,
        drafted_tokens_cumulative=10,
        emitted_tokens_cumulative=12,
    )
    engine = logged((10, v0), (10, ratios), (10, spec)).engines[0]
    shown = {name: engine.gauges[name].value for name in ("requests_swapped", "cpu_kv_cache_usage_ratio")}

    assert shown == {"requests_swapped": 3, "cpu_kv_cache_usage_ratio": 0.25}
    assert engine.gauges["cpu_prefix_cache_hit_ratio"].value == 0.125
    assert engine.gauges["spec_decode_system_efficiency_ratio"].value == 0.75
    assert engine.counters["spec_decode_emitted_tokens_total"].value == 12


def test_numbers_of_adapters_are_the_present_ones():
    """They go with the scrapes: a server that is not answered has none."""
    server = ScrapedServer()
    body = page(running=1) + started(900.0) + LORA.format("a,b", "a,b", 1795.5)

    shown = server.scrape(body).of_server
    assert (shown[LORA_ACTIVE].value, shown[LORA_MOST].value) == (2, 2)
    assert LORA_ACTIVE not in server.scrape(None, after=100.0).of_server


def stalls(*bodies, every=5.0):
    """Return the states of an engine that is shown pages."""
    server = ScrapedServer()
    return [server.scrape(body, after=every).engines[0].state for body in bodies]


def test_no_stall_while_weights_are_updated():
    """Requests run and nothing moves: that is a stall, but not while a trainer updates the weights."""
    still = page(running=2, generated=50)
    scrapes = math.ceil(STALL_SECONDS / 5) + 4
    before = [page(running=2, generated=40), still]

    assert stalls(*before, *[still + UPDATE.format(0)] * scrapes)[-1] == "stalled"
    assert "stalled" not in stalls(*before, *[still + UPDATE.format(1)] * scrapes)


def test_an_operation_that_hangs_excuses_nothing():
    """After ten minutes in flight the engine counts as stalled; after an update, its time counts from then on."""
    still, scrapes = page(running=2, generated=50), math.ceil(STALL_SECONDS / 5) + 4
    begun = [page(running=2, generated=40), still]
    hanging = stalls(*begun, *[still + UPDATE.format(1)] * (math.ceil(MAX_OPERATION_SECONDS / 5) + scrapes))
    ended = stalls(*begun, *[still + UPDATE.format(1)] * scrapes, *[still + UPDATE.format(0)] * scrapes)

    assert hanging.index("stalled") * 5 >= MAX_OPERATION_SECONDS
    assert ended[: 2 + scrapes].count("stalled") == 0
    assert ended[-1] == "stalled"
