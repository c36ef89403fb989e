# SPDX-License-Identifier: Apache-2.0
"""T30: clocks that jump, stand, or disagree make no age negative, and expire nothing."""

from __future__ import annotations

import os
import time

import pytest

from tests.parsers.lines import STATS_MESSAGE, record
from tests.support.recordings import bodies_of, log_of
from tests.support.server_stories import Server

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.support.clock import SystemClock


DAY = 86_400.0
NOW = 1_795_000_000.0
BY_OUR_CLOCK = {"last_token_timestamp_seconds", "source_last_reading_timestamp_seconds"}
STATS = record(STATS_MESSAGE)


@pytest.mark.parametrize("jump", [DAY, -DAY, 365 * DAY, -NOW])
def test_the_steady_time_does_not_follow_the_wall_clock(monkeypatch, jump):
    """T30: when the wall clock jumps, the time for ages goes on, and what leaves the process is the wall clock's."""
    clock = SystemClock()
    before = clock.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)

    assert 0 <= clock.now() - before < 60
    assert abs(clock.wall(clock.now()) - (before + jump)) < 60


@pytest.mark.parametrize("ahead", [DAY, 365 * DAY])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_log_from_the_future_ages_all_the_same(tmp_path, ahead, is_resumed):
    """T30: lines of a file whose time is ahead of the clock are as young as now, and no younger: they go stale."""
    path = tmp_path / "vllm.log"
    line = STATS.replace(b"11-21 02:35:10", time.strftime("%m-%d %H:%M:%S", time.gmtime(NOW + ahead)).encode())
    path.write_bytes(line + b"\n")
    first = LogTailer(str(path))
    first.poll(NOW)
    positions = first.positions()
    first.close()
    path.write_bytes(line + b"\n" + line.replace(b"Running: 7", b"Running: 5") + b"\n")
    os.utime(path, (NOW + ahead, NOW + ahead))
    tail = LogTailer(str(path), positions if is_resumed else ())
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
    for batch in tail.poll(NOW):
        state.apply_log(batch)
    state.apply_log_status(tail.status())
    tail.close()
    fresh, stale = state.snapshot(NOW), state.snapshot(NOW + 60)

    assert 5.0 == fresh.engines[0].gauges["requests_running"].value
    assert fresh.engines[0].gauges["requests_running"].at <= NOW
    assert all(source.last_reading <= NOW for source in fresh.sources)
    assert "requests_running" not in stale.engines[0].gauges


@pytest.mark.parametrize(("has_log", "has_metrics"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_every_time_of_a_snapshot_is_ahead(has_log, has_metrics, ahead):
    """Each sample's time, and each value that is a time by our clock, is ahead; everything else is the same."""
    server = Server(has_log, has_metrics, slo={"slo_time_to_first_token_seconds": 0.5}, probe_every=60.0)
    server.log(*log_of("acceptance").splitlines())
    for body in bodies_of("acceptance")[55:65]:  # While it drafts.
        server.scrape(body, after=5.0)
    before = list(server_samples(server.state.snapshot(server.now)))
    after = list(server_samples(server.state.snapshot(server.now, ahead)))
    clocked = BY_OUR_CLOCK | (set() if has_metrics else {"server_start_timestamp_seconds"})

    assert len(before) > 40
    assert [each._replace(at=each.at + ahead) for each in before if each.name not in clocked] == [
        each for each in after if each.name not in clocked
    ]
    assert [each.value + ahead for each in before if each.name in clocked] == [
        each.value for each in after if each.name in clocked
    ]
    assert clocked & {each.name for each in before}
