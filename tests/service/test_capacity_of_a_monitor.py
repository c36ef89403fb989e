# SPDX-License-Identifier: Apache-2.0
"""A benchmark's capacity that the configuration gets or loses is applied without watching the server anew."""

from __future__ import annotations

from msgspec.structs import replace

from vllm_watch.daemon.config.server_config import CapacityConfig, MetricsConfig, ServerConfig
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.support.clock import SystemClock


CONFIG = ServerConfig(name="a", metrics=MetricsConfig(url="http://127.0.0.1:9/metrics"))


def test_a_changed_capacity_is_applied():
    """What was learnt of the server stays; a change of anything else needs another monitor."""
    monitor = ServerMonitor(CONFIG, SystemClock())
    given = replace(CONFIG, capacity=CapacityConfig(tokens_per_second=200.0, upper=205.0))

    assert monitor.update(given)
    assert monitor._state.settings.capacity == (200.0, 180.0, 205.0, None)
    assert monitor.update(CONFIG)
    assert monitor._state.settings.capacity is None
    assert not monitor.update(replace(given, stall_after=99.0))
    monitor.close()
