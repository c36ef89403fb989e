# SPDX-License-Identifier: Apache-2.0
"""The history of a recorded server has what its scrapes and its log report, each at its own time."""

from __future__ import annotations

import json
import lzma

import msgspec
import pytest

from tests.loadtest.histories import recorded
from tests.loadtest.load_tests import FOLDER, report_of
from tests.support.recordings import recording

from vllm_watch.analysis.comparison.pair import result_in
from vllm_watch.analysis.loadtest.client_runs import read_client_runs
from vllm_watch.analysis.loadtest.energy_and_cost import priced
from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.replayed_history import read_recording
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.analysis.replay.recording import GpusRead, MetricsRead, Recording
from vllm_watch.daemon.state.gpu_report import GpuReading, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse


LONG = FOLDER / "long-open.jsonl.xz"


def test_each_scrape_is_a_point_at_its_own_time():
    """The points with new values are at the times of the scrapes that were answered."""
    played = recording("busy")
    answered = [played.started + event.at for event in played.events() if isinstance(event, MetricsRead) and event.body]

    assert [point.at for point in recorded("busy").points if point.is_fresh] == answered


def test_room_is_that_of_all_engines():
    """Two engines with 24 places each run 48 requests; the flag is what was given to each."""
    found = recorded("dp1")

    assert found.facts["max_running_requests"] == 48
    assert found.facts["kv_cache_capacity_tokens"] == 2 * 1_398_016
    assert found.config["max-num-seqs"] == "24"


def test_a_recorded_log_counts_what_the_log_in_a_file_counts(tmp_path):
    """Requests are printed long before the tokens that they had: no load has the ones without the others."""
    first, *lines = map(json.loads, lzma.decompress((FOLDER / "draft4-run1.jsonl.xz").read_bytes()).splitlines())
    logged = [line for line in lines if "log" in line]
    alone, file = tmp_path / "log-only.jsonl.xz", tmp_path / "vllm.log"
    end = {key: value for key, value in lines[-1].items() if key in {"t", "end"}}
    header = {**first, "servers": {"qwen": {"log": True}}}
    alone.write_bytes(lzma.compress(b"\n".join(json.dumps(each).encode() for each in (header, *logged, end)) + b"\n"))
    file.write_text("".join(line["log"] for line in logged), encoding="utf-8")
    results = [read_report([str(path)]).runs[0].result for path in (alone, file)]

    assert [result.successful for result in results] == [616, 616]
    assert results[0].total_output_tokens == pytest.approx(results[1].total_output_tokens, rel=0.01)


MEMORY = {("gpu_memory_used_bytes",): 95e9, ("gpu_memory_total_bytes",): 1e11}


def with_gpu(played, watts=650.0, every=5.0):
    """Let a recorded server have one GPU, read every few seconds, one second before it is told."""
    known, events, due = GpuReading("GPU-1", 0, "H", "0", "570", "nvidia", "0", "ok", {}, None), [], 0.0
    for event in played.events():
        while due < event.at:
            reading = known._replace(values={("gpu_energy_joules_total",): 9e6 + watts * (due - 1.0), **MEMORY})
            gpus = (ServerGpu("GPU-1", "pid", False, None, reading),)
            events.append(GpusRead(due, GpuUse(played.started + due - 1.0, "ok", gpus), every))
            due += every
        events.append(event)
    played.events = lambda _server: iter(events)
    played.sources = {name: msgspec.structs.replace(each, cost_per_hour=3.6) for name, each in played.sources.items()}
    return played


def test_the_energy_of_a_recording_is_that_of_its_steady_window():
    """Both views have the server's energy in a comparison, and its price; without GPU lines there is neither."""
    played = with_gpu(Recording(LONG))
    history = read_recording(played, str(LONG), played.servers[0])
    clients = read_client_runs(played.benchmarks[0].content, f"{LONG}: result")
    run = priced(join(clients, [history]).runs[0])
    (plain,) = report_of(LONG).runs
    steady = run.steady.result

    assert steady.mean_watts == pytest.approx(650)
    assert steady.energy_joules == pytest.approx(650 * steady.duration_s)
    assert steady.joules_per_output_token == pytest.approx(650 / steady.output_throughput, rel=0.01)
    assert 0 < steady.tokens_per_joule < steady.total_token_throughput / 650 * 1.01
    assert run.energy_problem is None
    assert {point.gauges["gpu_memory_used_ratio"] for point in history.points[5:]} == {0.95}
    assert run.cost_per_hour == 3.6
    assert steady.cost_per_million_output_tokens == pytest.approx(1000 / steady.output_throughput, rel=0.01)
    for view in ("client", "server"):
        assert result_in(run, view).joules_per_output_token == steady.joules_per_output_token
        assert result_in(plain, view).mean_watts is None
    assert (plain.steady.result.mean_watts, plain.cost_per_hour, plain.energy_problem) == (None, None, None)
